"""Table → sequence set: one row per step (long format), or one row per sequence (list columns)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from ...errors import InputError, LengthsError
from ..data_errors import EmptyFileError, EncodingError, FormatError
from ..sequences import SequenceSet, Task
from ..stores import Flat, Store
from .column_conversion import combine_times, convert_columns, sample_of
from .column_kinds import kind_of
from .column_roles import Roles
from .given_columns import with_joined_id, without_missing_values
from .indicators import Categories, indicator_names, numbers
from .labels import Encoder, classes_of
from .layout import Layout
from .nested import from_nested
from .odd_values import OddValues
from .regroup import regroup
from .roles import find_joined_id, infer_roles
from .sort_and_fill import sort_and_fill
from .table_scan import TableScan, strings, timestamps
from .table_sources import OpenTable, Source, TableSource
from .wide import from_wide

#: up to this many bytes, a table in memory is converted to one tensor at once
EAGER_BYTES = 256 << 20


def sequences_of(opened: OpenTable, layout: Layout) -> SequenceSet:
    """The sequences of a table; roles that `layout` does not give are inferred."""
    try:
        return _sequences(opened, layout)
    except UnicodeDecodeError as error:
        raise EncodingError(opened.file, f"byte 0x{error.object[error.start]:02x} in a string", "UTF-8") from error
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) is not None:  # an error of the system, such as a full disk
            raise
        raise FormatError(opened.file, str(error).splitlines()[0], "a table of numbers, text and times") from error


def _sequences(opened: OpenTable, layout: Layout) -> SequenceSet:
    opened, roles, layout = prepare(opened, layout)
    source, file, place = opened.source, opened.file, opened.place
    if roles.form == "nested":
        kinds = {item.name: kind_of(item.type) for item in source.schema}
        return replace(from_nested(source, layout, kinds, file, place), roles=roles)
    if roles.form == "wide":
        return from_wide(source, layout, roles, file, place)
    columns, notes = used_columns(layout), ()
    opened = regroup(opened, layout, columns)
    source, place = opened.source, opened.place
    if layout.rewrites:
        table, rows, notes = sort_and_fill(source.read(columns, 0, source.rows), layout, opened)
        if not table.num_rows:
            raise EmptyFileError(file, "no row without a gap", "at least one complete row")
        source, place = TableSource(table), lambda row: opened.place(int(rows[row]))
    scan = TableScan(layout, file, place)
    odd = OddValues((*(layout.features or ()), *(layout.target or ())), _known_categories(layout))
    for batch in source.scan(columns):
        scan.feed(batch)
        odd.feed(batch)
    return replace(_build_set(source, layout, scan, file), roles=roles, notes=(*notes, *odd.notes(place)))


def prepare(opened: OpenTable, layout: Layout, strict: bool = False) -> tuple[OpenTable, Roles, Layout]:
    """The table with converted columns, the roles of its columns, and the layout with these roles."""
    if not opened.source.rows:
        raise EmptyFileError(opened.file, "no rows", "a table with data")
    opened = replace(opened, source=without_missing_values(opened, layout))
    source, layout = with_joined_id(opened, layout)
    source = convert_columns(replace(opened, source=source), layout)
    why_id = "as given"
    if layout.id is None and layout.form in (None, "long"):
        joined = find_joined_id(sample_of(source), layout, opened.file)
        source, layout = with_joined_id(replace(opened, source=source), replace(layout, id=joined))
        why_id = "neither of them alone identifies a sequence"
    roles = infer_roles(sample_of(source), layout, opened.file, strict=strict, why_id=why_id)
    layout = layout.with_roles(roles)
    if len(layout.time) > 1:
        source = combine_times(source, layout.time, opened)
    return replace(opened, source=_with_names_as_written(source, opened, layout)), roles, layout


def _with_names_as_written(source: Source, opened: OpenTable, layout: Layout) -> Source:
    """Ids and labels that were read as numbers, as they stand in the file: 007, not 7."""
    if opened.as_written is None or not isinstance(source, TableSource):
        return source
    names = [name for name in (layout.id, layout.label) if name and kind_of(source.schema.field(name).type) == "number"]
    if not names:
        return source
    written, table = opened.as_written(names), source.table
    for name in names:
        table = table.set_column(table.schema.get_field_index(name), name, written.column(name))
    return TableSource(table)


def _known_categories(layout: Layout) -> Categories:
    """The texts that inputs had in training."""
    known = layout.categories or {}
    return {name: known[name] for name in layout.features or () if name in known}


def used_columns(layout: Layout) -> list[str]:
    """The columns with a role, each once."""
    single = (layout.id, layout.time_column, layout.label)
    return list(dict.fromkeys(c for c in (*single, *(layout.features or ()), *(layout.target or ())) if c is not None))


@dataclass(frozen=True)
class NumericColumns:
    """Columns of a long table as sequences (T, D), read on access; texts as indicators of their categories."""

    source: Source
    columns: tuple[str, ...]
    offsets: Tensor  # (N + 1,)
    categories: Categories = field(default_factory=dict)

    @property
    def shuffle_window(self) -> int | None:
        """As many sequences as the cache of a file holds; None if it holds all, or there is no cache."""
        rows = getattr(self.source, "window_rows", None)
        return None if rows is None or self.source.rows <= rows else max(1, len(self) * rows // self.source.rows)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.window(index, 0, int(self.offsets[index + 1] - self.offsets[index]))

    def window(self, index: int, start: int, stop: int) -> Tensor:
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        return numbers(self.source.read(self.columns, first + start, min(first + stop, last)), self.categories)


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


def _store(source: Source, columns: tuple[str, ...], offsets: Tensor, categories: Categories) -> Store:
    if isinstance(source, TableSource) and source.in_memory and source.rows * len(columns) * 8 <= EAGER_BYTES:
        return Flat(numbers(source.read(columns, 0, source.rows), categories), offsets)
    return NumericColumns(source, columns, offsets, categories)


def _build_set(source: Source, layout: Layout, scan: TableScan, file: str | Path) -> SequenceSet:
    offsets = torch.tensor([*scan.starts, scan.rows], dtype=torch.int64)
    features, target = layout.features or (), layout.target or ()
    categories = layout.categories or {name: classes_of(found) for name, found in scan.categories.items()}
    about: dict[str, Any] = {"names": scan.names or None, "source": str(file), "categories": categories}
    if layout.time_column:
        about["times"] = IntegerColumn(source, layout.time_column, offsets)
    _check_numbers(source, layout, file)
    if layout.unlabelled:
        inputs, about["features"] = _store(source, features, offsets, categories), indicator_names(features, categories)
        return SequenceSet(inputs, torch.zeros(len(offsets) - 1, 1), offsets.diff(), "regression", **about)
    task = _task(layout)
    if task in ("forecasting", "next_step"):
        series = (*features, *(name for name in target if name not in features))
        names = indicator_names(series, categories)
        about |= {"features": names, "target_names": target or names}
        columns = [names.index(name) for name in target] or None
        return _ahead(_store(source, series, offsets, categories), offsets.diff(), task, columns, file, about)
    inputs, about["features"] = _store(source, features, offsets, categories), indicator_names(features, categories)
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
        targets, about["target_names"] = _store(source, target, offsets, {}), target
        targets = _constant_rows(targets, target, file) if task == "regression" else targets
    return SequenceSet(inputs, targets, offsets.diff(), task, **about)


def _check_numbers(source: Source, layout: Layout, file: str | Path) -> None:
    """With given categories, other columns of text are numbers that were written wrongly."""
    for name in layout.features or () if layout.categories is not None else ():
        if kind_of(source.schema.field(name).type) == "text" and name not in (layout.categories or {}):
            values = strings(source.read([name], 0, 1).column(0).combine_chunks())
            raise FormatError(file, f"text such as {values[0].as_py()!r}", "numbers, as in training", column=name)


def _task(layout: Layout) -> Task:
    """The task, for which there must be a label or a target."""
    if layout.task in ("classification", "tagging") and layout.label is None:
        raise InputError("label", None, f"the column of labels, for {layout.task}")
    if layout.task in ("regression", "transduction") and layout.target is None:
        raise InputError("target", None, f"the columns to predict, for {layout.task}")
    return layout.task or "forecasting"


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
