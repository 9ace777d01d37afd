"""Random access to the rows of a table: in memory, memory-mapped, or a Parquet file of any size."""

import tempfile
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from .open_files import decoding

#: bytes of decoded Parquet to cache
CACHE_BYTES = 128 << 20

#: rows decoded at a time when a table is scanned from beginning to end
SCAN_ROWS = 1 << 16


class Source(Protocol):
    """Random access to the rows of a table."""

    schema: pa.Schema
    rows: int

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """All rows in order, a bounded number at a time."""
        ...

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table: ...


@dataclass
class OpenTable:
    """An open table file: its rows, the line of each, and what its text says beyond the values."""

    source: "Source"
    file: str | Path
    place: Callable[[int], int] = lambda row: row + 1  # row → line of the file, or number of the row
    delimiter: str = ","
    as_written: Callable[..., pa.Table] | None = None  # columns as text, as they stand in the file


class TableSource:
    """A table in memory or in a memory-mapped file; slices copy nothing."""

    def __init__(self, table: pa.Table, keep: object = None):
        self.table, self.schema, self.rows = table, table.schema, table.num_rows
        self.in_memory, self._keep = keep is None, keep  # keeps a temporary file alive while it is mapped

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=SCAN_ROWS)

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        return self.table.select(list(columns)).slice(start, stop - start)


class GroupCache:
    """Decoded row groups of Parquet files, the last ones used: `CACHE_BYTES`, or two of the largest row group."""

    def __init__(self, largest: int = 0):
        self.limit, self.tables = max(CACHE_BYTES, 2 * largest), OrderedDict()

    def get(self, key: tuple, decode: Callable[[], pa.Table]) -> pa.Table:
        if key not in self.tables:
            self.tables[key] = decode()
            while len(self.tables) > 1 and sum(table.nbytes for table in self.tables.values()) > self.limit:
                self.tables.popitem(last=False)
        self.tables.move_to_end(key)
        return self.tables[key]


class ParquetSource:
    """A Parquet file, decoded by row group. It is open only while it is read: a folder may have thousands."""

    def __init__(self, path: str | Path, cache: GroupCache | None = None):
        self.path = path
        file = pq.ParquetFile(path, pre_buffer=False)
        self.metadata, self.schema = file.metadata, file.schema_arrow
        groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
        self.starts = [0, *accumulate(group.num_rows for group in groups)]
        self.rows = self.starts[-1]
        #: bytes of the largest row group, compressed or as float64, whichever is larger
        self.largest = max((max(g.total_byte_size, 8 * g.num_rows * g.num_columns) for g in groups), default=0)
        self.cache = cache or GroupCache(self.largest)

    @property
    def window_rows(self) -> int:
        """Rows of which a sequence can be drawn at random while all are in half of the cache."""
        return max(1, self.cache.limit // (16 * len(self.schema)))

    def _open(self) -> pq.ParquetFile:
        return pq.ParquetFile(self.path, metadata=self.metadata, pre_buffer=False)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with decoding(self.path, "Parquet file", pa.ArrowException, OSError):
            yield from self._open().iter_batches(batch_size=SCAN_ROWS, columns=list(columns))

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        parts, group = [], bisect_right(self.starts, start) - 1
        if start >= self.rows:  # as of a list: a loop over all sequences ends here
            raise IndexError(start)
        while start < stop:
            first, last = self.starts[group : group + 2]
            end = min(stop, last)
            parts.append(self._group(group, tuple(columns)).slice(start - first, end - start))
            start, group = end, group + 1
        return pa.concat_tables(parts)

    def _group(self, group: int, columns: tuple[str, ...]) -> pa.Table:
        def decode() -> pa.Table:
            with decoding(self.path, "Parquet file", pa.ArrowException, OSError):
                return self._open().read_row_group(group, columns=list(columns))

        return self.cache.get((str(self.path), group, columns), decode)


def spool_to_disk(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], folder: str | Path | None = None
) -> TableSource:
    """Write batches to a temporary Arrow file and memory-map it: random access in little memory."""
    file = tempfile.NamedTemporaryFile(prefix="recurra-", suffix=".arrow")  # noqa: SIM115 (kept open)
    try:
        with pa.ipc.new_file(file.name, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    except BaseException:
        file.close()
        raise
    source = TableSource(pa.ipc.open_file(pa.memory_map(file.name)).read_all(), keep=file)
    weakref.finalize(source, file.close)  # also where an error keeps the source until garbage is collected
    return source
