"""The future of a panel: times after its series, and the covariates that are known for them."""

from typing import Any

import numpy as np

from ..data.readers.frequency import CALENDARS, FrequencyDetector, allowed_jitter, times_at
from ..errors import InputError, ShapeError
from . import input_conversion
from .forecast_frames import library_of, with_dates_as_column
from .panel import Panel, read_table


def known_future(data: Any, of: Panel, steps: int) -> list[np.ndarray]:
    """The future covariates (steps, F) of every series, in the order of the panel."""
    columns, count = of.covariates.known, len(of.targets)
    if not columns:
        return [np.zeros((steps, 0)) for _ in of.ids]
    if data is None:
        raise InputError("future", "nothing", f"a table of {', '.join(columns)} for the {steps} steps to forecast")
    tell = library_of(data) != "arrow"
    data = input_conversion.arrow(with_dates_as_column(data)[0])
    present = input_conversion.column_names(data)
    named = zip(("id", "time"), of.columns, strict=False)
    roles = {role: name for role, name in named if name in present or set(name.split("+")) <= set(present)}
    values, names, times, *_ = read_table(data, columns, of.covariates, tell, **roles)
    rows = dict(zip(names, values, strict=True))
    when = dict(zip(names, times or [None] * len(names), strict=True))
    found = [_next_rows(of, k * count, name, rows.get(name), when.get(name), steps) for k, name in enumerate(of.groups)]
    return [x for x in found for _ in range(count)]


def _next_rows(
    of: Panel, k: int, name: str, rows: np.ndarray | None, times: np.ndarray | None, steps: int
) -> np.ndarray:
    """(steps, F): the future rows of a series; their times must follow it."""
    count = 0 if rows is None else len(rows)
    if rows is None or count < steps:
        raise ShapeError("future", f"{count} rows of {name!r}", f"{steps}, one for each step to forecast")
    if times is None or of.times is None:
        return rows[:steps]
    expected = times_after(of.times[k], steps, of.unit)
    step = int(expected[0] - of.times[k][-1])
    allowed = allowed_jitter(step, of.unit == "date", of.unit == "seconds")
    first = int(np.searchsorted(times, expected[0] - allowed))
    chosen = times[first : first + steps]
    if len(chosen) < steps or (np.abs(chosen - expected) > allowed).any():
        found, wanted, last = (_written(t, of.unit) for t in (times[0], expected[0], of.times[k][-1]))
        raise InputError("future", f"rows of {name!r} from {found} on", f"{steps} rows from {wanted} on, after {last}")
    return rows[first : first + steps]


def _written(time: np.integer, unit: str) -> str:
    """A time for a message: the date alone at midnight."""
    return str(format_times(np.asarray(time), unit)).replace("T", " ").removesuffix(".000000").removesuffix(" 00:00:00")


def format_times(times: np.ndarray, unit: str) -> np.ndarray:
    """Times in the type of the table."""
    if unit == "date":
        return times.astype("datetime64[us]")
    return times / 1e6 if unit == "seconds" else times


def times_after(times: np.ndarray, steps: int, unit: str) -> np.ndarray:
    """The next times of a series at the frequency of its past: fixed steps, months or business days."""
    detector = FrequencyDetector(unit == "date", unit == "seconds")
    detector.feed(times, np.ones(len(times) - 1, dtype=bool))
    if len(times) < 2 or not detector.steps:
        raise InputError("ds", f"{len(times)} times without a common step", "evenly spaced times")
    name, step = next(iter(detector.steps.items()))
    count, rest = CALENDARS[name](times)
    ahead = count[-1] + (step or 1) * np.arange(1, steps + 1)
    return times_at(name, ahead, int(rest[-1]))
