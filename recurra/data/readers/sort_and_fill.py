"""Sorts a table and drops or fills its gaps, in memory: the options `sort`, `missing` and `fill`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..data_errors import MissingValueError, TimestampError
from .column_kinds import kind_of
from .frequency import regular_grid
from .layout import Layout
from .table_scan import is_dated, strings, timestamps
from .table_sources import OpenTable

MAX_GROWTH = 10  # steps per row that filled gaps may make
ROW = "#row"  # the original row number


def sort_and_fill(table: pa.Table, layout: Layout, opened: OpenTable) -> tuple[pa.Table, np.ndarray, tuple[str, ...]]:
    """The sorted and filled table, the original row number of each row, and notes on what was changed."""
    notes = []
    table = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
    if layout.sort:
        table = _sorted(table, layout)
        moved = int(np.count_nonzero(table.column(ROW).to_numpy() != np.arange(table.num_rows)))
        notes += [f"{moved:,} row{'s' if moved != 1 else ''} sorted"] if moved else []
    if layout.missing == "drop":
        before, table = table.num_rows, _drop_gaps(table)
        dropped = before - table.num_rows
        notes += [f"{dropped:,} incomplete row{'s' if dropped != 1 else ''} dropped"] if dropped else []
    if layout.fill != "none" and layout.time_column and not layout.irregular:
        before, table = table.num_rows, _add_missing_rows(table, layout, opened)
        added = table.num_rows - before
        notes += [f"{added:,} missing row{'s' if added != 1 else ''} filled ({layout.fill})"] if added else []
    rows = table.column(ROW).to_numpy()
    table = table.drop_columns([ROW])
    if layout.missing == "fill" or layout.fill != "none":
        table = _fill_gaps(table, layout, opened.file)
    return table, rows, tuple(notes)


def _add_missing_rows(table: pa.Table, layout: Layout, opened: OpenTable) -> pa.Table:
    """A row for every time that an otherwise regular series lacks: empty, but for its id and time."""
    name = layout.time_column or ""
    column = table.column(name).combine_chunks()
    times, begins = timestamps(column), _begins(table, layout)
    pieces = np.split(times, np.flatnonzero(begins)[1:])
    backwards = np.flatnonzero(~begins[1:] & (np.diff(times) <= 0))
    if len(backwards):
        return table  # the scan that follows names the line
    grid = regular_grid(pieces, is_dated(column.type))
    if grid is None:
        raise TimestampError(opened.file, "times without a common step", "a regular series with gaps", column=name)
    if sum(map(len, grid)) > MAX_GROWTH * len(times) + 1000:
        got = f"{len(times):,} rows in a span of {sum(map(len, grid)):,} steps"
        raise TimestampError(opened.file, got, "a regular series with few gaps", column=name)
    starts = np.flatnonzero(begins)
    sources = [
        first + np.searchsorted(piece, full, side="right") - 1
        for first, piece, full in zip(starts, pieces, grid, strict=True)
    ]
    source, full = np.concatenate(sources), np.concatenate(grid)
    is_new = times[source] != full
    filled = table.take(pa.array(source))
    kept = {layout.id, layout.label, ROW, *layout.static}
    for position, item in enumerate(table.schema):
        if item.name == name:
            filled = filled.set_column(position, item.name, _as_times(full, item.type))
        elif item.name not in kept and kind_of(item.type) == "number":
            values = pc.cast(filled.column(item.name), pa.float64(), safe=False).to_numpy()
            filled = filled.set_column(position, item.name, pa.array(np.where(is_new, np.nan, values)))
    return filled


def _as_times(times: np.ndarray, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array(times / 1e6)
    if is_dated(kind):
        return pa.array(times.astype("datetime64[us]"), pa.timestamp("us")).cast(kind, safe=False)
    return pa.array(times).cast(kind)


def _begins(table: pa.Table, layout: Layout) -> np.ndarray:
    """(rows,) bool: whether a sequence begins here."""
    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    if layout.id:
        codes = _codes(table, layout)
        begins[1:] |= codes[1:] != codes[:-1]
    return begins


def _sorted(table: pa.Table, layout: Layout) -> pa.Table:
    """Sequences in order of first appearance, each sorted by time; the sort is stable."""
    keys = [(ROW, "ascending")]
    if layout.time_column:
        keys.insert(0, (layout.time_column, "ascending"))
    if layout.id:
        codes = _codes(table, layout)
        table = table.append_column("#sequence", pa.array(codes))
        keys.insert(0, ("#sequence", "ascending"))
    ordered = table.sort_by(keys)
    return ordered.drop_columns(["#sequence"]) if layout.id else ordered


def _codes(table: pa.Table, layout: Layout) -> np.ndarray:
    column = strings(table.column(layout.id).combine_chunks())
    return column.dictionary_encode().indices.to_numpy(zero_copy_only=False)


def _drop_gaps(table: pa.Table) -> pa.Table:
    keep = np.ones(table.num_rows, dtype=bool)
    for column in table.columns:
        keep &= ~column.is_null(nan_is_null=pa.types.is_floating(column.type)).to_numpy()
    return table.filter(pa.array(keep))


def _fill_gaps(table: pa.Table, layout: Layout, file: str | Path) -> pa.Table:
    begins = _begins(table, layout)
    for name in dict.fromkeys((*(layout.features or ()), *(layout.target or ()))):
        position = table.schema.get_field_index(name)
        if kind_of(table.schema.field(name).type) == "text":
            table = table.set_column(position, name, pc.call_function("fill_null_forward", [table.column(name)]))
            continue
        values = pc.cast(table.column(name), pa.float64(), safe=False).to_numpy()
        filled = interpolate(values, begins) if layout.fill == "interpolate" else fill(values, begins)
        if np.isnan(filled).any():
            raise MissingValueError(file, "a sequence without any value", "a value to fill with", column=name)
        table = table.set_column(position, name, pa.array(filled))
    return table


def fill(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Gaps filled with the previous value of the sequence; leading gaps with its first value."""
    ends = np.append(begins[1:], True)
    forward = _forward_fill(values, begins)
    return _forward_fill(forward[::-1], ends[::-1])[::-1]


def interpolate(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Gaps filled on a line between the values around them; at the ends of a sequence with the nearest value."""
    filled = values.copy()
    for piece in np.split(np.arange(len(values)), np.flatnonzero(begins)[1:]):
        known = piece[~np.isnan(values[piece])]
        if len(known):
            filled[piece] = np.interp(piece, known, values[known])
    return filled


def _forward_fill(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    known = np.where(np.isnan(values) & ~begins, 0, np.arange(len(values)))
    return values[np.maximum.accumulate(known)]
