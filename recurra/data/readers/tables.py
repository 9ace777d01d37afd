"""Table → sequence set: one row per step (long format), or one row per sequence (list columns)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from ...errors import LengthsError
from ..data_errors import EmptyFileError, EncodingError, FormatError, TimestampError
from ..sequences import SequenceSet
from ..stores import Flat, Store
from .labels import Encoder, classes_of
from .layout import Layout
from .nested import from_nested
from .sort_and_fill import sort_and_fill
from .table_scan import Place, TableScan, strings, timestamps
from .table_sources import Source, TableSource

#: up to this many bytes, a table in memory is converted to one tensor at once
EAGER_BYTES = 256 << 20


def row_number(row: int) -> int:
    """The place of a row in a binary table: its number, counted from one."""
    return row + 1


def sequences_of(source: Source, layout: Layout, file: str | Path, place: Place = row_number) -> SequenceSet:
    """The sequences of a table whose columns have the roles in `layout`."""
    try:
        return _sequences(source, layout, file, place)
    except UnicodeDecodeError as error:
        raise EncodingError(file, f"byte 0x{error.object[error.start]:02x} in a string", "UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:  # an error of the system, such as a full disk
            raise
        raise FormatError(file, str(error).splitlines()[0], "a table of numbers, text and times") from error


def _sequences(source: Source, layout: Layout, file: str | Path, place: Place) -> SequenceSet:
    if not source.rows:
        raise EmptyFileError(file, "no rows", "a table with data")
    kinds = {field.name: kind_of(field.type) for field in source.schema}
    layout = layout.resolve(kinds, file)
    if any(kinds[name] in ("list", "text") for name in layout.features or ()):
        return from_nested(source, layout, kinds, file, place)
    columns = used_columns(layout)
    if layout.time and kinds[layout.time] == "text":
        _raise_bad_timestamp(source, layout.time, file, place)
    if layout.rewrites:
        table, rows = sort_and_fill(source.read(columns, 0, source.rows), layout, file)
        if not table.num_rows:
            raise EmptyFileError(file, "no row without a gap", "at least one complete row")
        before = place
        source, place = TableSource(table), lambda row: before(int(rows[row]))
    scan = TableScan(layout, file, place)
    for batch in source.scan(columns):
        scan.feed(batch)
    return _build_set(source, layout, scan, file)


def _raise_bad_timestamp(source: Source, column: str, file: str | Path, place: Place) -> None:
    """Raise for a text column of timestamps: name the first one that is not ISO 8601."""
    row = 0
    for batch in source.scan([column]):
        for text in strings(batch.column(0)).to_pylist():
            if text is not None and not _is_date(text):
                expected = "a timestamp like 2024-01-31 or 2024-01-31 18:00:00 (ISO 8601)"
                raise TimestampError(file, repr(text), expected, place(row), column)
            row += 1
    raise TimestampError(file, "timestamps of several kinds", "all dates, or all dates with times", column=column)


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def used_columns(layout: Layout) -> list[str]:
    """The columns with a role, each once."""
    single = (layout.id, layout.time, layout.label)
    return list(dict.fromkeys(c for c in (*single, *(layout.features or ()), *(layout.target or ())) if c is not None))


def kind_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "time"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "list"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind):
        return "text"
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return "number" if numeric or pa.types.is_decimal(kind) or pa.types.is_null(kind) else "another type"


@dataclass(frozen=True)
class NumericColumns:
    """Numeric columns of a long table as sequences (T, D), read on access."""

    source: Source
    columns: tuple[str, ...]
    offsets: Tensor  # (N + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.window(index, 0, int(self.offsets[index + 1] - self.offsets[index]))

    def window(self, index: int, start: int, stop: int) -> Tensor:
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        return numbers(self.source.read(self.columns, first + start, min(first + stop, last)))


@dataclass(frozen=True)
class IntegerColumn:
    """One column of a long table as (T,) int64: timestamps, or label numbers."""

    source: Source
    column: str
    offsets: Tensor  # (N + 1,)
    encoder: Encoder | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.window(index, 0, int(self.offsets[index + 1] - self.offsets[index]))

    def window(self, index: int, start: int, stop: int) -> Tensor:
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        table = self.source.read([self.column], first + start, min(first + stop, last))
        column = table.column(0).combine_chunks()
        if self.encoder is not None:
            return self.encoder.encode(strings(column).to_pylist())
        return torch.from_numpy(timestamps(column).copy())


def numbers(table: pa.Table) -> Tensor:
    """(rows, columns) of the default dtype."""
    columns = [pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False) for column in table.columns]
    return torch.from_numpy(np.stack(columns, axis=1)).to(torch.get_default_dtype())


def _store(source: Source, columns: tuple[str, ...], offsets: Tensor) -> Store:
    if isinstance(source, TableSource) and source.in_memory and source.rows * len(columns) * 8 <= EAGER_BYTES:
        return Flat(numbers(source.read(columns, 0, source.rows)), offsets)
    return NumericColumns(source, columns, offsets)


def _build_set(source: Source, layout: Layout, scan: TableScan, file: str | Path) -> SequenceSet:
    offsets = torch.tensor([*scan.starts, scan.rows], dtype=torch.int64)
    features, target = layout.features or (), layout.target or ()
    about: dict[str, Any] = {"names": scan.names or None, "source": str(file)}
    if layout.time:
        about["times"] = IntegerColumn(source, layout.time, offsets)
    task = layout.infer_task(scan.constant)
    if task in ("forecasting", "next_step"):
        series = (*features, *(name for name in target if name not in features))
        about |= {"features": series, "target_names": target or series}
        columns = [series.index(name) for name in target] or None
        return _ahead(_store(source, series, offsets), offsets.diff(), task, columns, file, about)
    inputs, about["features"] = _store(source, features, offsets), features
    if task in ("classification", "tagging"):
        encoder = Encoder(layout.classes or classes_of(scan.distinct), file, layout.label)
        about["classes"] = encoder.known
        if task == "classification" and not scan.constant:
            raise FormatError(
                file, "a label that changes within a sequence", "one class per sequence", column=layout.label
            )
        one_each = task == "classification"
        targets = (
            encoder.encode(scan.labels) if one_each else IntegerColumn(source, layout.label or "", offsets, encoder)
        )
    else:
        targets, about["target_names"] = _store(source, target, offsets), target
        targets = _constant_rows(targets, target, file) if task == "regression" else targets
    return SequenceSet(inputs, targets, offsets.diff(), task, **about)


def _ahead(series: Store, lengths: Tensor, task, columns: Sequence[int] | None, file, about: dict) -> SequenceSet:
    try:
        return SequenceSet.one_step_ahead(series, lengths, task, columns=columns, **about)
    except LengthsError as error:
        raise FormatError(file, "a sequence of one row", "at least two rows, to predict one from the other") from error


def _constant_rows(targets: Store, columns: tuple[str, ...], file: str | Path) -> Tensor:
    """(N, q): the targets of regression, which must be constant within every sequence."""
    rows = []
    for index in range(len(targets)):
        values = targets[index]
        changing = (values != values[0]).any(dim=0)
        if bool(changing.any()):
            column = columns[int(changing.int().argmax())]
            raise FormatError(
                file, f"values that change within sequence {index}", "one value per sequence", column=column
            )
        rows.append(values[0])
    return torch.stack(rows)
