"""The roles of the columns of a table: id, time, features, target, label."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

from ...errors import InputError, OptionError, UnknownNameError, nearest
from ..data_errors import FormatError, MissingColumnError
from ..sequences import Task

Missing = Literal["error", "drop", "fill"]

#: column names, in lower case, that have a role if none is given
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
    """The roles of columns, and how gaps and unsorted rows are handled. Table readers take these as keywords.

    The long format `unique_id, ds, y` is recognised by name. `sort`, "drop" and "fill" hold the table in memory;
    everything else streams.

    **Arguments**

    - `id`: the column that identifies sequences; without it the table is one sequence.
    - `time`: the column that orders the steps: dates and times, integers, or seconds.
    - `features`: the inputs; by default every numeric column without another role.
    - `target`: the columns to predict; in forecasting they are predicted one step ahead, and are inputs too.
    - `label`: classes: one per sequence if it is constant in every sequence, otherwise one per step.
    - `task`: overrides the task that follows from the roles.
    - `classes`, `vocabulary`: known labels and tokens, in the order of their numbers.
    - `missing`: "error"; "drop" the row; or "fill" with the last value of the sequence, at its start with the first.
    - `sort`: group the rows by sequence and sort them by time; otherwise unsorted rows are an error.
    - `irregular`: accept unequal time steps; otherwise they are an error.

    **Example**

        >>> import recurra as rc
        >>> table = {"unique_id": ["a", "a", "b", "b"], "x": [1.0, 2.0, 3.0, 4.0], "label": ["u", "u", "v", "v"]}
        >>> data = rc.data.from_table(table)
        >>> data.task, data.features, data.classes
        ('classification', ('x',), ('u', 'v'))
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
                raise OptionError(name, "an unknown option of a table", nearest(name, known))
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
        """The layout with every role filled in, for a table with columns of these kinds (see `tables.kind_of`)."""
        asked = [self.id, self.time, self.label, *(self.features or ()), *(self.target or ())]
        for column in asked:
            if column is not None and column not in kinds:
                raise MissingColumnError.among(file, column, kinds)
        taken = {column for column in asked if column is not None}
        label = self.label or _named(LABEL_NAMES, kinds, taken)
        id = self.id or _named(ID_NAMES, kinds, taken)
        time = self.time or _named(TIME_NAMES, kinds, taken) or _first_time(kinds, taken)
        target = self.target or _tuple(None if label else _named(TARGET_NAMES, kinds, taken))
        features = self.features or self._remaining_columns(kinds, {id, time, label}, target, self._ahead(label), file)
        return replace(self, id=id, time=time, label=label, target=target, features=features)

    def _ahead(self, label: str | None) -> bool:
        """Whether the targets are the inputs one step later."""
        return self.task in ("forecasting", "next_step", "language") or (self.task is None and label is None)

    def _remaining_columns(
        self,
        kinds: dict[str, str],
        parts: set[str | None],
        target: tuple[str, ...] | None,
        ahead: bool,
        file: str | Path,
    ) -> tuple[str, ...]:
        """The input columns: those without another role. With list or text columns, a row is a whole sequence."""
        rest = {column: kind for column, kind in kinds.items() if column not in parts}
        tokens = _named(TEXT_NAMES, rest, set())
        nested = [column for column, kind in rest.items() if kind == "list" and column not in (target or ())]
        if tokens or nested:
            return (tokens,) if tokens else tuple(nested)
        rest = {column: kind for column, kind in rest.items() if ahead or column not in (target or ())}
        for column, kind in rest.items():
            if kind in ("text", "time", "another type"):
                expected = "numbers; or give it the role id, time or label, or exclude it with features=[...]"
                raise FormatError(file, f"a column of {kind}", expected, column=column)
        if not rest:
            raise FormatError(file, f"the columns {', '.join(kinds)}", "at least one column of numbers as input")
        return tuple(rest)

    def infer_task(self, constant: bool) -> Task:
        """The task that follows from the roles; `constant`: the label is constant in every sequence."""
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
