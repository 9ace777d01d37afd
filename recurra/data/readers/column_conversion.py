"""Converts columns of text to numbers and dates, and several columns (year, month) to one date.

A conversion is found on the values of a table, or on the first rows of one that stays on disk, and is then applied
wherever rows are read.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import time
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...numerals import is_number
from ..data_errors import FormatError, TimestampError
from .column_kinds import NOTE, is_text
from .column_roles import first_named
from .date_parts import DATE, combine_parts
from .dates import LOCAL_DAYS, AmbiguousDate, are_local_days, find_date_format, is_date
from .layout import ID_HINTS, LABEL_NAMES, TEXT_NAMES, TIME_HINTS, TIME_NAMES, Layout, names_sequences
from .numbers_in_text import find_notation
from .numeric_dates import find_numeric_dates
from .table_scan import index_in, strings, timestamps
from .table_sources import OpenTable, Source, TableSource

SAMPLE_ROWS = 1 << 16  # rows of a table on disk that decide its conversions and roles
FEW = 20  # values that are tried before all are
ROWS_PER_CATEGORY = 3  # rows per value, on average, from which whole numbers written as text are categories
CLOCK_WITH_POINTS = re.compile(r"\s*([01]?\d|2[0-3])\.[0-5]\d\.[0-5]\d\s*")
LEADING_ZERO, WHOLE = re.compile(r"[+-]?0\d"), re.compile(r"[+-]?\d{1,18}")
DATE_EXAMPLES = "a date such as 2024-01-31, 2024-01, 31.01.2024, Jan 2024 or 2024 Q1"


@dataclass(frozen=True)
class Conversion:
    """A column computed from others: its name, those it reads, and how its text is written."""

    name: str
    inputs: tuple[str, ...]
    type: pa.DataType
    note: str
    apply: Callable[[list[pa.Array]], pa.Array]

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, metadata={NOTE: self.note.encode()} if self.note else None)


class UnlikeSample(Exception):
    """A value that the first rows of a table do not explain: its row in a batch, and a value that they have."""

    def __init__(self, row: int, value: object, like: object):
        self.row, self.value, self.like = row, value, like
        super().__init__(row, value, like)


class ConvertedSource:
    """A table on disk whose converted columns are computed when rows are read."""

    def __init__(self, source: Source, conversions: Sequence[Conversion], opened: OpenTable):
        self.source, self.rows = source, source.rows
        self.file, self.place = opened.file, opened.place
        self.window_rows = getattr(source, "window_rows", None)
        self.conversions = {each.name: each for each in conversions}
        kept = [self.conversions[item.name].field if item.name in self.conversions else item for item in source.schema]
        new = [each.field for each in conversions if each.name not in source.schema.names]
        self.schema = pa.schema([*kept, *new])

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        start = 0
        for batch in self.source.scan(self._needed(columns)):
            yield from self._convert(pa.Table.from_batches([batch]), columns, start).to_batches()
            start += batch.num_rows

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        return self._convert(self.source.read(self._needed(columns), start, stop), columns, start)

    def _needed(self, columns: Sequence[str]) -> list[str]:
        needed = (self.conversions[name].inputs if name in self.conversions else (name,) for name in columns)
        return list(dict.fromkeys(name for names in needed for name in names))

    def _convert(self, table: pa.Table, columns: Sequence[str], start: int) -> pa.Table:
        found = []
        for name in columns:
            if name not in self.conversions:
                found.append(table.column(name))
                continue
            parts = [table.column(each).combine_chunks() for each in self.conversions[name].inputs]
            try:
                found.append(self.conversions[name].apply(parts))
            except UnlikeSample as error:
                line = self.place(start + error.row)
                expected = f"a value written like {error.like!r}"
                raise FormatError(self.file, repr(error.value), expected, line, name) from error
        return pa.table(found, schema=pa.schema([self.schema.field(name) for name in columns]))


def convert_columns(opened: OpenTable, given: Layout) -> Source:
    """The source with its texts of numbers and dates converted, in memory if it is in memory."""
    sample = sample_of(opened.source)
    found = [each for name in sample.column_names if (each := _conversion(sample, name, given, opened))]
    return converted(opened.source, found, opened) if found else opened.source


def sample_of(source: Source) -> pa.Table:
    """A table in memory; of one on disk the first rows."""
    rows = source.rows if _in_memory(source) else min(source.rows, SAMPLE_ROWS)
    return source.read(source.schema.names, 0, rows)


def combine_times(source: Source, names: tuple[str, ...], opened: OpenTable) -> Source:
    """The source with a column `year+month` from the columns year and month, or others of `date_parts.py`."""
    joined = Conversion("+".join(names), names, DATE, "", lambda parts: combine_parts(parts, names))
    return converted(source, [joined], opened)


def _in_memory(source: Source) -> bool:
    return isinstance(source, TableSource) and source.in_memory


def converted(source: Source, conversions: list[Conversion], opened: OpenTable) -> Source:
    """The source with computed columns, in memory if it is in memory."""
    changed = ConvertedSource(source, conversions, opened)
    return TableSource(changed.read(changed.schema.names, 0, changed.rows)) if _in_memory(source) else changed


def _conversion(table: pa.Table, name: str, given: Layout, opened: OpenTable) -> Conversion | None:
    kind, lowered = table.schema.field(name).type, name.strip().lower()
    is_time = name in given.time or (not given.time and _is_named_like_time(lowered, table.column_names))
    if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and is_time:
        return from_numbers(table, name)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _from_local_days(table, name, opened)
    is_time = is_time and len(given.time) < 2  # a part of a date, such as January, is none
    if not is_text(kind) or stays_text(name, given):
        return None
    values = [text for text in strings(table.column(name).combine_chunks()).unique().to_pylist() if text is not None]
    if not values:
        return None
    if (clocks := _clocks_with_points(values)) is not None:
        times = pa.array(clocks, pa.time64("us"))
        again = lambda more: None if (n := _clocks_with_points(more)) is None else ("", n)  # noqa: E731
        return Conversion(name, (name,), times.type, "", _mapping(values, times, again))
    if (found := _from_dates(table, name, values, given, opened, is_time)) is not None:
        return found
    again = partial(find_notation, delimiter=opened.delimiter, decimal=given.decimal)
    if again(values[:FEW]) and (notation := again(values)) is not None:
        results = pa.array(notation[1])
        return Conversion(name, (name,), pa.float64(), notation[0], _mapping(values, results, again))
    if (numbers := _plain_numbers(values)) is not None:
        if is_time or not _are_categories(table, name, numbers):
            found = pa.array(numbers)
            again = lambda more: None if (n := _plain_numbers(more)) is None else ("", n)  # noqa: E731
            return Conversion(name, (name,), found.type, "written as text", _mapping(values, found, again))
        return None
    refuse_stray_text(table, name, given, opened)
    return None


def _clocks_with_points(values: list[str]) -> np.ndarray | None:
    """Times of day such as 18.00.00, which are no dates such as 18.01.10."""
    if not all(map(CLOCK_WITH_POINTS.fullmatch, values)) or find_date_format(values, "day-first") is not None:
        return None
    return np.array([time.fromisoformat(text.strip().replace(".", ":").zfill(8)) for text in values], dtype=object)


def _is_named_like_time(lowered: str, columns: Sequence[str]) -> bool:
    """Whether a column is named like a time; beside a date, T is a temperature."""
    if lowered in TIME_NAMES:
        return True
    return lowered in TIME_HINTS and first_named(TIME_NAMES, columns) is None


def stays_text(name: str, given: Layout) -> bool:
    """Whether a text is one by its role or its name: an id, a label, words, categories, or not used."""
    used = {*given.time, *(given.features or ()), *(given.target or ()), *given.static, *given.observed}
    if given.features is not None and given.time and name not in used:  # inputs and times are chosen, not this column
        return True
    kept = {given.id, given.label, *(given.target or () if given.task == "classification" else ())}
    kept |= set(given.categories or ()) | set(given.ignore)
    named_text = names_sequences(name) or name.strip().lower() in (*LABEL_NAMES, *TEXT_NAMES)
    return name in kept or (named_text and name not in (*given.time, *(given.target or ())))


def _plain_numbers(values: list[str]) -> np.ndarray | None:
    """Numbers without separators, as int64 if all are whole; None for other text and for codes such as 007."""
    if not all(map(is_number, values)) or any(LEADING_ZERO.match(text.strip()) for text in values):
        return None
    whole = all(WHOLE.fullmatch(text.strip()) for text in values)
    return np.array([int(text) for text in values]) if whole else np.array([float(text) for text in values])


def _are_categories(table: pa.Table, name: str, numbers: np.ndarray) -> bool:
    """Whether whole numbers written as text repeat, as codes do; amounts and counters mostly differ."""
    rows = table.num_rows - table.column(name).null_count
    return bool(np.issubdtype(numbers.dtype, np.integer)) and rows >= ROWS_PER_CATEGORY * len(numbers)


def _from_dates(
    table: pa.Table, name: str, values: list[str], given: Layout, opened: OpenTable, is_time: bool
) -> Conversion | None:
    try:
        found = find_date_format(values, given.dates) if is_date(values[0]) else None
    except AmbiguousDate as error:
        got = f"{error.text}, which is {' or '.join(error.readings)}"
        expected = 'dates with one reading; use dates="day-first" or dates="month-first"'
        line = _line_of(table, name, error.text, opened)
        raise TimestampError(opened.file, got, expected, line, name) from error
    if found is not None:
        times = pa.array(found[1].astype("datetime64[us]"), DATE)
        note = "" if found[0] in ("year-month-day", "ISO 8601") else found[0]
        again = partial(find_date_format, order=given.dates)
        return Conversion(name, (name,), DATE, note, _mapping(values, times, again))
    dates = sum(map(is_date, values))
    if (not is_time and 2 * dates <= len(values)) or all(map(is_number, values)):
        return None
    stray = next((text for text in values if not is_date(text)), None)
    if stray is None:  # all are dates, but not of one kind
        stray = next(text for text in values if find_date_format([values[0], text], "day-first") is None)
    expected = f"a date written like {values[0]!r}" if is_date(values[0]) else DATE_EXAMPLES
    raise TimestampError(opened.file, repr(stray), expected, _line_of(table, name, stray, opened), name)


def _from_local_days(table: pa.Table, name: str, opened: OpenTable) -> Conversion | None:
    """Days of a time zone whose clocks change, which have 23, 24 or 25 hours, as dates."""
    column = table.column(name).drop_null().combine_chunks()
    if not len(column):
        return None
    if column.type.tz != "UTC":
        local, apply = _clocks([column]), _clocks
    elif opened.as_written is not None and _in_memory(opened.source):  # pyarrow keeps no offsets
        found = find_date_format(opened.as_written([name]).column(name).drop_null().to_pylist())
        if found is None or len(found[1]) != len(column):
            return None
        local = pa.array(found[1].astype("datetime64[us]"), DATE)
        apply = _mapping(column.to_pylist(), local, lambda _: None)
    else:
        return None
    if not are_local_days(timestamps(column), timestamps(local)):
        return None
    return Conversion(name, (name,), DATE, LOCAL_DAYS, apply)


def _clocks(columns: list[pa.Array]) -> pa.Array:
    """What the clocks of its zone show at each time of a column."""
    return pc.call_function("local_timestamp", columns).cast(DATE)


def _line_of(table: pa.Table, name: str, text: str, opened: OpenTable) -> int:
    return opened.place(pc.index(strings(table.column(name).combine_chunks()), text).as_py())


def from_numbers(table: pa.Table, name: str) -> Conversion | None:
    """Numbers of a column of times that are dates: 19580329, seconds since 1970, or years such as 1949.0833."""
    column = table.column(name).drop_null().combine_chunks()
    found = find_numeric_dates(column.to_numpy(zero_copy_only=False))
    if found is None:
        return None
    again = lambda more: find_numeric_dates(np.array(more))  # noqa: E731
    note, times = found
    values = column.to_pylist()
    return Conversion(name, (name,), DATE, note, _mapping(values, pa.array(times).cast(DATE), again))


def _mapping(
    values: list, converted: pa.Array, again: Callable[[list], tuple[str, np.ndarray] | None]
) -> Callable[[list[pa.Array]], pa.Array]:
    """A function that replaces values by converted ones; values that the sample did not have are converted `again`."""

    def apply(columns: list[pa.Array]) -> pa.Array:
        column = strings(columns[0]) if is_text(columns[0].type) else columns[0]
        known, results = pa.array(values, column.type), converted
        missing = column.filter(index_in(column, known).is_null()).unique().drop_null()
        if len(missing):
            found = again([values[0], *missing.to_pylist()])
            if found is None:
                alone = (value for value in missing.to_pylist() if again([values[0], value]) is None)
                value = next(alone, missing[0].as_py())
                raise UnlikeSample(pc.index(column, value).as_py(), value, values[0])
            known = pa.concat_arrays([known, missing])
            results = pa.concat_arrays([converted, pa.array(found[1][1:]).cast(converted.type)])
        return results.take(index_in(column, known))

    return apply


def refuse_stray_text(table: pa.Table, name: str, given: Layout, opened: OpenTable) -> None:
    """Raise for text in a column that is mostly numbers; one bad value makes a reader take all as text."""
    column = strings(table.column(name).combine_chunks()).to_pylist()
    stray = [row for row, text in enumerate(column) if text is not None and not is_number(text)]
    if not stray or 2 * len(stray) > len(column) - table.column(name).null_count:
        return
    row, id = stray[0], given.id if given.id in table.column_names else first_named(ID_HINTS, table.column_names)
    where = f" in sequence {str(table.column(id)[row].as_py())!r}" if id is not None and id != name else ""
    advice = f"; if it means a missing value, say so with na={column[row]!r}"
    if name not in (given.target or ()):
        advice = f"; leave the column out with ignore={name!r}{advice}"
    expected = f"a number, as in most rows{advice}".replace("'", '"')
    raise FormatError(opened.file, f"{column[row]!r}{where}", expected, opened.place(row), name)
