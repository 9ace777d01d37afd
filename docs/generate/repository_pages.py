"""Changelog, contributing, decisions, how files are read, the examples. Links out of the site become plain names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pages() -> dict[str, str]:
    found = {
        f"{name}.md": (ROOT / f"{name.upper()}.md").read_text(encoding="utf-8")
        for name in ("changelog", "contributing")
    }
    found |= {
        f"adr/{path.name.lower()}": path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "adr").glob("*.md")
    }
    found["reading.md"] = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
    found = {name: within_site(text, Path(name).parent, set(found)) for name, text in found.items()}
    return found | {"examples.md": _examples()}


def _examples() -> str:
    """The list of programs, then each in full, to download."""
    text = re.sub(
        r"\[(\w+)\.py\]\(\w+\.py\)", r"[\1.py](#\1)", (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    )
    for path in sorted((ROOT / "examples").glob("*.py")):
        place = f"../../examples/{path.name}"
        text += f"\n({path.stem})=\n## {path.name}\n\n{{download}}`{path.name} <{place}>`\n\n"
        text += f"```{{literalinclude}} {place}\n```\n"
    return text


def within_site(text: str, folder: Path, known: set[str]) -> str:
    """The text with only those links whose target is a page of `known` or on the web."""

    def rewrite(link: re.Match[str]) -> str:
        words, target = link.groups()
        on_web = target.startswith(("http:", "https:"))
        return link.group() if on_web or (folder / target.lower()).as_posix() in known else f"`{words}`"

    return re.sub(r"(?<!!)\[([^]`]+)\]\(([^)\s]+)\)", rewrite, text)
