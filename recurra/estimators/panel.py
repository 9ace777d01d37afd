"""Converts the data of a forecaster (a series, several, a long table) to one panel of series with covariates."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def __len__(self) -> int:
        return len(self.ids)

    def cut(self, start: int | None, stop: int | None) -> "Panel":
        """The steps `start` to `stop` of every series."""
        piece = slice(start, stop)
        times = None if self.times is None else [t[piece] for t in self.times]
        y, known = [y[piece] for y in self.y], [x[piece] for x in self.known]
        return Panel(self.ids, y, known, self.static, times, self.unit, self.form)


def to_panel(data: Any, known: Sequence[str] = (), static: Sequence[str] = ()) -> Panel:
    """A panel from a series (T,), an array (n, T), a list of series, or a long table with these columns."""
    if isinstance(data, Panel):
        return data
    data = input_conversion.arrow(data)
    if input_conversion.column_names(data):
        return _from_table(data, tuple(known), tuple(static))
    if known or static:
        raise InputError("data", type(data).__name__, f"a table with the columns {', '.join((*known, *static))}")
    one = np.ndim(data) == 1 if not input_conversion.is_ragged(data) else False
    y = [x[:, 0] for x in _univariate([data] if one else data)]
    empty = [np.zeros((len(x), 0)) for x in y]
    return Panel([str(k) for k in range(len(y))], y, empty, np.zeros((len(y), 0)), form="one" if one else "series")


def _univariate(data: Any) -> list[np.ndarray]:
    found = input_conversion.arrays(data)
    for k, x in enumerate(found):
        if x.shape[1] != 1:
            raise ShapeError(f"data[{k}]", f"{x.shape[1]} features per step", "one feature: a series (T,)")
    return found


def _from_table(data: Any, known: tuple[str, ...], static: tuple[str, ...]) -> Panel:
    columns = ("y", *known, *static)
    values, names, times, unit = _read_table(data, columns)
    y = [v[:, 0] for v in values]
    last = 1 + len(known)
    for name, v in zip(names, values, strict=True):
        for column, constant in zip(static, (v[:, last:] == v[:1, last:]).all(axis=0), strict=True):
            if not constant:
                raise InputError(f"column {column!r}", f"values that change within {name!r}", "one value per series")
    rows = np.stack([v[0, last:] for v in values])
    return Panel(names, y, [v[:, 1:last] for v in values], rows, times, unit, form="table")


def known_future(data: Any, of: Panel, columns: Sequence[str], steps: int) -> list[np.ndarray]:
    """The future covariates (steps, F) of every series, in the order of the panel."""
    if not columns:
        return [np.zeros((steps, 0)) for _ in of.ids]
    if data is None:
        raise InputError("future", "nothing", f"a table of {', '.join(columns)} for the {steps} steps to forecast")
    values, names, times, _ = _read_table(input_conversion.arrow(data), tuple(columns))
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
    data: Any, columns: tuple[str, ...]
) -> tuple[list[np.ndarray], list[str], list[np.ndarray] | None, str]:
    """Columns of a long table as (T, columns) per series; the names of the series, their times, and the time unit."""
    from ..data import from_table

    found = from_table(data, task="transduction", features=columns, target=columns[0])
    values = [np.asarray(x, dtype=np.float64) for x in found.inputs]
    names = [found.name(k) for k in range(len(found))]
    if found.times is None:
        return values, names, None, "whole"
    return values, names, [np.asarray(t) for t in found.times], _time_unit(data)


def _time_unit(data: Any) -> str:
    """The unit of the time column, which the reader finds by its name or its type."""
    import pyarrow as pa

    from ..data.readers.layout import TIME_NAMES
    from ..data.readers.table_scan import is_dated

    schema = data.schema if isinstance(data, pa.Table) else pa.table(data).schema
    kinds = {name.lower(): schema.field(name).type for name in schema.names}
    kind = next((kinds[name] for name in TIME_NAMES if name in kinds), None)
    if kind is None or is_dated(kind):
        return "date"
    return "seconds" if pa.types.is_floating(kind) else "whole"


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
