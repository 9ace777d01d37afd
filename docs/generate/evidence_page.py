"""Every committed result in its own words, with the command that made it, and first of all where recurra is worse."""

import re
from pathlib import Path

from . import where_worse
from .repository_pages import within_site
from .speed_results import RESULTS

GROUPS = {
    "Speed and memory": ("peers", "zoo_speed", "h200", "scan", "spiking_cpu", "crf", "online"),
    "Accuracy beside other methods": ("uea", "ucr", "forecasting", "m4", "tagging", "language", "dates"),
    "Learning beside the papers": ("learning", "learning_notes", "lstm_1997", "greff", "jsb_chorales", "chorales"),
}
REST = "Other measurements"
TITLES = {"learning": "What the learning algorithms learn", "learning_notes": "Notes on what they learn"}


def pages() -> dict[str, str]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RESULTS.glob("*.md"))}
    found = {f"evidence/{name}.md": _page(name, text) for name, text in texts.items()}
    grouped = {title: [name for name in names if name in texts] for title, names in GROUPS.items()}
    grouped[REST] = [name for name in texts if not any(name in names for names in grouped.values())]
    lists = "\n\n".join(f"## {title}\n\n{_rows(names, texts)}" for title, names in grouped.items())
    listed = "\n".join(name for names in grouped.values() for name in names)
    found["evidence/index.md"] = (
        "# Evidence\n\nThe tables behind every claim, as the scripts that measured them wrote them. Each page names "
        "its command, and the hardware and versions where these matter.\n\n"
        f"## Where recurra is worse\n\n{where_worse.listed()}\n\n{lists}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )
    return found


def title_of(name: str, text: str) -> str:
    heading = re.match(r"# (.+)", text)
    return heading.group(1) if heading else TITLES.get(name, name.replace("_", " ").capitalize())


def _rows(names: list[str], texts: dict[str, str]) -> str:
    rows = "\n".join(f"| [{title_of(name, texts[name])}]({name}.md) | {_command(texts[name])} |" for name in names)
    return f"| result | made by |\n|---|---|\n{rows}"


def _command(text: str) -> str:
    """The first command that a result names."""
    found = re.search(r"((?:OMP_\w+=\w+ )*python (?:-m benchmarks\.|benchmarks/)[^`|\n]+?)(?=[`|\n])", text)
    if not found:
        script = re.search(r"`(benchmarks/\w+\.py)`", text)
        return f"`python {script.group(1)}`" if script else ""
    return f"`{found.group(1).strip()}`"


def _page(name: str, text: str) -> str:
    """The result's own text. Pictures beside it come along."""
    headed = text if text.startswith("# ") else f"# {title_of(name, text)}\n\n{text}"
    headed = re.sub(r"!\[([^]]*)\]\(([\w.]+\.svg)\)", r"![\1](../../../benchmarks/results/\2)", headed)
    return within_site(headed, Path(), set())
