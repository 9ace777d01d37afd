"""The roles of the columns of a table: id, time, features, target, label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from ...errors import OptionError, UnknownNameError, nearest
from ..sequences import Task
from .dates import DateOrder

if TYPE_CHECKING:
    from .column_roles import Roles

Missing = Literal["error", "drop", "fill"]
Fill = Literal["none", "forward", "interpolate"]
Decimal = Literal["point", "comma"]
Form = Literal["long", "wide", "nested"]

#: column names, in lower case, that have a role if none is given
ID_NAMES = ("unique_id", "sequence_id", "series_id")
TIME_NAMES = ("ds", "date", "datetime", "timestamp", "time", "year")
TARGET_NAMES = ("y",)
LABEL_NAMES = ("label", "labels", "class", "tag", "tags", "is_anomaly")
TEXT_NAMES = ("tokens", "text")
ID_HINTS = (*ID_NAMES, "id", "sequence", "series", "case", "trial", "subject", "session")
TIME_HINTS = (*TIME_NAMES, "t", "ts", "time_stamp", "epoch", "unix_time", "unixtime", "step", "frame")
TARGET_HINTS = (*LABEL_NAMES, *TARGET_NAMES, "target")
#: a role that no column shall have, as in id="none"
NO_COLUMN = "none"


def names_sequences(column: str) -> bool:
    """Whether a column is named like one that identifies sequences."""
    lowered = column.strip().lower()
    return lowered in ID_HINTS or lowered.endswith("_id")


class LayoutOptions(TypedDict, total=False):
    """The keywords every table reader takes; see `Layout`."""

    id: str | Sequence[str] | None
    time: str | Sequence[str] | None
    features: Sequence[str] | None
    target: str | Sequence[str] | None
    label: str | None
    static: str | Sequence[str]
    observed: str | Sequence[str]
    ignore: str | Sequence[str]
    task: Task | None
    classes: Sequence[str] | None
    vocabulary: Sequence[str] | None
    categories: Mapping[str, Sequence[str]] | None
    missing: Missing
    fill: Fill
    sort: bool
    irregular: bool
    dates: DateOrder | None
    decimal: Decimal | None
    sheet: str | None
    encoding: str | None
    na: str | Sequence[str]
    form: Form | None
    unlabelled: bool


@dataclass(frozen=True)
class Layout:
    """The roles of columns, and how gaps and unsorted rows are handled. Table readers take these as keywords.

    What is not given is inferred from names, types and values, as the command line does it; `data.roles` says what was
    found and why. `sort`, `fill`, "drop" and "fill" hold the table in memory; everything else streams.

    **Arguments**

    - `id`: the column that identifies sequences, or several, such as `("person", "trial")`; "none": the table is one
      sequence.
    - `time`: the column that orders the steps: dates and times, integers, or seconds; several columns such as
      `("year", "month")` are one date; "none": the order of the rows.
    - `features`: the inputs; by default every column of numbers, or of text with few values, without another role. Each
      value of a text column becomes an input that is 1 where it occurs, so that a cell learns weights for it.
    - `target`: the columns to predict; in forecasting they are predicted one step ahead, and are inputs too.
    - `label`: classes: one per sequence if it is constant in every sequence, otherwise one per step.
    - `static`: inputs that are constant within a sequence; in a wide table, columns that are no steps.
    - `observed`: inputs of a forecast that are known until it is made. `ignore`: columns to leave out.
    - `task`: overrides the task that follows from the roles.
    - `classes`, `vocabulary`, `categories`: known labels, tokens, and values of text columns, in order.
    - `missing`: "error"; "drop" the row; or "fill" with the last value of the sequence, at its start with the first.
    - `fill`: "forward" repeats the last value, "interpolate" draws a line, for missing values and for missing rows of
      an otherwise regular series; "none" reports them.
    - `sort`: group the rows by sequence and sort them by time; otherwise unsorted rows are an error.
    - `irregular`: accept unequal time steps; otherwise they are an error.
    - `dates`: "day-first" or "month-first", for dates like 01/02/2012.
    - `decimal`: "point" or "comma", for numbers like 1.234 in a file delimited by semicolons. `sheet`: of a workbook.
    - `na`: values that mean "missing", such as "-999", beside empty fields, NA and the like.
    - `encoding`: of a text file, such as "latin-1" or "utf-16"; by default UTF-8.
    - `form`: "long" (a row is a step) or "wide" (a row is a sequence). `unlabelled`: read no targets, to predict them.

    **Example**

        >>> import recurra as rc
        >>> table = {"unique_id": ["a", "a", "b", "b"], "x": [1.0, 2.0, 3.0, 4.0], "label": ["u", "u", "v", "v"]}
        >>> data = rc.data.from_table(table)
        >>> data.task, data.features, data.classes
        ('classification', ('x',), ('u', 'v'))
    """

    id: str | None = None
    time: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    target: tuple[str, ...] | None = None
    label: str | None = None
    static: tuple[str, ...] = ()
    observed: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    task: Task | None = None
    classes: tuple[str, ...] | None = None
    vocabulary: tuple[str, ...] | None = None
    categories: Mapping[str, tuple[str, ...]] | None = None
    missing: Missing = "error"
    fill: Fill = "none"
    sort: bool = False
    irregular: bool = False
    dates: DateOrder | None = None
    decimal: Decimal | None = None
    sheet: str | None = None
    encoding: str | None = None
    na: tuple[str, ...] = ()
    form: Form | None = None
    unlabelled: bool = False

    @classmethod
    def of(cls, options: LayoutOptions) -> "Layout":
        """A layout from the options of a reader; an unknown one is an `OptionError`."""
        known = [field.name for field in fields(cls)]
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in known:
                raise OptionError(name, "an unknown option of a table", nearest(name, known))
        for name in ("time", "features", "target", "static", "observed", "ignore", "classes", "vocabulary", "na"):
            if name in given:
                given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        if not isinstance(given.get("id", ""), str):
            given["id"] = "+".join(given["id"]) or None
        if "categories" in given:
            given["categories"] = {name: tuple(values) for name, values in given["categories"].items()}
        layout = cls(**given)
        choices: dict[str, tuple[str, ...]] = {"missing": get_args(Missing), "fill": get_args(Fill)}
        choices |= {"task": get_args(Task), "dates": get_args(DateOrder), "decimal": get_args(Decimal)}
        choices |= {"form": get_args(Form)}
        for name, accepted in choices.items():
            if (value := getattr(layout, name)) is not None and value not in accepted:
                raise UnknownNameError(name, value, accepted)
        return layout

    @classmethod
    def of_writing(cls, options: Mapping[str, Any]) -> "Layout":
        """How a file is written, without the roles of its columns."""
        return cls(decimal=options.get("decimal"), sheet=options.get("sheet"), na=tuple(options.get("na") or ()))

    @property
    def rewrites(self) -> bool:
        return self.sort or self.missing != "error" or self.fill != "none"

    @property
    def time_column(self) -> str | None:
        """The column of times; several columns are combined to one of this name."""
        return "+".join(self.time) or None if NO_COLUMN not in self.time else None

    def with_roles(self, roles: "Roles") -> "Layout":
        """The layout with every role filled in."""
        target = roles.named("target")
        is_label = roles.task in ("classification", "tagging")
        ahead = roles.task in ("forecasting", "next_step")
        inputs = roles.inputs if self.features is None else self.features
        if ahead and self.features is None:
            chosen = (*target, *inputs)
            inputs = tuple(column.name for column in roles.columns if column.name in chosen)
        return replace(
            self,
            id=roles.one("id"),
            time=roles.named("time"),
            label=target[0] if target and is_label else None,
            target=target if target and not is_label else None,
            features=inputs,
            task=self.task or roles.task,
        )
