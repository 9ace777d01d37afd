"""Sequences whose rows are in several places of a table on disk, such as one row group per day: put together by id.

A run is a stretch of rows of one id. Runs of an id are ordered by their first times; the scan that follows checks that
times then increase from row to row.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .layout import Layout
from .table_scan import strings, timestamps
from .table_sources import SCAN_ROWS, OpenTable, Source, TableSource, spool_to_disk

SHORTEST_RUN = 4  # rows on average; shorter runs are rows in no order, which `sort=True` sorts


class RegroupedSource:
    """The rows of a table in another order of its runs."""

    def __init__(self, source: Source, firsts: np.ndarray, lengths: np.ndarray):
        self.source, self.schema, self.rows = source, source.schema, source.rows
        self.firsts = firsts  # (runs,) first row in the table
        self.starts = np.concatenate([[0], np.cumsum(lengths)])  # (runs + 1,) first row here

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for start in range(0, self.rows, SCAN_ROWS):
            table = self.read(columns, start, min(start + SCAN_ROWS, self.rows))
            yield from table.combine_chunks().to_batches()

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        parts, run = [], bisect_right(self.starts, start) - 1
        while start < stop:
            end = min(stop, int(self.starts[run + 1]))
            first = self.row_in_table(start)
            parts.append(self.source.read(columns, first, first + end - start))
            start, run = end, run + 1
        return pa.concat_tables(parts)

    def row_in_table(self, row: int) -> int:
        run = bisect_right(self.starts, row) - 1
        return int(self.firsts[run] + row - self.starts[run])


def regroup(opened: OpenTable, layout: Layout, columns: Sequence[str]) -> OpenTable:
    """The table with the rows of every id in one place, if they are in several; otherwise the table itself."""
    source = opened.source
    if layout.id is None or (isinstance(source, TableSource) and source.in_memory):
        return opened
    codes, firsts, times = _runs(source, layout.id, layout.time_column)
    if len(np.unique(codes)) == len(codes) or len(codes) * SHORTEST_RUN > source.rows:
        return opened
    lengths = np.diff([*firsts, source.rows])
    order = np.lexsort((firsts, times, codes))
    schema = pa.schema([source.schema.field(name) for name in columns])
    spooled = source if isinstance(source, TableSource) else spool_to_disk(schema, source.scan(columns))
    found = RegroupedSource(spooled, firsts[order], lengths[order])
    return replace(opened, source=found, place=lambda row: opened.place(found.row_in_table(row)))


def _runs(source: Source, id: str, time: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(runs,) each: the number of the id, in the order in which ids appear; the first row; the time there."""
    numbers: dict[str | None, int] = {}
    codes, firsts, times, row, last = [], [], [], 0, -1
    for batch in source.scan([id] if time is None else [id, time]):
        column = strings(batch.column(0)).dictionary_encode()
        known = np.array([numbers.setdefault(name, len(numbers)) for name in column.dictionary.to_pylist()] + [-1])
        here = known[pc.fill_null(column.indices, len(known) - 1).to_numpy(zero_copy_only=False)]
        begins = np.flatnonzero(np.concatenate([[last], here[:-1]]) != here)
        codes.append(here[begins])
        firsts.append(begins + row)
        if time is not None:
            at_start = batch.column(1).take(pa.array(begins))
            times.append(timestamps(at_start.fill_null(0)) if at_start.null_count else timestamps(at_start))
        row, last = row + batch.num_rows, here[-1] if len(here) else last
    found = np.concatenate(codes), np.concatenate(firsts)
    return *found, np.concatenate(times) if times else found[1]
