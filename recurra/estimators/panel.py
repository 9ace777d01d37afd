"""Converts the data of a forecaster (a series, several, a long table) to one panel of series with covariates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..data.precision import double_precision
from ..data.readers.frequency import CALENDARS, FrequencyDetector, times_at
from ..errors import InputError, ShapeError
from . import input_conversion


@dataclass
class Panel:
    """n series. Times are integers: microseconds if `unit` is "date" or "seconds", otherwise as in the table."""

    ids: list[str]
    y: list[np.ndarray]  # (T,)
    known: list[np.ndarray]  # (T, F): covariates whose future is known
    static: np.ndarray  # (n, S)
    times: list[np.ndarray] | None = None  # (T,) int64
    unit: str = "whole"
    form: str = "series"  # "one" series, "series" or "table": predictions are returned in this form
    columns: tuple[str, str, str] = ("unique_id", "ds", "y")  # names of id, time and target in a table
    library: str = "arrow"  # of a table: "pandas", "polars" or "arrow"

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int | None, stop: int | None) -> "Panel":
        """The steps `start` to `stop` of every series."""
        piece = slice(start, stop)
        times = None if self.times is None else [t[piece] for t in self.times]
        y, known = [y[piece] for y in self.y], [x[piece] for x in self.known]
        return replace(self, y=y, known=known, times=times)


def to_panel(data: Any, known: Sequence[str] = (), static: Sequence[str] = (), target: str | None = None) -> Panel:
    """A panel from a series (T,), an array (n, T), a list of series, or a long table with these columns.

    The id, the time and the target of a table are inferred as for a file; `target` may be named.
    """
    if isinstance(data, Panel):
        return data
    library = library_of(data)
    data = input_conversion.arrow(_dated_series(data))
    if input_conversion.column_names(data):
        return replace(_from_table(data, tuple(known), tuple(static), target), library=library)
    if known or static:
        raise InputError("data", type(data).__name__, f"a table with the columns {', '.join((*known, *static))}")
    one = np.ndim(data) == 1 if not input_conversion.is_ragged(data) else False
    y = [x[:, 0] for x in _univariate([data] if one else data)]
    empty = [np.zeros((len(x), 0)) for x in y]
    return Panel([str(k) for k in range(len(y))], y, empty, np.zeros((len(y), 0)), form="one" if one else "series")


def library_of(data: Any) -> str:
    """ "pandas", "polars" or "arrow": the library of a dataframe, in which predictions are returned."""
    found = type(data).__module__.split(".")[0]
    return found if found in ("pandas", "polars") else "arrow"


def in_library(table: Any, library: str) -> Any:
    """An Arrow table as a dataframe of the library."""
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def _dated_series(data: Any) -> Any:
    """A series of pandas with dates as its index as a table `ds, y`; other series as arrays; otherwise `data`."""
    index = getattr(data, "index", None)
    if library_of(data) == "pandas" and not input_conversion.column_names(data) and hasattr(index, "to_timestamp"):
        data = data.copy()
        data.index = index.to_timestamp()  # periods
    values = input_conversion.to_values(data)
    if values is data or library_of(data) != "pandas" or getattr(data.index.dtype, "kind", "") != "M":
        return values
    times = data.index.tz_convert(None) if data.index.tz is not None else data.index
    return {"ds": times.to_numpy().astype("datetime64[us]"), "y": values}


def _univariate(data: Any) -> list[np.ndarray]:
    found = input_conversion.arrays(data)
    for k, x in enumerate(found):
        if x.shape[1] != 1:
            raise ShapeError(f"data[{k}]", f"{x.shape[1]} features per step", "one feature: a series (T,)")
    return found


def _from_table(data: Any, known: tuple[str, ...], static: tuple[str, ...], target: str | None) -> Panel:
    target = target or _find_target(data, known, static)
    values, names, times, unit, roles = _read_table(data, (target, *known, *static))
    y = [v[:, 0] for v in values]
    last = 1 + len(known)
    for name, v in zip(names, values, strict=True):
        for column, constant in zip(static, (v[:, last:] == v[:1, last:]).all(axis=0), strict=True):
            if not constant:
                raise InputError(f"column {column!r}", f"values that change within {name!r}", "one value per series")
    rows = np.stack([v[0, last:] for v in values])
    panel = Panel(names, y, [v[:, 1:last] for v in values], rows, times, unit, form="table")
    return replace(panel, columns=(roles.one("id") or "unique_id", "+".join(roles.named("time")) or "ds", target))


def _find_target(data: Any, known: tuple[str, ...], static: tuple[str, ...]) -> str:
    """The column to forecast: `y`, or what the reader of files would forecast."""
    from ..data.readers.layout import Layout
    from ..data.readers.table_sources import OpenTable, TableSource
    from ..data.readers.tables import prepare

    if "y" in input_conversion.column_names(data):
        return "y"
    layout = Layout(task="forecasting", ignore=known, static=static)
    _, roles, _ = prepare(OpenTable(TableSource(data), "table"), layout, strict=True)
    return roles.named("target")[0]


def known_future(data: Any, of: Panel, columns: Sequence[str], steps: int) -> list[np.ndarray]:
    """The future covariates (steps, F) of every series, in the order of the panel."""
    if not columns:
        return [np.zeros((steps, 0)) for _ in of.ids]
    if data is None:
        raise InputError("future", "nothing", f"a table of {', '.join(columns)} for the {steps} steps to forecast")
    data = input_conversion.arrow(data)
    present = input_conversion.column_names(data)
    roles = {role: name for role, name in zip(("id", "time"), of.columns, strict=False) if name in present}
    values, names, times, _, _ = _read_table(data, tuple(columns), **roles)
    rows = dict(zip(names, values, strict=True))
    when = dict(zip(names, times or [None] * len(names), strict=True))
    return [_next_rows(of, k, rows.get(name), when.get(name), steps) for k, name in enumerate(of.ids)]


def _next_rows(of: Panel, k: int, rows: np.ndarray | None, times: np.ndarray | None, steps: int) -> np.ndarray:
    """(steps, F): the future rows of a series; their times must follow it."""
    name = of.ids[k]
    count = 0 if rows is None else len(rows)
    if rows is None or count < steps:
        raise ShapeError("future", f"{count} rows of {name!r}", f"{steps}, one for each step to forecast")
    if times is None or of.times is None:
        return rows[:steps]
    expected = times_after(of.times[k], steps, of.unit)
    first = int(np.searchsorted(times, expected[0]))
    if not np.array_equal(times[first : first + steps], expected):
        found, wanted, last = (format_times(np.asarray(t), of.unit) for t in (times[0], expected[0], of.times[k][-1]))
        raise InputError("future", f"rows of {name!r} from {found} on", f"{steps} rows from {wanted} on, after {last}")
    return rows[first : first + steps]


def _read_table(
    data: Any, columns: tuple[str, ...], **roles: Any
) -> tuple[list[np.ndarray], list[str], list[np.ndarray] | None, str, Any]:
    """Columns of a long table as (T, columns) per series; the names of the series, their times, the unit, the roles."""
    from ..data import from_table

    with double_precision():
        found = from_table(data, task="transduction", features=columns, target=columns[0], **roles)
        values = [np.asarray(x, dtype=np.float64) for x in found.inputs]
    if len(found.features) != len(columns):
        texts = ", ".join(found.categories)
        raise InputError(
            "data", f"text in the columns {texts}", "numbers; `recurra fit` and rc.infer_problem take text"
        )
    names = [found.name(k) for k in range(len(found))]
    times = None if found.times is None else [np.asarray(t) for t in found.times]
    return values, names, times, _time_unit(found.roles), found.roles


def _time_unit(roles: Any) -> str:
    """The unit of the time column: "date", "seconds" or "whole"."""
    types = [column.type for column in roles.columns if column.role == "time"]
    if len(types) > 1 or any(name.startswith("date") for name in types):
        return "date"
    return "seconds" if types == ["number"] else "whole"


def format_times(times: np.ndarray, unit: str) -> np.ndarray:
    """Times in the type of the table."""
    if unit == "date":
        return times.astype("datetime64[us]")
    return times / 1e6 if unit == "seconds" else times


def times_after(times: np.ndarray, steps: int, unit: str) -> np.ndarray:
    """The next times of a series at the frequency of its past: fixed steps, months or business days."""
    detector = FrequencyDetector(unit == "date")
    detector.feed(times, np.ones(len(times) - 1, dtype=bool))
    if len(times) < 2 or not detector.steps:
        raise InputError("ds", f"{len(times)} times without a common step", "evenly spaced times")
    name, step = next(iter(detector.steps.items()))
    count, rest = CALENDARS[name](times)
    ahead = count[-1] + (step or 1) * np.arange(1, steps + 1)
    return times_at(name, ahead, int(rest[-1]))
