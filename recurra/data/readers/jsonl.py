"""Reads JSON lines: one object per line, a step or a whole sequence."""

import io
import json
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Unpack

import pyarrow as pa
from pyarrow import json as arrow_json

from ..data_errors import FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .limits import check_depth, parse_json
from .open_files import estimated_size, existing, lines, open_arrow, open_bytes, text_blocks, text_encoding
from .table_sources import OpenTable, Source, TableSource, spool_to_disk
from .tables import sequences_of

IN_MEMORY = 128 << 20
BLOCK = 16 << 20  # bytes parsed at a time; the longest possible object


def read_jsonl(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from JSON lines, with the options of `Layout`.

    `{"unique_id": "a", "ds": "2024-01-01", "y": 3.5}` is a step; `{"inputs": [[…], …], "label": "x"}`,
    `{"tokens": […], "tags": […]}` and `{"text": "…", "label": "x"}` are whole sequences.

    **Example**

        >>> from pathlib import Path
        >>> lines = ['{"inputs": [[1, 2], [3, 4]], "label": "up"}', '{"inputs": [[5, 6]], "label": "down"}']
        >>> _ = Path("steps.jsonl").write_text("\\n".join(lines))
        >>> data = rc.data.read_jsonl("steps.jsonl")
        >>> data.lengths.tolist(), data.classes
        ([2, 1], ('down', 'up'))
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_jsonl(path, parts), parts)


def open_jsonl(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a file with one JSON object per line."""
    path = existing(path)
    try:
        source = _source(path)
    except (pa.ArrowInvalid, OSError) as error:
        _raise_line_error(path)  # raises if the error has a line
        raise FormatError(path, str(error).splitlines()[0], "objects with the same fields on every line") from error
    return OpenTable(source, path, lambda row: _line_of(path, row))


def _source(path: Path) -> Source:
    for _ in text_blocks(path):  # checks the encoding, which pyarrow does not
        pass
    check_nesting(path)
    options = arrow_json.ReadOptions(use_threads=False, block_size=BLOCK)
    with open_arrow(path) as file:
        if estimated_size(path) <= IN_MEMORY:
            return TableSource(arrow_json.read_json(file, options))
        first = next(_blocks(file, BLOCK), b"")
    schema = arrow_json.read_json(io.BytesIO(first), options).schema
    try:
        return _spooled(path, pa.schema([(field.name, _widen_type(field.type, pa.types.is_null)) for field in schema]))
    except pa.ArrowInvalid:
        return _spooled(path, pa.schema([(field.name, _widen_type(field.type)) for field in schema]))


def _spooled(path: Path, schema: pa.Schema) -> TableSource:
    """The lines of a file on disk, as columns of these types."""
    options = arrow_json.ReadOptions(use_threads=False, block_size=BLOCK)
    parse = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    with open_arrow(path) as file:
        tables = (arrow_json.read_json(io.BytesIO(block), options, parse) for block in _blocks(file, BLOCK))
        return spool_to_disk(schema, (batch for table in tables for batch in table.to_batches()))


def check_nesting(path: Path) -> None:
    """Raise for lines that pyarrow would not survive."""
    with open_bytes(path) as file:
        for block in _blocks(file, BLOCK):
            check_depth(block, path)


def _blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    """Complete lines, about `size` bytes at a time."""
    rest = b""
    while part := file.read(size):
        complete, end, rest = (rest + part).rpartition(b"\n")
        if end:
            yield complete
    if rest.strip():
        yield rest


def _is_narrow(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_null(kind)


def _widen_type(kind: pa.DataType, is_narrow: Callable[[pa.DataType], bool] = _is_narrow) -> pa.DataType:
    """A float type for whole numbers and empty fields, which may have fractions after the first block."""
    if pa.types.is_list(kind):
        return pa.list_(_widen_type(kind.value_type, is_narrow))
    return pa.float64() if is_narrow(kind) else kind


def _raise_line_error(path: Path) -> None:
    fields: dict[str, type] = {}
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = parse_json(line, path)
        except json.JSONDecodeError as error:
            raise FormatError(path, error.msg, "one JSON object", number, error.colno) from error
        if not isinstance(record, dict):
            raise FormatError(path, f"a {type(record).__name__}", "one JSON object", number)
        for name, value in record.items():
            kind = float if isinstance(value, int | float) else type(value)
            if value is not None and fields.setdefault(name, kind) is not kind:
                expected = f"a {fields[name].__name__}, as before"
                raise FormatError(path, f"a {kind.__name__}", expected, number, name)


def _line_of(path: Path, row: int) -> int:
    filled = (number for number, line in lines(path) if line.strip())
    return next(islice(filled, row, None))
