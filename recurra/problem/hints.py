"""The arguments of `infer_problem`, checked and with the file format added."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Hints:
    """What the caller said about a file. None means: infer it.

    `columns` has target, id, time and inputs; `cleaning` has the reader options `missing` and `sort`.
    """

    source: str
    path: Path
    format: str
    task: str | None
    columns: dict[str, Any]
    cleaning: dict[str, Any]
    horizon: int | None
    season: int | None
    test: Any  # a file, a fraction, or None
    seed: int

    @property
    def file_summary(self) -> tuple[str, str]:
        """First line of a problem's summary."""
        return "file", f"{self.path.name}, {self.format}"
