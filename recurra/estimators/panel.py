"""Converts the data of a forecaster (a series, several, a long table) to one panel of series with covariates."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..data.precision import double_precision
from ..errors import InputError
from . import input_conversion
from .covariates import Covariates, codes
from .forecast_frames import library_of, with_dates_as_column, zone_of
from .missing_values import fill_missing
from .table_advice import advice_for_tables, warn_of_odd_values

NO_COVARIATES = Covariates()


@dataclass
class Panel:
    """n series. Times are integers: microseconds if `unit` is "date" or "seconds", otherwise as in the table.

    With several targets, each target of each row's series is a series of its own; those of one group follow each other
    in the order of `targets` and have the same length, covariates and times.
    """

    ids: list[str]
    y: list[np.ndarray]  # (T,)
    known: list[np.ndarray]  # (T, F): covariates whose future is known
    static: np.ndarray  # (n, S)
    times: list[np.ndarray] | None = None  # (T,) int64
    unit: str = "whole"
    form: str = "series"  # "one" series, "series" or "table": predictions are returned in this form
    columns: tuple[str, ...] = ("unique_id", "ds", "y")  # names of id, time and targets in a table
    library: str = "arrow"  # of the data: "pandas", "polars", or "arrow" for all others
    observed: list[np.ndarray] = field(default_factory=list)  # (T, P): covariates whose future is unknown
    covariates: Covariates = NO_COVARIATES
    indexed: str = ""  # "series" or "table": pandas data whose index has the times
    zone: tuple[Any, bool] | None = None  # the time zone of that index, and whether its times are days there

    def __post_init__(self):
        self.observed = self.observed or [np.zeros((len(y), 0)) for y in self.y]

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def targets(self) -> tuple[str, ...]:
        return self.columns[2:]

    @property
    def groups(self) -> list[str]:
        """The ids of the table: one for all targets of a series."""
        count = len(self.targets)
        return self.ids if count == 1 else [name.removesuffix(f" {self.targets[0]}") for name in self.ids[::count]]

    def cut(self, start: int | None, stop: int | None) -> "Panel":
        """The steps `start` to `stop` of every series."""
        piece = slice(start, stop)
        times = None if self.times is None else [t[piece] for t in self.times]
        y, known, observed = ([x[piece] for x in each] for each in (self.y, self.known, self.observed))
        return replace(self, y=y, known=known, observed=observed, times=times)


def to_panel(data: Any, covariates: Covariates = NO_COVARIATES, target: Sequence[str] | str | None = None) -> Panel:
    """A panel from a series (T,), arrays (n, T) or (n, T, targets), a list of series, or a long table.

    The id, the time and the target of a table are inferred as for a file; `target` may name one or several columns. The
    categories of text columns are those of `covariates`, or those that the table has.
    """
    if isinstance(data, Panel):
        return data
    library, zone = library_of(data), zone_of(data)
    data, indexed = with_dates_as_column(data)
    data = input_conversion.arrow(data)
    if input_conversion.column_names(data):
        named = (target,) if isinstance(target, str) else tuple(target or ())
        tell = library != "arrow"  # problems read their files themselves, and say what is in them
        return replace(_from_table(data, covariates, named, tell), library=library, indexed=indexed, zone=zone)
    if covariates.columns:
        raise InputError("data", type(data).__name__, f"a table with the columns {', '.join(covariates.columns)}")
    one = np.ndim(data) == 1 if not input_conversion.is_ragged(data) else False
    return replace(_from_arrays(data, one), library=library)


def _from_arrays(data: Any, one: bool) -> Panel:
    given = input_conversion.arrays([data] if one else data, allow_missing=True)
    series = [_without_gaps(x, k) for k, x in enumerate(given)]  # (T, targets) each
    count = series[0].shape[1]
    names = ("y",) if count == 1 else tuple(f"y{k}" for k in range(count))
    return _ungrouped([str(k) for k in range(len(series))], series, names, form="one" if one else "series")


def _without_gaps(x: np.ndarray, number: int) -> np.ndarray:
    """A series (T, targets) from its first value to its last one, without NaN."""
    steps = np.flatnonzero(~np.isnan(x).all(axis=1))
    if not len(steps) or np.isnan(x).all(axis=0).any():
        raise InputError(f"data[{number}]", "no value that is not NaN", "at least one value of every target")
    return fill_missing(x[steps[0] :])


def _ungrouped(names: list[str], series: list[np.ndarray], targets: tuple[str, ...], **more: Any) -> Panel:
    """The panel of series (T, targets), in which every target is a series of its own."""
    count = len(targets)
    ids = names if count == 1 else [f"{name} {target}" for name in names for target in targets]
    y = [x[:, k] for x in series for k in range(count)]
    for key in ("known", "observed", "times"):
        if more.get(key) is not None:
            more[key] = [x for x in more[key] for _ in range(count)]
    more.setdefault("known", [np.zeros((len(one), 0)) for one in y])
    static = np.repeat(more.pop("static", np.zeros((len(names), 0))), count, axis=0)
    more.setdefault("columns", ("unique_id", "ds", *targets))
    return Panel(ids, y, static=static, **more)


def _from_table(data: Any, covariates: Covariates, targets: tuple[str, ...], tell: bool) -> Panel:
    targets = targets or (_find_target(data, covariates),)
    columns = (*targets, *covariates.columns)
    values, names, times, unit, roles, categories = read_table(data, columns, covariates, tell)
    for name in targets:
        if name in categories:
            raise InputError(f"column {name!r}", f"text such as {categories[name][0]!r}", "numbers to forecast")
    ends = np.cumsum([len(targets), len(covariates.known), len(covariates.static)])
    series, known, static, observed = zip(*(np.split(v, ends, axis=1) for v in values), strict=True)
    for name, v in zip(names, static, strict=True):
        for column, constant in zip(covariates.static, (v == v[:1]).all(axis=0), strict=True):
            if not constant:
                raise InputError(f"column {column!r}", f"values that change within {name!r}", "one value per series")
    ids = roles.one("id") or "unique_id", "+".join(roles.named("time")) or "ds"
    return _ungrouped(
        names,
        list(series),
        targets,
        form="table",
        known=list(known),
        observed=list(observed),
        static=np.stack([v[0] for v in static]),
        times=times,
        unit=unit,
        columns=(*ids, *targets),
        covariates=replace(covariates, categories=categories),
    )


def _find_target(data: Any, covariates: Covariates) -> str:
    """The column to forecast: `y`, or what the reader of files would forecast."""
    from ..data.readers.layout import Layout
    from ..data.readers.table_sources import OpenTable, TableSource
    from ..data.readers.tables import prepare

    if "y" in input_conversion.column_names(data):
        return "y"
    layout = Layout(task="forecasting", ignore=(*covariates.known, *covariates.observed), static=covariates.static)
    with advice_for_tables():
        _, roles, _ = prepare(OpenTable(TableSource(data), "table"), layout, strict=True)
    return roles.named("target")[0]


def read_table(
    data: Any, columns: tuple[str, ...], covariates: Covariates, tell: bool = False, **roles: Any
) -> tuple[list[np.ndarray], list[str], list[np.ndarray] | None, str, Any, dict[str, tuple[str, ...]]]:
    """Columns of a long table as (T, columns) per series, text as codes.

    With `tell`, odd values are warned of. **Returns** them, the names of the series, their times, the unit, the roles,
    and the categories of text columns.
    """
    from ..data import from_table

    known = {name: values for name, values in covariates.categories.items() if name in columns}
    given: dict[str, Any] = {"features": columns, "unlabelled": True, "form": "long", **roles}
    given |= {"categories": known} if known else {}
    with double_precision(), advice_for_tables():
        found = from_table(data, **given)
        if tell:
            warn_of_odd_values(found.notes)
        categories = {name: tuple(found.categories[name]) for name in columns if name in found.categories}
        values = [codes(np.asarray(x, dtype=np.float64), columns, categories) for x in found.inputs]
    names = [found.name(k) for k in range(len(found))]
    times = None if found.times is None else [np.asarray(t) for t in found.times]
    return values, names, times, _time_unit(found.roles), found.roles, categories


def _time_unit(roles: Any) -> str:
    """The unit of the time column: "date", "seconds" or "whole"."""
    types = [column.type for column in roles.columns if column.role == "time"]
    if len(types) > 1 or any(name.startswith("date") for name in types):
        return "date"
    return "seconds" if types == ["number"] else "whole"
