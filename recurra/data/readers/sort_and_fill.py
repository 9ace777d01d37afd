"""Sorts a table and drops or fills its gaps, in memory: the options `sort` and `missing`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..data_errors import MissingValueError
from .layout import Layout
from .table_scan import strings

ROW = "#row"  # the original row number


def sort_and_fill(table: pa.Table, layout: Layout, file: str | Path) -> tuple[pa.Table, np.ndarray]:
    """The sorted and filled table, and the original row number of each row."""
    table = table.append_column(ROW, pa.array(np.arange(table.num_rows)))
    if layout.sort:
        table = _sorted(table, layout)
    if layout.missing == "drop":
        table = _drop_gaps(table)
    rows = table.column(ROW).to_numpy()
    table = table.drop_columns([ROW])
    if layout.missing == "fill":
        table = _fill_gaps(table, layout, file)
    return table, rows


def _sorted(table: pa.Table, layout: Layout) -> pa.Table:
    """Sequences in order of first appearance, each sorted by time; the sort is stable."""
    keys = [(ROW, "ascending")]
    if layout.time:
        keys.insert(0, (layout.time, "ascending"))
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
    begins = np.zeros(table.num_rows, dtype=bool)
    begins[:1] = True
    if layout.id:
        codes = _codes(table, layout)
        begins[1:] |= codes[1:] != codes[:-1]
    for name in dict.fromkeys((*(layout.features or ()), *(layout.target or ()))):
        position = table.schema.get_field_index(name)
        values = pc.cast(table.column(name), pa.float64()).to_numpy()
        filled = fill(values, begins)
        if np.isnan(filled).any():
            raise MissingValueError(file, "a sequence without any value", "a value to fill with", column=name)
        table = table.set_column(position, name, pa.array(filled))
    return table


def fill(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    """Gaps filled with the previous value of the sequence; leading gaps with its first value."""
    ends = np.append(begins[1:], True)
    forward = _forward_fill(values, begins)
    return _forward_fill(forward[::-1], ends[::-1])[::-1]


def _forward_fill(values: np.ndarray, begins: np.ndarray) -> np.ndarray:
    known = np.where(np.isnan(values) & ~begins, 0, np.arange(len(values)))
    return values[np.maximum.accumulate(known)]
