"""One page of every committed result, in its own words, with the command that made it."""

import re
from pathlib import Path

from .repository_pages import within_site
from .speed_results import RESULTS

TITLES = {
    "uea": "Sequence classification", "forecasting": "Forecasting", "tagging": "Tagging", "language": "Language models",
    "learning": "Learning algorithms against the papers", "reservoir": "Reservoirs", "gradients": "Gradients",
    "crf": "Conditional random field", "jsb_chorales": "Chorales", "h200": "Speed on an H200",
}  # fmt: skip


def pages() -> dict[str, str]:
    names = sorted(p.stem for p in RESULTS.glob("*.md"))
    found = {f"evidence/{name}.md": _page(name) for name in names}
    listed = "\n".join(names)
    rows = "\n".join(f"- [{title_of(name)}]({name}.md)" for name in names)
    found["evidence/index.md"] = (
        "# Evidence\n\nEvery table that recurra claims, as committed by the script that measured it. Each page names "
        "its command, its hardware and its versions, and says where another library is better.\n\n"
        f"{rows}\n\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )
    return found


def title_of(name: str) -> str:
    return TITLES.get(name, name.replace("_", " ").capitalize())


def _page(name: str) -> str:
    """The result's own text. Pictures beside it come along."""
    text = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    text = re.sub(r"!\[([^]]*)\]\(([\w.]+\.svg)\)", r"![\1](../../../benchmarks/results/\2)", text)
    text = within_site(text, Path(), set())
    return text if text.startswith("# ") else f"# {title_of(name)}\n\n{text}"
