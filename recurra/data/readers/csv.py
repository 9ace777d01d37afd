"""Reads delimited text with pyarrow; after an error, a slower second pass finds the line."""

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Unpack

import pyarrow as pa
from pyarrow import csv as arrow_csv

from ...numerals import is_number
from ..data_errors import FormatError, RaggedRowError
from ..sequences import SequenceSet
from .layout import ID_NAMES, LABEL_NAMES, TIME_NAMES, Layout, LayoutOptions
from .open_files import estimated_size, existing, lines, open_arrow
from .table_sources import Source, TableSource, spool_to_disk
from .tables import sequences_of

#: larger files become a memory-mapped table
IN_MEMORY = 128 << 20


def read_csv(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from delimited text (comma, semicolon or tab, also gzip), with the options of `Layout`.

    A first line of numbers alone is data: the columns are then called f0, f1, …
    """
    path, parts = existing(path), Layout.of(layout)
    dialect = Dialect.of(path)
    try:
        source = _source(path, dialect, parts)
    except (pa.ArrowInvalid, OSError) as error:
        _raise_line_error(path, dialect)  # raises if the error has a line
        raise FormatError(path, str(error).splitlines()[0], "a table of delimited text") from error
    _check_mixed(source, path, dialect, parts)
    return sequences_of(source, parts, path, place=lambda row: _line_of(path, dialect, row))


def _check_mixed(source: Source, path: Path, dialect: "Dialect", parts: Layout) -> None:
    """Raise if a text column starts with a number: one bad value makes pyarrow read a numeric column as text."""
    texts = [field.name for field in source.schema if pa.types.is_string(field.type)]
    named = (parts.id, parts.time, parts.label)
    for name in (name for name in texts if name not in named and not _is_text_column(name)):
        position, column = dialect.names.index(name), iter(_records(path, dialect))
        filled = ((line, fields[position]) for line, fields in column if fields[position])
        if not is_number(next(filled, (0, ""))[1]):
            continue
        bad = next(((line, text) for line, text in filled if not is_number(text)), None)
        if bad is not None:
            raise FormatError(path, repr(bad[1]), "a number, as above it", bad[0], name)


def _is_text_column(name: str) -> bool:
    return name.lower() in (*ID_NAMES, *LABEL_NAMES)


class Dialect:
    """The delimiter, the column names, whether there is a header line, and how many lines to skip."""

    def __init__(self, delimiter: str, names: list[str], header: bool, skipped: int):
        self.delimiter, self.names, self.header, self.skipped = delimiter, names, header, skipped

    @classmethod
    def of(cls, path: Path) -> "Dialect":
        number, first = next((number, line) for number, line in lines(path) if line.strip())
        delimiter = max(",;\t", key=first.count)
        fields = next(csv.reader([first], delimiter=delimiter))
        header = not all(is_number(field) for field in fields)
        names = [name.strip() for name in fields] if header else [f"f{k}" for k in range(len(fields))]
        for name in names:
            if names.count(name) > 1:
                raise FormatError(path, f"two columns called {name!r}", "a name for each column", number, name)
        return cls(delimiter, names, header, number if header else number - 1)


def _source(path: Path, dialect: Dialect, parts: Layout) -> Source:
    read = arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False)
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter)
    kept_text = {parts.id: pa.string(), parts.label: pa.string()}
    kept_text |= {name: pa.string() for name in dialect.names if _is_text_column(name)}
    types = {name: kind for name, kind in kept_text.items() if name is not None}
    if estimated_size(path) <= IN_MEMORY:
        convert = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types)
        return TableSource(arrow_csv.read_csv(open_arrow(path), read, parse, convert))
    convert = arrow_csv.ConvertOptions(
        strings_can_be_null=True, column_types=types | _widen_types(path, read, parse, types)
    )
    stream = arrow_csv.open_csv(open_arrow(path), read, parse, convert)
    return spool_to_disk(stream.schema, stream)


def _widen_types(path: Path, read, parse, types: dict[str, pa.DataType]) -> dict[str, pa.DataType]:
    """Float types for integer and empty columns: pyarrow fixes the types of a stream by its first block."""
    convert = arrow_csv.ConvertOptions(strings_can_be_null=True, column_types=types)
    schema = arrow_csv.open_csv(open_arrow(path), read, parse, convert).schema
    integers = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_null(f.type)]
    return {name: pa.float64() for name in integers if name not in types and name.lower() not in TIME_NAMES}


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The data rows with their line numbers, read with the csv module."""
    numbered = lines(path)
    reader = csv.reader((line for _, line in numbered), delimiter=dialect.delimiter)
    header = dialect.header
    for fields in reader:
        if fields and header:
            header = False
        elif fields:
            yield reader.line_num, fields


def _raise_line_error(path: Path, dialect: Dialect) -> None:
    expected = len(dialect.names)
    for line, fields in _records(path, dialect):
        if len(fields) != expected:
            names = ", ".join(dialect.names)
            raise RaggedRowError(path, f"{len(fields)} fields", f"{expected} fields ({names})", line)


def _line_of(path: Path, dialect: Dialect, row: int) -> int:
    return next(islice(_records(path, dialect), row, None))[0]
