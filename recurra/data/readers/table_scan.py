"""One pass over a long table: finds where sequences begin, collects labels, raises on the first error."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..data_errors import FormatError, MissingValueError, TimestampError, UnseenLabelError
from .column_kinds import kind_of
from .frequency import FrequencyDetector, median
from .layout import Layout

Place = Callable[[int], int]  # row of the table → line of the file


@dataclass
class TableScan:
    """The state of the scan, updated batch by batch."""

    layout: Layout
    file: str | Path
    place: Place
    rows: int = 0
    starts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)  # of the first row of every sequence
    distinct: set[str] = field(default_factory=set)
    constant: bool = True
    categories: dict[str, set[str]] = field(default_factory=dict)  # of the inputs that are texts
    _seen: set[str] = field(default_factory=set)
    _cadence: FrequencyDetector | None = None
    _last_time: int | None = None
    _last_label: str | None = None

    def feed(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        self._check_gaps(batch)
        begins = self._split(batch)  # (rows,) bool: whether a sequence begins here
        if self.layout.time_column:
            self._check_times(batch.column(self.layout.time_column), begins)
        if self.layout.label:
            self._collect_labels(batch.column(self.layout.label), begins)
        self._collect_categories(batch)
        self.rows += batch.num_rows

    def _collect_categories(self, batch: pa.RecordBatch) -> None:
        for name in self.layout.features or () if self.layout.categories is None else ():
            if kind_of(batch.schema.field(name).type) == "text":
                self.categories.setdefault(name, set()).update(strings(batch.column(name)).unique().to_pylist())

    def _check_gaps(self, batch: pa.RecordBatch) -> None:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            gap = column.is_null(nan_is_null=pa.types.is_floating(column.type))
            position = pc.index(gap, True).as_py()
            if position >= 0:
                policy = (
                    'a value; use missing="drop" or fill="forward"' if self.layout.missing == "error" else "a value"
                )
                raise MissingValueError(self.file, "nothing", policy, self.place(self.rows + position), name)
            if (
                pa.types.is_floating(column.type)
                and (position := pc.index(pc.call_function("is_inf", [column]), True).as_py()) >= 0
            ):
                value = str(column[position].as_py())
                raise FormatError(self.file, value, "a finite number", self.place(self.rows + position), name)

    def _split(self, batch: pa.RecordBatch) -> np.ndarray:
        begins = np.zeros(batch.num_rows, dtype=bool)
        if self.layout.id is None:
            begins[0] = self.rows == 0
            self.starts += [0] if self.rows == 0 else []
            return begins
        column = strings(batch.column(self.layout.id)).dictionary_encode()
        codes, names = column.indices.to_numpy(), column.dictionary.to_pylist()
        begins[1:] = codes[1:] != codes[:-1]
        begins[0] = not self.names or names[codes[0]] != self.names[-1]
        for position in np.flatnonzero(begins).tolist():
            self._begin(names[codes[position]], self.rows + position)
        return begins

    def _begin(self, name: str, row: int) -> None:
        if name in self._seen:
            got, expected = f"rows for {name!r} that are not contiguous", "contiguous rows; use sort=True"
            raise FormatError(self.file, got, expected, self.place(row), self.layout.id)
        self._seen.add(name)
        self.names.append(name)
        self.starts.append(row)

    def _check_times(self, column: pa.Array, begins: np.ndarray) -> None:
        times, within = timestamps(column), ~begins[1:]
        first = self.rows  # row of times[0]
        if self._last_time is not None:
            times, within, first = np.append(self._last_time, times), ~begins, first - 1
        self._last_time = int(times[-1])
        backwards = np.flatnonzero(within & (np.diff(times) <= 0))
        if len(backwards):
            self._raise_order_error(column, times, int(backwards[0]), first)
        if not self.layout.irregular:
            seconds = pa.types.is_floating(column.type)
            self._cadence = self._cadence or FrequencyDetector(is_dated(column.type), seconds)
            broken = self._cadence.feed(times, within)
            if broken is not None:
                self._raise_step_error(column, times, broken, first, within)

    def _raise_order_error(self, column: pa.Array, times: np.ndarray, pair: int, first: int) -> None:
        line, name = self.place(first + pair + 1), self.layout.time_column
        before, after = (format_time(time, column.type) for time in times[pair : pair + 2])
        if before == after:
            raise TimestampError(self.file, f"{after} twice in a sequence", "one row per time", line, name)
        raise TimestampError(self.file, f"{after} after {before}", "rows in time order; use sort=True", line, name)

    def _raise_step_error(self, column: pa.Array, times: np.ndarray, pair: int, first: int, within: np.ndarray) -> None:
        line, steps = self.place(first + pair + 1), np.diff(times)
        step, usual = (format_duration(int(each), column.type) for each in (steps[pair], median(steps[within])))
        got = f"a step of {step} among steps of {usual}"
        expected = 'evenly spaced steps; fill gaps with fill="forward" or fill="interpolate"; use irregular=True'
        raise TimestampError(self.file, got, expected, line, self.layout.time_column)

    def _collect_labels(self, column: pa.Array, begins: np.ndarray) -> None:
        encoded = strings(column).dictionary_encode()
        codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        self._check_known(codes, names)
        self.distinct.update(names)
        self.labels += [names[code] for code in codes[begins].tolist()]
        changes = (codes[1:] != codes[:-1]) & ~begins[1:]
        carried = not begins[0] and names[codes[0]] != self._last_label
        self.constant = self.constant and not changes.any() and not carried
        self._last_label = names[codes[-1]]

    def _check_known(self, codes: np.ndarray, names: list[str]) -> None:
        known = self.layout.classes
        for code, name in enumerate(names):
            if known is not None and name not in known:
                row = self.rows + int(np.flatnonzero(codes == code)[0])
                raise UnseenLabelError.among(self.file, name, known, self.place(row), self.layout.label)


def strings(column: pa.Array) -> pa.Array:
    """A column as strings; dictionaries are decoded."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def index_in(column: pa.Array, values: pa.Array) -> pa.Array:
    """The position of every element among `values`, or null."""
    return pc.call_function("index_in", [column], pc.SetLookupOptions(value_set=values))


def timestamps(column: pa.Array) -> np.ndarray:
    """Timestamps as int64: microseconds, or the values themselves if they are integers."""
    if pa.types.is_floating(column.type):
        return np.round(column.to_numpy(zero_copy_only=False) * 1e6).astype(np.int64)
    if is_dated(column.type):
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        column = pc.cast(column, pa.timestamp("us", zone), safe=False)
    return pc.cast(column, pa.int64()).to_numpy(zero_copy_only=False)


def is_dated(kind: pa.DataType) -> bool:
    return pa.types.is_timestamp(kind) or pa.types.is_date(kind)


def format_time(time: int, kind: pa.DataType) -> str:
    if is_dated(kind):
        return str(np.datetime64(int(time), "us").astype("datetime64[s]")).removesuffix("T00:00:00")
    return str(time / 1e6 if pa.types.is_floating(kind) else time)


def format_duration(step: int, kind: pa.DataType) -> str:
    if is_dated(kind):
        return str(np.timedelta64(step, "us").item()).removesuffix(", 0:00:00")
    return str(step / 1e6 if pa.types.is_floating(kind) else step)
