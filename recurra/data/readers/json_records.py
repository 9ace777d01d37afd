"""Reads JSON records: one list of objects, as pandas' `to_json(orient="records")` writes it."""

import json
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .limits import parse_json
from .open_files import existing, text_blocks, text_encoding
from .table_sources import OpenTable, TableSource
from .tables import sequences_of


def read_json(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a list of JSON objects, each a row, with the options of `Layout`."""
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_json(path, parts), parts)


def open_json(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a list of JSON objects; an error names the number of the record."""
    path = existing(path)
    try:
        records = parse_json("".join(text_blocks(path)), path)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.msg, "JSON", error.lineno, error.colno) from error
    if not isinstance(records, list):
        expected = 'a list of objects, as to_json(orient="records") writes it'
        raise FormatError(path, f"one {type(records).__name__}", expected)
    if not records:
        raise EmptyFileError(path, "an empty list", "at least one object")
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict):
            raise FormatError(path, f"a {type(record).__name__} as record {number}", "an object")
    names = dict.fromkeys(name for record in records for name in record)
    columns = {name: _column(path, name, [record.get(name) for record in records]) for name in names}
    return OpenTable(TableSource(pa.table(columns)), path)


def _column(path: Path, name: str, values: list) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        first = next(value for value in values if value is not None)
        number = next(k for k, value in enumerate(values) if value is not None and not _alike(first, value))
        got = f"{values[number]!r} in record {number + 1}"
        raise FormatError(path, got, f"a value like {first!r}", column=name) from error


def _alike(first: object, value: object) -> bool:
    numeric = isinstance(first, int | float) and isinstance(value, int | float)
    return numeric or type(first) is type(value)
