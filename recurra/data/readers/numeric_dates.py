"""Dates written as one number: 19580329, seconds or milliseconds since 1970, and years such as 1949.0833."""

import numpy as np

from .dates import find_date_format

#: seconds since 1970 of times between 1980 and 2100
SECONDS = (315_532_800, 4_102_444_800)
#: unit → how many microseconds it has
SINCE_1970 = {"seconds": 10**6, "milliseconds": 10**3, "microseconds": 1}
YEARS = (1500, 2200)
EXACT = 0.01  # of a month: how far a year such as 1949.083 may be from the start of a month


def find_numeric_dates(values: np.ndarray) -> tuple[str, np.ndarray] | None:
    """How the numbers are dates, and the microseconds since 1970; None if they are not all dates."""
    if not len(values):
        return None
    if np.issubdtype(values.dtype, np.integer):
        return _digits(values) or _since_1970(values)
    return _decimal_years(values)


def _digits(values: np.ndarray) -> tuple[str, np.ndarray] | None:
    if values.min() < 10_000 * YEARS[0] + 101 or values.max() > 10_000 * YEARS[1] - 10_000 + 1231:
        return None
    distinct, places = np.unique(values, return_inverse=True)
    found = find_date_format([str(value) for value in distinct.tolist()])
    return None if found is None else (found[0], found[1][places])


def _since_1970(values: np.ndarray) -> tuple[str, np.ndarray] | None:
    for unit, size in SINCE_1970.items():
        least, most = (bound * 10**6 // size for bound in SECONDS)
        if values.min() >= least and values.max() < most:
            return f"{unit} since 1970", values.astype(np.int64) * size
    return None


def _decimal_years(values: np.ndarray) -> tuple[str, np.ndarray] | None:
    """Years in steps of months or quarters, as R writes the times of a series: 1949, 1949.0833, 1949.1667."""
    if not np.isfinite(values).all() or values.min() < YEARS[0] or values.max() >= YEARS[1]:
        return None
    months = np.round(12 * values)
    if np.abs(12 * values - months).max() > EXACT or not (months % 12).any():  # whole years stay numbers
        return None
    started = (months.astype(np.int64) - 12 * 1970).astype("datetime64[M]")
    return "years with decimals", started.astype("datetime64[us]").astype(np.int64)
