"""Reads a table in one JSON value: a list of objects, or what pandas' `to_json` writes in its other orientations."""

import json
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from ...numerals import is_number
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from .dates import is_date
from .fields import ROW_NAMES
from .layout import Layout, LayoutOptions
from .limits import parse_json
from .numeric_dates import find_numeric_dates
from .open_files import existing, text_blocks, text_encoding
from .table_sources import OpenTable, TableSource
from .tables import sequences_of

Columns = dict[str, list[Any]]


def read_json(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a JSON table, with the options of `Layout`.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("steps.json").write_text('[{"id": 1, "x": 1, "label": "up"}, {"id": 2, "x": 5, "label": "down"}]')
        >>> rc.data.read_json("steps.json").classes
        ('down', 'up')
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_json(path, parts), parts)


def open_json(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a JSON value; an error names the number of the record."""
    path = existing(path)
    try:
        value = parse_json("".join(text_blocks(path)), path)
    except json.JSONDecodeError as error:
        raise FormatError(path, error.msg, "JSON", error.lineno, error.colno) from error
    columns = _of_list(value, path) if isinstance(value, list) else _of_object(value, path)
    if not columns:
        expected = 'a list of objects, as to_json(orient="records") writes it, or another table of pandas'
        raise FormatError(path, f"one {type(value).__name__}", expected)
    arrays = {name: _column(path, name, values) for name, values in columns.items()}
    return OpenTable(TableSource(pa.table(arrays)), path)


def _of_list(rows: list[Any], path: Path) -> Columns:
    """The columns of a list of objects, or of a list of lists of equal length."""
    if not rows:
        raise EmptyFileError(path, "an empty list", "at least one object")
    if isinstance(rows[0], list):
        return _of_rows(rows, [f"f{k}" for k in range(len(rows[0]))], path)
    for number, record in enumerate(rows, start=1):
        if not isinstance(record, dict):
            raise FormatError(path, f"a {type(record).__name__} as record {number}", "an object")
    names = dict.fromkeys(name for record in rows for name in record)
    return {name: [record.get(name) for record in rows] for name in names}


def _of_rows(rows: list[Any], names: list[str], path: Path) -> Columns:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(names):
            raise FormatError(path, f"{row!r:.50} as record {number}", f"a list of {len(names)} values")
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def _of_object(value: Any, path: Path) -> Columns:
    """The columns of one object: by column, by row, with a list of names, or around a list of records."""
    if not isinstance(value, dict) or not value:
        return {}
    if isinstance(value.get("columns"), list) and isinstance(value.get("data"), list):  # orient="split"
        columns = _of_rows(value["data"], [str(name) for name in value["columns"]], path)
        return _index(list(map(str, value.get("index", [])))) | columns
    parts = list(value.values())
    if all(isinstance(part, dict) for part in parts) and all(part.keys() == parts[0].keys() for part in parts):
        outer, inner = list(value), list(parts[0])
        if _are_labels(inner):  # orient="columns"
            return _index(inner) | {name: list(part.values()) for name, part in value.items()}
        if _are_labels(outer):  # orient="index"
            return _index(outer) | {name: [part[name] for part in parts] for name in inner}
        return {}
    if all(isinstance(part, list) for part in parts) and len({len(part) for part in parts}) == 1:
        nested = any(isinstance(item, list | dict) for part in parts for item in part)
    else:
        nested = True
    if not nested:  # as to_dict("list") gives it
        return value
    records = [part for part in parts if isinstance(part, list) and part and isinstance(part[0], dict)]
    records = [part for part in records if part is not value.get("fields")]
    return _of_list(records[0], path) if len(records) == 1 else {}


def _are_labels(texts: list[str]) -> bool:
    """Whether keys are those of rows: numbers or dates."""
    return all(is_number(text) or is_date(text) for text in texts)


def _index(labels: list[str]) -> Columns:
    """A column of the labels of rows, unless they count the rows; what pandas writes as milliseconds are dates."""
    if labels == [str(k) for k in range(len(labels))]:
        return {}
    if all(label.removeprefix("-").isdigit() for label in labels):
        numbers = np.array([int(label) for label in labels])
        found = find_numeric_dates(numbers)
        return {ROW_NAMES: numbers.tolist() if found is None else list(found[1].astype("datetime64[us]").tolist())}
    return {ROW_NAMES: labels}


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
