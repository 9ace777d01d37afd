"""The README as a package index shows it: links that lead somewhere, and no picture that would be missing.

An index has none of the repository's files. Where `[project.urls]` in pyproject.toml has a `Source`, links and pictures
lead there; without one, links become their words and pictures are left out.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"!\[([^]]*)\]\((?!https?:)([^)\s]+)\)\n*")
LINK = re.compile(r"(?<!!)\[([^]]+)\]\((?!https?:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": portable(text, source)}


def portable(text: str, source: str | None) -> str:
    """The text without links into the repository, or with those links absolute, below `source`."""
    if source is None:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    text = PICTURE.sub(rf"![\1]({source}/raw/main/\2)\n\n", text)
    return LINK.sub(rf"[\1]({source}/blob/main/\2)", text)
