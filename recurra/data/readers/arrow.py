"""Reads Parquet and Arrow files, and tables in memory."""

from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..data_errors import FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .limits import check_decoded
from .open_files import decoding, existing
from .parquet_folder import open_folder
from .table_sources import SCAN_ROWS, GroupCache, OpenTable, ParquetSource, Source, TableSource, spool_to_disk
from .tables import sequences_of

#: the largest decoded row group, in bytes
GROUP = 512 << 20


def read_parquet(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a Parquet file of any size, with the options of `Layout`; only the row groups in use are decoded.

    A folder is read as one table: all `.parquet` files in it and below, and for folders named `column=value` that
    column. Row groups may have any order: where the rows of a sequence are in several places, the places are put in the
    order of their times. For that, and for row groups of more than half a gigabyte, the rows are copied once to a
    temporary, memory-mapped file.

    **Example**

        >>> import pyarrow as pa, pyarrow.parquet
        >>> table = pa.table({"id": ["a", "a", "b"], "x": [1.0, 2.0, 5.0], "label": ["up", "up", "down"]})
        >>> pa.parquet.write_table(table, "steps.parquet")
        >>> rc.data.read_parquet("steps.parquet").lengths.tolist()
        [2, 1]
    """
    parts = Layout.of(layout)
    return sequences_of(open_parquet(path, parts), parts)


def open_parquet(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a Parquet file, or of all files of a folder."""
    path = existing(path)
    if path.is_dir():
        return OpenTable(open_folder(path, open_file), path)
    return OpenTable(open_file(path), path)


def open_file(path: Path, cache: GroupCache | None = None) -> Source:
    """The rows of one Parquet file."""
    check_parquet(path)
    source = ParquetSource(path, cache)
    if source.largest > GROUP:
        return spool_to_disk(source.schema, source.scan(source.schema.names))
    return source


def check_parquet(path: Path) -> None:
    """Check the decoded size: run lengths and dictionaries make many values of few bytes, which the footer counts."""
    try:
        file = pq.ParquetFile(path, pre_buffer=False)
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
    except (pa.ArrowException, OSError, UnicodeError) as error:  # also of a name that is no text
        raise FormatError(path, _first_line(error), "a Parquet file") from error
    groups = [file.metadata.row_group(group) for group in range(file.metadata.num_row_groups)]
    chunks = [(group.column(column), max(8, leaf.length)) for group in groups for column, leaf in enumerate(leaves)]
    check_decoded(path, sum(max(chunk.total_uncompressed_size, width * chunk.num_values) for chunk, width in chunks))
    if texts:
        _check_texts(path, texts)


def _check_texts(path: Path, texts: list[str]) -> None:
    """Add up the text of every row from the dictionaries, without decoding it."""
    total = 0
    file = pq.ParquetFile(path, pre_buffer=False, read_dictionary=texts)
    with decoding(path, "Parquet file", pa.ArrowException, OSError):
        for batch in file.iter_batches(batch_size=SCAN_ROWS, columns=texts):
            total += sum(_text_bytes(column) for column in batch.columns)
            check_decoded(path, total)


def _text_bytes(column: pa.Array) -> int:
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _text_bytes(column.flatten())
    if pa.types.is_dictionary(kind):
        lengths = pc.call_function("binary_length", [column.dictionary]).cast(pa.int64())
        return pc.call_function("sum", [lengths.take(column.indices)]).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(_text_bytes(column.field(number)) for number in range(kind.num_fields))
    return column.nbytes


def read_arrow(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from an Arrow (Feather) file or stream, with the options of `Layout`; a file is memory-mapped.

    **Example**

        >>> import pyarrow as pa
        >>> table = pa.table({"id": ["a", "a", "b"], "x": [1.0, 2.0, 5.0], "label": ["up", "up", "down"]})
        >>> with pa.OSFile("steps.arrow", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        ...     writer.write_table(table)
        >>> rc.data.read_arrow("steps.arrow").lengths.tolist()
        [2, 1]
    """
    parts = Layout.of(layout)
    return sequences_of(open_arrow_file(path, parts), parts)


def open_arrow_file(path: str | Path, parts: Layout) -> OpenTable:
    """The table of an Arrow file or stream."""
    path = existing(path)
    try:
        return OpenTable(_open_mapped(path), path)
    except (pa.ArrowException, OSError, UnicodeError) as error:
        raise FormatError(path, _first_line(error), "an Arrow file or stream") from error


def from_table(table, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a dataframe of any library that speaks Arrow, or from a dict of columns; options of `Layout`.

    **Example**

        >>> table = {"id": ["a", "a", "b"], "x": [1.0, 2.0, 5.0], "label": ["up", "up", "down"]}
        >>> data = rc.data.from_table(table)
        >>> data.lengths.tolist(), data.classes
        ([2, 1], ('down', 'up'))
    """
    if isinstance(table, dict):
        table = pa.table(table)
    elif not isinstance(table, pa.Table):
        table = pa.table(table) if hasattr(table, "__arrow_c_stream__") else _from_interchange(table)
    return sequences_of(OpenTable(TableSource(table), "table"), Layout.of(layout))


def _from_interchange(table) -> pa.Table:
    from pyarrow.interchange import from_dataframe

    if not hasattr(table, "__dataframe__"):
        raise FormatError("table", f"a {type(table).__name__}", "a table: Arrow, pandas, polars, or a dict of columns")
    return from_dataframe(table)


def _open_mapped(path: Path) -> TableSource:
    """An Arrow file or stream, memory-mapped. Damage is an error of Arrow."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    mapped = pa.memory_map(str(path))
    table = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped).read_all()
    table.validate(full=True)  # offsets that point elsewhere would end the process
    return TableSource(table, keep=mapped)


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]
