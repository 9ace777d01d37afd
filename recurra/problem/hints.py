"""What is known before a file is read: its place and what the caller said about it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Asked:
    """`columns`: target, id, time and inputs as given; `cleaning`: what is done about gaps and disorder."""

    source: str
    path: Path
    format: str
    task: str | None
    columns: dict[str, Any]
    cleaning: dict[str, Any]
    horizon: int | None
    season: int | None
    test: Any  # a file, a share, or None
    seed: int

    @property
    def file(self) -> tuple[str, str]:
        """The first fact."""
        return "file", f"{self.path.name}, {self.format}"
