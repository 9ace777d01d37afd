"""From a table to a sequence set: one row a step (long form), or one row a sequence (list columns)."""

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
from .sort_and_fill import rewritten
from .sources import Source, TableSource
from .table_scan import Place, Survey, instants, strings

#: bytes of numbers up to which a table in memory is turned into one tensor at once
EAGER = 256 << 20


def row_number(row: int) -> int:
    """Where a binary table has no lines: its rows, counted from one."""
    return row + 1


def sequences_of(source: Source, layout: Layout, file: str | Path, place: Place = row_number) -> SequenceSet:
    """The sequences of a table whose columns play the parts `layout` says."""
    try:
        return _sequences(source, layout, file, place)
    except UnicodeDecodeError as error:
        raise EncodingError(file, f"byte 0x{error.object[error.start]:02x} in a string", "UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:  # the system's fault, such as a full disk, not the table's
            raise
        raise FormatError(file, str(error).splitlines()[0], "a whole table of numbers, text and times") from error


def _sequences(source: Source, layout: Layout, file: str | Path, place: Place) -> SequenceSet:
    if not source.rows:
        raise EmptyFileError(file, "no rows", "a table with data")
    kinds = {field.name: kind_of(field.type) for field in source.schema}
    layout = layout.resolve(kinds, file)
    if any(kinds[name] in ("list", "text") for name in layout.features or ()):
        return from_nested(source, layout, kinds, file, place)
    columns = used_columns(layout)
    if layout.time and kinds[layout.time] == "text":
        _refuse_dates(source, layout.time, file, place)
    if layout.rewrites:
        table, rows = rewritten(source.read(columns, 0, source.rows), layout, file)
        if not table.num_rows:
            raise EmptyFileError(file, "no row without a gap", "at least one whole row")
        before = place
        source, place = TableSource(table), lambda row: before(int(rows[row]))
    survey = Survey(layout, file, place)
    for batch in source.scan(columns):
        survey.feed(batch)
    return _assembled(source, layout, survey, file)


def _refuse_dates(source: Source, column: str, file: str | Path, place: Place) -> None:
    """Timestamps that stayed text: the first one that is not ISO 8601 is at fault."""
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
    """The columns that play a part, each once."""
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
class Numbers:
    """The numeric columns of a long table as (T, D) sequences, read when asked."""

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
class Converted:
    """One column of a long table as (T,) int64: timestamps, or labels by number."""

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
        return torch.from_numpy(instants(column).copy())


def numbers(table: pa.Table) -> Tensor:
    """(rows, columns) of the default dtype."""
    columns = [pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False) for column in table.columns]
    return torch.from_numpy(np.stack(columns, axis=1)).to(torch.get_default_dtype())


def _store(source: Source, columns: tuple[str, ...], offsets: Tensor) -> Store:
    if isinstance(source, TableSource) and source.in_memory and source.rows * len(columns) * 8 <= EAGER:
        return Flat(numbers(source.read(columns, 0, source.rows)), offsets)
    return Numbers(source, columns, offsets)


def _assembled(source: Source, layout: Layout, survey: Survey, file: str | Path) -> SequenceSet:
    offsets = torch.tensor([*survey.starts, survey.rows], dtype=torch.int64)
    features, target = layout.features or (), layout.target or ()
    about: dict[str, Any] = {"names": survey.names or None, "source": str(file)}
    if layout.time:
        about["times"] = Converted(source, layout.time, offsets)
    task = layout.decide(survey.constant)
    if task in ("forecasting", "next_step"):
        series = (*features, *(name for name in target if name not in features))
        about |= {"features": series, "target_names": target or series}
        columns = [series.index(name) for name in target] or None
        return _ahead(_store(source, series, offsets), offsets.diff(), task, columns, file, about)
    inputs, about["features"] = _store(source, features, offsets), features
    if task in ("classification", "tagging"):
        encoder = Encoder(layout.classes or classes_of(survey.distinct), file, layout.label)
        about["classes"] = encoder.known
        if task == "classification" and not survey.constant:
            raise FormatError(
                file, "a label that changes within a sequence", "one class a sequence", column=layout.label
            )
        one_each = task == "classification"
        targets = encoder.encode(survey.labels) if one_each else Converted(source, layout.label or "", offsets, encoder)
    else:
        targets, about["target_names"] = _store(source, target, offsets), target
        targets = _constant_rows(targets, target, file) if task == "regression" else targets
    return SequenceSet(inputs, targets, offsets.diff(), task, **about)


def _ahead(series: Store, lengths: Tensor, task, columns: Sequence[int] | None, file, about: dict) -> SequenceSet:
    try:
        return SequenceSet.one_step_ahead(series, lengths, task, columns=columns, **about)
    except LengthsError as error:
        raise FormatError(file, "a sequence of one row", "two rows or more, to have one to predict") from error


def _constant_rows(targets: Store, columns: tuple[str, ...], file: str | Path) -> Tensor:
    """The numbers to predict for a sequence stand on each of its rows, the same every time."""
    rows = []
    for index in range(len(targets)):
        values = targets[index]
        changing = (values != values[0]).any(dim=0)
        if bool(changing.any()):
            column = columns[int(changing.int().argmax())]
            raise FormatError(
                file, f"values that change within sequence {index}", "one value a sequence", column=column
            )
        rows.append(values[0])
    return torch.stack(rows)
