"""Every committed result in its own words, with the command that made it, and first of all where recurra is worse."""

import re
from pathlib import Path

from . import evidence_tables, where_worse
from .evidence_facts import facts
from .repository_pages import within_site
from .speed_results import RESULTS

GROUPS = {
    "Speed and memory": (
        *("peers", "speed", "cell_speed", "cell_speed_h200", "zoo_speed", "h200", "h200_calls", "scan", "scan_gpu"),
        "newton",
        *("matrix_states", "matrix_states_gpu", "spiking_cpu", "spiking_h200", "reservoir_gpu"),
        *("crf", "online", "larger_than_memory"),
    ),
    "Accuracy beside other methods": (
        *("uea", "ucr", "regression", "forecasting", "m4", "m4_peers", "short_series"),
        *("tagging", "language", "dates"),
    ),
    "Learning beside the papers": (
        "learning",
        "learning_notes",
        "lstm_1997",
        "sequential_mnist",
        "greff",
        "jsb_chorales",
        "chorales",
    ),
}
REST = "Other measurements"
TITLES = {
    "learning": "What the learning algorithms learn",
    "learning_notes": "Notes on what they learn",
    "matrix_states": "States that are matrices, on a CPU",
    "matrix_states_gpu": "States that are matrices, on an H200",
    "spiking_cpu": "Spiking layers beside snntorch and SpikingJelly, on a CPU",
    "spiking_h200": "Spiking layers beside snntorch and SpikingJelly, on an H200",
}


def pages() -> dict[str, str]:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RESULTS.glob("*.md"))}
    texts |= evidence_tables.from_json(set(texts))
    found = {f"evidence/{name}.md": _page(name, text) for name, text in texts.items()}
    grouped = {title: [name for name in names if name in texts] for title, names in GROUPS.items()}
    grouped[REST] = [name for name in texts if not any(name in names for names in grouped.values())]
    lists = "\n\n".join(f"## {title}\n\n{_rows(names, texts)}" for title, names in grouped.items())
    listed = "\n".join(name for names in grouped.values() for name in names)
    found["evidence/index.md"] = (
        "# Evidence\n\nThe tables behind every claim, as the scripts that measured them wrote them. Each page begins "
        "with its command, hardware, versions and date, or says what was not recorded. "
        "[All tables on one page](all.md).\n\n"
        f"## Where recurra is worse\n\n{where_worse.listed()}\n\n{lists}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{listed}\nall\n```\n"
    )
    found["evidence/all.md"] = _all(grouped, texts)
    return found


def title_of(name: str, text: str) -> str:
    """One of its own where two results share theirs, or have none; else the heading of the text."""
    heading = re.match(r"# (.+)", text)
    return TITLES.get(name) or (heading.group(1) if heading else name.replace("_", " ").capitalize())


def _rows(names: list[str], texts: dict[str, str]) -> str:
    rows = []
    for name in names:
        about = facts(name, texts[name])
        command = f"`{about.command}`" if about.command else ""
        rows.append(f"| [{title_of(name, texts[name])}]({name}.md) | {command} | {about.hardware} | {about.date} |")
    return "| result | command | hardware | date |\n|---|---|---|---|\n" + "\n".join(rows)


def _page(name: str, text: str) -> str:
    """The facts, then the result's own text. Pictures beside it come along."""
    title, body = f"# {title_of(name, text)}", re.sub(r"\A# .+\n", "", text)
    body = re.sub(r"!\[([^]]*)\]\(([\w.]+\.svg)\)", r"![\1](../../../benchmarks/results/\2)", body)
    return within_site(f"{title}\n\n*{facts(name, text).sentence()}*\n\n{body.strip()}\n", Path(), set())


def _all(grouped: dict[str, list[str]], texts: dict[str, str]) -> str:
    """Every result on one page, its headings two levels lower."""
    parts = ["# All tables"]
    for group, names in grouped.items():
        parts.append(f"## {group}")
        parts += [re.sub(r"^#", "###", _page(name, texts[name]), flags=re.MULTILINE) for name in names]
    return "\n\n".join(parts) + "\n"
