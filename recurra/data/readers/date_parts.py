"""Several columns that together are one date: year and month, year and day of the year, a date and an hour.

A month may be a name, a quarter Q1.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .column_kinds import is_text, kind_of
from .column_roles import first_named
from .dates import MONTH_NUMBERS
from .table_scan import strings

DATE = pa.timestamp("us")
#: part of a date → names of its column, in lower case
NAMES: dict[str, tuple[str, ...]] = {
    "year": ("year", "yr", "yyyy"),
    "month": ("month", "mon", "mo", "mm"),
    "day": ("day", "dd"),
    "quarter": ("quarter", "qtr"),
    "week": ("week", "wk"),
    "day of year": ("doy", "dayofyear", "day_of_year", "yday", "julian"),
    "date": ("date", "dteday", "ds"),
    "time": ("time",),
    "hour": ("hour", "hr", "hh"),
}
#: parts that together are a date; the longest come first
COMBINATIONS = (
    ("year", "month", "day", "hour"),
    ("year", "month", "day"),
    ("year", "month"),
    ("year", "quarter"),
    ("year", "week"),
    ("year", "day of year"),
    ("date", "time"),
    ("date", "hour"),
)
LIMITS = {
    "month": (1, 12),
    "quarter": (1, 4),
    "week": (1, 53),
    "day of year": (1, 366),
    "day": (1, 31),
    "hour": (0, 24),
}
QUARTER = re.compile(r"\s*(?:[Qq]([1-4])|([1-4])[Qq])\s*")


def find_date_parts(table: pa.Table, free: Sequence[str]) -> list[str]:
    """The columns among `free` that together are a date, or none."""
    for parts in COMBINATIONS:
        found = [first_named(NAMES[part], free) for part in parts]
        names = [name for name in found if name is not None]
        if len(names) == len(parts) and all(_can_be(table, *pair) for pair in zip(names, parts, strict=True)):
            return names
    return []


def combine_parts(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.Array:
    """The dates of several columns; null where a part is missing or impossible, such as month 13."""
    if kind_of(columns[1].type) == "clock":
        clock = pc.cast(pc.cast(columns[1], pa.time64("us")), pa.int64()).to_numpy(zero_copy_only=False)
        return pa.array(_days(columns[0]) + clock.astype("timedelta64[us]"), DATE)
    units = [_part(name, position) for position, name in enumerate(names)]
    parts = {unit: _numbers(column, unit) for unit, column in zip(units, columns, strict=True) if unit != "date"}
    known = np.logical_and.reduce([_is_possible(values, unit) for unit, values in parts.items()])
    whole = {unit: np.where(known, values, 1).astype(np.int64) for unit, values in parts.items()}
    moments = _days(columns[0]) if "date" in units else _start(whole)
    moments = moments + whole.get("hour", np.zeros(1, np.int64)) * np.timedelta64(3600, "s")
    if "month" in whole and "day" in whole:  # 31 February is none
        known &= (moments - np.timedelta64(1, "s") * 3600 * whole.get("hour", 0)).astype("datetime64[M]").astype(
            np.int64
        ) == _months(whole)
    return pa.array(np.where(known, moments.astype("datetime64[us]"), np.datetime64("NaT")), DATE)


def _can_be(table: pa.Table, name: str, part: str) -> bool:
    """Whether a column has values of this part of a date."""
    kind = table.schema.field(name).type
    if part == "date":
        return kind_of(kind) == "time"
    if part == "time":
        return kind_of(kind) == "clock"
    if is_text(kind):
        texts = [text for text in strings(table.column(name).combine_chunks()).unique().to_pylist() if text is not None]
        return part in ("month", "quarter") and bool(texts) and all(_number(text, part) for text in texts)
    return kind_of(kind) == "number"


def _part(name: str, position: int) -> str:
    """The part that a column is, by its name, otherwise by its place."""
    lowered = name.strip().lower()
    for part, names in NAMES.items():
        if lowered in names:
            return part
    for part in ("year", "month", "quarter", "week", "hour", "day"):
        if part[:3] in lowered:
            return part
    return ("year", "month", "day", "hour")[min(position, 3)]


def _numbers(column: pa.Array, part: str) -> np.ndarray:
    if is_text(column.type):
        texts = strings(column).to_pylist()
        return np.array([np.nan if text is None else _number(text, part) or np.nan for text in texts], float)
    return pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)


def _number(text: str, part: str) -> int:
    """The number of a month or quarter that is written as text; 0 for other text."""
    if part == "month":
        return MONTH_NUMBERS.get(text.strip().rstrip(".").lower(), 0)
    found = QUARTER.fullmatch(text)
    return int(found[1] or found[2]) if found else 0


def _is_possible(values: np.ndarray, part: str) -> np.ndarray:
    least, most = LIMITS.get(part, (1, 9999))
    with np.errstate(invalid="ignore"):
        return (values >= least) & (values <= most) & (values == np.round(values))


def _days(column: pa.Array) -> np.ndarray:
    return pc.cast(column, DATE).to_numpy(zero_copy_only=False).astype("datetime64[us]")


def _months(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Months since January 1970."""
    month = parts.get("month", 3 * parts["quarter"] - 2 if "quarter" in parts else np.ones(1, np.int64))
    return 12 * (parts["year"] - 1970) + month - 1


def _start(parts: dict[str, np.ndarray]) -> np.ndarray:
    """The day of year and month, quarter, week or day of the year."""
    first = _months(parts).astype("datetime64[M]").astype("datetime64[D]")
    if "week" in parts:  # week 1 has 4 January; weeks begin on Monday
        fourth = first + 3
        monday = fourth - (fourth.astype(np.int64) + 3) % 7
        return (monday + 7 * (parts["week"] - 1)).astype("datetime64[us]")
    return (first + parts.get("day", parts.get("day of year", np.ones(1, np.int64))) - 1).astype("datetime64[us]")
