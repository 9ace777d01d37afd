"""Dataframes and series of pandas and polars: dates in the index of the data, forecasts in its library."""

from typing import Any

import numpy as np

from . import input_conversion

INDEX_NAME = "ds"  # of dates in an index without a name


def library_of(data: Any) -> str:
    """ "pandas", "polars" or "arrow": the library of a dataframe, in which predictions are returned."""
    found = type(data).__module__.split(".")[0]
    return found if found in ("pandas", "polars") else "arrow"


def with_dates_as_column(data: Any) -> tuple[Any, str]:
    """The data with the dates of a pandas index as a column.

    **Returns** the data, and "series" or "table" if it had such an index. Other series of pandas and polars become
    arrays, other data stays.
    """
    if library_of(data) != "pandas" or not _is_dated(data.index):
        return input_conversion.to_values(data), ""
    index = (
        data.index.to_timestamp() if hasattr(data.index, "to_timestamp") and not _has_dates(data.index) else data.index
    )
    if getattr(index, "tz", None) is not None:
        index = index.tz_localize(None) if has_local_days(index) else index.tz_convert(None)
    times, name = index.to_numpy().astype("datetime64[us]"), str(data.index.name or INDEX_NAME)
    if not input_conversion.column_names(data):
        return {name: times, str(data.name or "y"): data.to_numpy()}, "series"
    frame = data.reset_index(drop=True)
    frame.insert(0, name, times)
    return frame, "table"


def has_local_days(index: Any) -> bool:
    """Whether dates with a zone are days there, which may have 23 or 25 hours."""
    from ..data.readers.dates import are_local_days

    utc, local = (each.to_numpy().astype("datetime64[us]").astype(np.int64) for each in _both(index))
    return are_local_days(utc, local)


def _both(index: Any) -> tuple[Any, Any]:
    return index.tz_convert(None), index.tz_localize(None)


def zone_of(data: Any) -> tuple[Any, bool] | None:
    """The time zone of the dates in a pandas index, and whether they are days of that zone."""
    if library_of(data) != "pandas" or getattr(data.index, "tz", None) is None:
        return None
    return data.index.tz, has_local_days(data.index)


def _has_dates(index: Any) -> bool:
    return getattr(index.dtype, "kind", "") == "M"


def _is_dated(index: Any) -> bool:
    """Whether an index has dates or periods."""
    return _has_dates(index) or type(index).__name__ == "PeriodIndex"


def in_library(table: Any, library: str) -> Any:
    """An Arrow table as a dataframe of the library."""
    if library == "pandas":
        return table.to_pandas()
    if library == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def with_dates_as_index(frame: Any, indexed: str, id: str, time: str, zone: tuple[Any, bool] | None = None) -> Any:
    """A dataframe of forecasts in the form of data with dates in its index, in the zone of these dates.

    Of a "series" the answer is a series, or a dataframe where there are several columns.
    """
    found = frame.set_index(time)
    if zone is not None:
        name, days = zone
        found.index = found.index.tz_localize(name) if days else found.index.tz_localize("UTC").tz_convert(name)
    found = found.drop(columns=id) if found[id].nunique() == 1 else found
    return found.iloc[:, 0] if indexed == "series" and found.shape[1] == 1 else found


def series_in_library(values: np.ndarray, library: str) -> Any:
    """The forecast (h,) of one series without dates, as a series of the library."""
    if library == "arrow":
        return values
    from importlib import import_module

    return import_module(library).Series(values)
