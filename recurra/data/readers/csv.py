"""Reads delimited text with pyarrow; after an error, a slower second pass finds the line."""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Unpack

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import SequenceSet
from .fields import is_header
from .layout import ID_NAMES, TIME_NAMES, Layout, LayoutOptions
from .numbers_in_text import find_notation
from .open_files import decoding, estimated_size, existing, lines, open_arrow, text_encoding
from .table_sources import OpenTable, Source, TableSource, spool_to_disk
from .tables import sequences_of

THOUSANDS = re.compile(r"[+-]?\d{1,3}(?:\.\d{3})*")
#: larger files become a memory-mapped table
IN_MEMORY = 128 << 20


def read_csv(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from delimited text (comma, semicolon, tab or |, also gzip), with the options of `Layout`.

    A first line that holds numbers is data: the columns are then called f0, f1, …
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_csv(path, parts), parts)


def open_csv(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a delimited text."""
    path = existing(path)
    dialect = Dialect.of(path)
    try:
        source = _source(path, dialect, parts)
    except (pa.ArrowInvalid, OSError) as error:
        _raise_line_error(path, dialect)  # raises if the error has a line
        raise FormatError(path, str(error).splitlines()[0], "a table of delimited text") from error
    return OpenTable(
        source,
        path,
        lambda row: _line_of(path, dialect, row),
        dialect.delimiter,
        lambda names, literal=False: _as_text(path, dialect, names, literal),
    )


class Dialect:
    """The delimiter, the column names, whether there is a header line, and how many lines to skip."""

    def __init__(self, delimiter: str, names: list[str], header: bool, skipped: int):
        self.delimiter, self.names, self.header, self.skipped = delimiter, names, header, skipped

    @classmethod
    def of(cls, path: Path) -> "Dialect":
        written = ((number, line) for number, line in lines(path) if line.strip() and not line.startswith("#"))
        start = list(islice(written, 20))
        if not start:
            raise EmptyFileError(path, "comments only", "a table with data")
        number, first = start[0]
        delimiter = _delimiter([line for _, line in start])
        fields = [field.strip() for field in next(csv.reader([first], delimiter=delimiter))]
        header = is_header(fields)
        names = [name or f"Unnamed: {k}" for k, name in enumerate(fields)]
        names = names if header else [f"f{k}" for k in range(len(fields))]
        for name in names:
            if names.count(name) > 1:
                raise FormatError(path, f"two columns called {name!r}", "a name for each column", number, name)
        return cls(delimiter, names, header, number if header else number - 1)


def _delimiter(start: list[str]) -> str:
    """The delimiter that gives the first lines equally many fields, more than one if possible."""
    counts = {sign: [len(next(csv.reader([line], delimiter=sign), [])) for line in start] for sign in ",;\t|"}
    return max(counts, key=lambda sign: (counts[sign][0] > 1, counts[sign].count(counts[sign][0]), counts[sign][0]))


def _source(path: Path, dialect: Dialect, parts: Layout) -> Source:
    read = arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False)
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter)
    named = [name for name in dialect.names if name.lower() in ID_NAMES]
    kept = {parts.id, parts.label, *named, *(parts.target or () if parts.task == "classification" else ())}
    types = {name: pa.string() for name in kept if name in dialect.names}
    if estimated_size(path) <= IN_MEMORY:
        table = arrow_csv.read_csv(open_arrow(path), read, parse, convert_options(types))
        return TableSource(_with_decimal_commas(table, path, dialect))
    convert = convert_options(types | _widen_types(path, read, parse, types))
    stream = arrow_csv.open_csv(open_arrow(path), read, parse, convert)
    return spool_to_disk(stream.schema, stream)


def convert_options(types: dict[str, pa.DataType]) -> arrow_csv.ConvertOptions:
    """Which texts are missing values; the types of columns that are not to be found."""
    nulls = [*arrow_csv.ConvertOptions().null_values, "?", *(" " * n for n in range(1, 9))]
    return arrow_csv.ConvertOptions(strings_can_be_null=True, null_values=nulls, column_types=types)


def _as_text(path: Path, dialect: Dialect, names: Sequence[str], literal: bool = False) -> pa.Table:
    """Columns as they are written. If `literal`, texts such as NA and an empty one are no missing values."""
    read = arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False)
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter)
    convert = convert_options(dict.fromkeys(names, pa.string()))
    convert.include_columns, convert.strings_can_be_null = list(names), not literal
    return arrow_csv.read_csv(open_arrow(path), read, parse, convert)


def _with_decimal_commas(table: pa.Table, path: Path, dialect: Dialect) -> pa.Table:
    """Beside decimal commas a point separates thousands: columns like 1.234 become text again, for `find_notation`."""
    texts = [item.name for item in table.schema if pa.types.is_string(item.type)]
    few = {name: [text for text in table.column(name)[:50].to_pylist() if text] for name in texts}
    if not any(
        (found := find_notation(values, dialect.delimiter)) and "decimal comma" in found[0] for values in few.values()
    ):
        return table
    for name in [item.name for item in table.schema if pa.types.is_floating(item.type)]:
        written = _as_text(path, dialect, [name]).column(name)
        if all(THOUSANDS.fullmatch(text) for text in written.drop_null().unique().to_pylist()):
            table = table.set_column(table.schema.get_field_index(name), name, written)
    return table


def _widen_types(path: Path, read, parse, types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Float types for integer and empty columns: pyarrow fixes the types of a stream by its first block."""
    schema = arrow_csv.open_csv(open_arrow(path), read, parse, convert_options(types)).schema
    integers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_null(f.type)]
    return {name: pa.float64() for name in integers if name not in types and name.lower() not in TIME_NAMES}


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The data rows with their line numbers, read with the csv module."""
    reader = csv.reader((line for _, line in lines(path)), delimiter=dialect.delimiter)
    with decoding(path, "table", csv.Error):
        for fields in reader:
            if fields and reader.line_num > dialect.skipped:
                yield reader.line_num, fields


def _raise_line_error(path: Path, dialect: Dialect) -> None:
    expected = len(dialect.names)
    for line, fields in _records(path, dialect):
        if len(fields) != expected:
            names = ", ".join(dialect.names)
            raise RaggedRowError(path, f"{len(fields)} fields", f"{expected} fields ({names})", line)


def _line_of(path: Path, dialect: Dialect, row: int) -> int:
    return next(islice(_records(path, dialect), row, None))[0]
