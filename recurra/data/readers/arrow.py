"""Reads Parquet and Arrow files, and tables in memory."""

from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from ..data_errors import FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .open_files import existing
from .table_sources import ParquetSource, Source, TableSource, spool_to_disk
from .tables import sequences_of

#: the largest decoded row group, in bytes
GROUP = 512 << 20


def read_parquet(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a Parquet file of any size, with the options of `Layout`; only the row groups in use are decoded.

    A file with larger row groups is converted once to a temporary, memory-mapped file.
    """
    path, parts = existing(path), Layout.of(layout)
    try:
        file = pq.ParquetFile(path, pre_buffer=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(path, _first_line(error), "a Parquet file") from error
    source: Source = ParquetSource(file)
    if _largest_group(file.metadata) > GROUP:
        source = spool_to_disk(file.schema_arrow, source.scan(file.schema_arrow.names))
    return sequences_of(source, parts, path)


def _largest_group(metadata: pq.FileMetaData) -> int:
    """The size of the largest row group in bytes, compressed or as float64, whichever is larger."""
    groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
    return max((max(g.total_byte_size, 8 * g.num_rows * g.num_columns) for g in groups), default=0)


def read_arrow(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from an Arrow (Feather) file or stream, with the options of `Layout`; a file is memory-mapped."""
    path, parts = existing(path), Layout.of(layout)
    try:
        source = _open_mapped(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError(path, _first_line(error), "an Arrow file or stream") from error
    return sequences_of(source, parts, path)


def from_table(table, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a dataframe of any library that speaks Arrow, or from a dict of columns; options of `Layout`."""
    if isinstance(table, dict):
        table = pa.table(table)
    elif not isinstance(table, pa.Table):
        table = pa.table(table) if hasattr(table, "__arrow_c_stream__") else _from_interchange(table)
    return sequences_of(TableSource(table), Layout.of(layout), "table")


def _from_interchange(table) -> pa.Table:
    from pyarrow.interchange import from_dataframe

    if not hasattr(table, "__dataframe__"):
        raise FormatError("table", f"a {type(table).__name__}", "a table: Arrow, pandas, polars, or a dict of columns")
    return from_dataframe(table)


def _open_mapped(path: Path) -> TableSource:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    mapped = pa.memory_map(str(path))
    if is_file:
        return TableSource(pa.ipc.open_file(mapped).read_all(), keep=mapped)
    return TableSource(pa.ipc.open_stream(mapped).read_all(), keep=mapped)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
