"""Forecasts in the form of the data: arrays, series, or a table with one column for every target."""

from typing import Any

import numpy as np

from .forecast_frames import in_library, series_in_library, with_dates_as_index
from .panel import Panel
from .panel_future import format_times, times_after

POINT = ""  # the name of a point forecast, whose column has the name of its target


def answer(given: Panel, columns: dict[str, np.ndarray]) -> Any:
    """Values (n, h) by name: a table if the data was one, else an array of the first, see `as_array`."""
    if given.form == "table":
        return _table(given, columns)
    return as_array(given, next(iter(columns.values())))


def as_array(given: Panel, values: np.ndarray) -> Any:
    """Values (n, h, …) of series without dates: (h, …) of one, else (n, h, …); of several targets (n, h, targets, …).

    The forecast (h,) of one series of pandas or polars is a series of that library.
    """
    count = len(given.targets)
    if count > 1:
        return np.moveaxis(values.reshape(-1, count, *values.shape[1:]), 1, 2)
    if given.form != "one":
        return values
    return series_in_library(values[0], given.library) if values.ndim == 2 else values[0]


def _table(given: Panel, columns: dict[str, np.ndarray]) -> Any:
    import pyarrow as pa

    id, time, *targets = given.columns
    steps, count = next(iter(columns.values())).shape[1], len(targets)
    table: dict[str, Any] = {id: np.repeat(np.asarray(given.groups, dtype=object), steps)}
    if given.times is not None:
        ahead = [format_times(times_after(t, steps, given.unit), given.unit) for t in given.times[::count]]
        table[time] = np.concatenate(ahead)
    for k, target in enumerate(targets):
        for name, values in columns.items():
            table[_column_name(target, name, count)] = values[k::count].ravel()
    found = in_library(pa.table(table), given.library)
    return with_dates_as_index(found, given.indexed, id, time, given.zone) if given.indexed else found


def _column_name(target: str, name: str, targets: int) -> str:
    if name == POINT:
        return target
    return name if targets == 1 else f"{target} {name}"
