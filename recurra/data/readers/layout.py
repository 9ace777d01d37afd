"""Which column of a table plays which part: sequence, time, features, target, label."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from ...errors import InputError, OptionError, UnknownNameError, nearest
from ..data_errors import FormatError, MissingColumnError
from ..sequences import Task

Missing = Literal["error", "drop", "fill"]

#: column names that are taken for what they say when nothing else is named, in lower case
ID_NAMES = ("unique_id", "sequence_id", "series_id")
TIME_NAMES = ("ds", "date", "datetime", "timestamp", "time", "year")
TARGET_NAMES = ("y",)
LABEL_NAMES = ("label", "labels", "class", "tag", "tags")
TEXT_NAMES = ("tokens", "text")


class LayoutOptions(TypedDict, total=False):
    """The keywords every table reader takes; see `Layout`."""

    id: str | None
    time: str | None
    features: Sequence[str] | None
    target: str | Sequence[str] | None
    label: str | None
    task: Task | None
    classes: Sequence[str] | None
    vocabulary: Sequence[str] | None
    missing: Missing
    sort: bool
    irregular: bool


@dataclass(frozen=True)
class Layout:
    """The parts columns play, and what is done about gaps and disorder.

    - `id` tells sequences apart; without it the table is one sequence. `time` orders the steps: dates and times, whole
      numbers, or seconds to the microsecond.
    - `features` are the inputs; by default every column of numbers that plays no other part. `target` columns are
      what is predicted; a forecast predicts them one step ahead, and takes them as inputs too.
    - `label` holds classes: one a sequence if it never changes within a sequence, else one a step.
    - `missing`: "error" names the first gap; "drop" leaves its row out; "fill" repeats the last value of the sequence,
      and at its beginning the first one.
    - `sort`: put the rows of a sequence together and in order of time; otherwise disorder is an error.
    - `irregular`: accept steps of unequal duration; otherwise they are an error.

    Long form, `unique_id, ds, y`, is recognised by name. `sort`, "drop" and "fill" rewrite the table, so they hold it
    in memory; everything else streams.
    """

    id: str | None = None
    time: str | None = None
    features: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    label: str | None = None
    task: Task | None = None
    classes: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None
    missing: Missing = "error"
    sort: bool = False
    irregular: bool = False

    @classmethod
    def of(cls, options: LayoutOptions) -> "Layout":
        known = [field.name for field in fields(cls)]
        given: dict[str, Any] = dict(options)
        for name in given:
            if name not in known:
                raise OptionError(name, "an option tables do not have", nearest(name, known))
        if isinstance(given.get("target"), str):
            given["target"] = (given["target"],)
        for name in ("features", "target", "classes", "vocabulary"):
            if given.get(name) is not None:
                given[name] = tuple(given[name])
        layout = cls(**given)
        if layout.missing not in get_args(Missing):
            raise UnknownNameError("missing", layout.missing, get_args(Missing))
        if layout.task is not None and layout.task not in get_args(Task):
            raise UnknownNameError("task", layout.task, get_args(Task))
        return layout

    @property
    def rewrites(self) -> bool:
        return self.sort or self.missing != "error"

    def resolve(self, kinds: dict[str, str], file: str | Path) -> "Layout":
        """Every part filled in for a table with these columns, of these kinds, see `tables.kind_of`."""
        asked = [self.id, self.time, self.label, *(self.features or ()), *(self.target or ())]
        for column in asked:
            if column is not None and column not in kinds:
                raise MissingColumnError.among(file, column, kinds)
        taken = {column for column in asked if column is not None}
        label = self.label or _named(LABEL_NAMES, kinds, taken)
        id = self.id or _named(ID_NAMES, kinds, taken)
        time = self.time or _named(TIME_NAMES, kinds, taken) or _first_time(kinds, taken)
        target = self.target or _tuple(None if label else _named(TARGET_NAMES, kinds, taken))
        features = self.features or self._rest(kinds, {id, time, label}, target, self._ahead(label), file)
        return replace(self, id=id, time=time, label=label, target=target, features=features)

    def _ahead(self, label: str | None) -> bool:
        """Whether the inputs one step later are the targets."""
        return self.task in ("forecasting", "next_step", "language") or (self.task is None and label is None)

    def _rest(
        self,
        kinds: dict[str, str],
        parts: set[str | None],
        target: tuple[str, ...] | None,
        ahead: bool,
        file: str | Path,
    ) -> tuple[str, ...]:
        """The columns left to be inputs. Lists and text make a row a sequence; numbers beside them are no steps."""
        rest = {column: kind for column, kind in kinds.items() if column not in parts}
        tokens = _named(TEXT_NAMES, rest, set())
        nested = [column for column, kind in rest.items() if kind == "list" and column not in (target or ())]
        if tokens or nested:
            return (tokens,) if tokens else tuple(nested)
        rest = {column: kind for column, kind in rest.items() if ahead or column not in (target or ())}
        for column, kind in rest.items():
            if kind in ("text", "time", "another type"):
                expected = "numbers; or name it as id, time or label, or leave it out with features=[...]"
                raise FormatError(file, f"a column of {kind}", expected, column=column)
        if not rest:
            raise FormatError(file, f"the columns {', '.join(kinds)}", "at least one column of numbers as input")
        return tuple(rest)

    def decide(self, constant: bool) -> Task:
        """The task, from what was named; `constant`: whether the label never changes within a sequence."""
        if self.task in ("classification", "tagging") and self.label is None:
            raise InputError("label", None, f"the column of labels, for {self.task}")
        if self.task in ("regression", "transduction") and self.target is None:
            raise InputError("target", None, f"the columns to predict, for {self.task}")
        if self.task is not None:
            return self.task
        if self.label is not None:
            return "classification" if constant else "tagging"
        return "forecasting"


def _named(names: Sequence[str], kinds: dict[str, str], taken: set[str]) -> str | None:
    lowered = {column.lower(): column for column in kinds if column not in taken}
    return next((lowered[name] for name in names if name in lowered), None)


def _first_time(kinds: dict[str, str], taken: set[str]) -> str | None:
    return next((column for column, kind in kinds.items() if kind == "time" and column not in taken), None)


def _tuple(name: str | None) -> tuple[str, ...] | None:
    return None if name is None else (name,)
