"""The arguments of `infer_problem`, checked and with the file format added."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recurra.data.readers.column_roles import Roles
from recurra.data.readers.layout import Layout
from recurra.errors import InputError

#: task of a problem → task of a sequence set
DATA_TASKS: dict[str, Any] = {
    "classify": "classification",
    "regress": "regression",
    "classify_steps": "tagging",
    "regress_steps": "transduction",
    "forecast": "forecasting",
    "tag": "tagging",
    "language": "language",
    "translate": None,  # texts, no sequence set
}


@dataclass(frozen=True)
class Hints:
    """What the caller said about a file. None means: infer it.

    `columns` has target, id, time, inputs, observed, static and ignore; `cleaning` has the reader options `missing`,
    `fill`, `sort`, `dates`, `decimal`, `sheet`, `encoding` and `na`.
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
    def layout(self) -> Layout:
        """The options of a table reader."""
        columns = {**self.columns, "features": self.columns["inputs"]}
        del columns["inputs"]
        task = DATA_TASKS[self.task] if self.task else None
        return Layout.of({**columns, **self.cleaning, "task": task})  # pyrefly: ignore

    def with_notations(self, roles: Roles) -> "Hints":
        """How dates and numbers of the file are written, so that other files are read in the same way."""
        types = [column.type for column in roles.columns]
        found: dict[str, str] = {}
        for start, order in (("date (day/month", "day-first"), ("date (month/day", "month-first")):
            if any(name.startswith(start) for name in types):
                found["dates"] = order
        if any("decimal comma" in name for name in types):
            found["decimal"] = "comma"
        given = {name: value for name, value in self.cleaning.items() if value is not None}
        return replace(self, cleaning={**self.cleaning, **found, **given})

    def refuse_forecast_options(self, task: str) -> None:
        """Raise for options that only a forecast has."""
        given = {
            "horizon": self.horizon,
            "season": self.season,
            "observed": ", ".join(self.columns["observed"]) or None,
        }
        for name, value in given.items():
            if value is not None:
                raise InputError(name, value, f"a task to forecast, not to {task}")

    @property
    def file_summary(self) -> tuple[str, str]:
        """First line of a problem's summary."""
        return "file", f"{self.path.name}, {self.format}"
