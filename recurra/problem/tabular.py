"""Loads a tabular file as an Arrow table and tests properties of its columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

from recurra.data.data_errors import FormatError
from recurra.data.readers.arrow import check_parquet
from recurra.data.readers.csv import Dialect
from recurra.data.readers.dispatch import read
from recurra.data.readers.jsonl import check_nesting
from recurra.data.readers.layout import ID_NAMES, LABEL_NAMES
from recurra.data.readers.open_files import open_arrow
from recurra.numerals import is_number

FORMATS = ("csv", "jsonl", "parquet", "arrow")
BLOCK = 16 << 20


def load_table(path: Path, format: str) -> pa.Table:
    """All columns as stored. Errors come from the sequence reader where it can name the line."""
    try:
        return _LOADERS[format](path)
    except (pa.ArrowInvalid, OSError) as error:
        read(path, format)  # raises an error with the line, if there is one
        raise FormatError(path, str(error).splitlines()[0], f"a table in the format {format}") from error


def _csv(path: Path) -> pa.Table:
    dialect = Dialect.of(path)
    options = (
        arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False),
        arrow_csv.ParseOptions(delimiter=dialect.delimiter),
        arrow_csv.ConvertOptions(strings_can_be_null=True),
    )
    with open_arrow(path) as file:
        return arrow_csv.read_csv(file, *options)


def _jsonl(path: Path) -> pa.Table:
    check_nesting(path)
    with open_arrow(path) as file:
        return arrow_json.read_json(file, arrow_json.ReadOptions(use_threads=False, block_size=BLOCK))


def _parquet(path: Path) -> pa.Table:
    check_parquet(path)
    return parquet.read_table(path)


def _arrow(path: Path) -> pa.Table:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.memory_map(str(path)) as mapped:
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped).read_all()


_LOADERS: dict[str, Any] = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet, "arrow": _arrow}


def is_contiguous(table: pa.Table, column: str) -> bool:
    """Whether equal values follow each other without nulls, on average at least two rows per value."""
    values = table.column(column)
    if values.null_count or not len(values):
        return False
    runs = 1 + int(np.count_nonzero(~_equals_previous(table, column)))
    return runs == count_distinct(table, column) and 2 * runs <= len(values)


def counts_rows(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column increases by one from row to row within each id."""
    values, ids = table.column(column), table.column(id)
    if values.null_count or ids.null_count or not is_contiguous(table, id):
        return False
    return bool(np.all(np.diff(values.to_numpy())[_equals_previous(table, id)] == 1))


def _equals_previous(table: pa.Table, column: str) -> np.ndarray:
    """(rows - 1,) booleans: whether a row has the value of the row before."""
    values = table.column(column).to_numpy()
    return np.asarray(values[1:] == values[:-1], dtype=bool)


def is_constant_within(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column has one value per id."""
    counts = table.select(list(dict.fromkeys([id, column]))).group_by(id).aggregate([(column, "count_distinct")])
    return max(counts.column(f"{column}_count_distinct").to_pylist(), default=0) <= 1


def count_distinct(table: pa.Table, column: str) -> int:
    """The number of distinct values, nulls not counted."""
    return len(table.column(column).drop_null().unique())


def reject_stray_text(table: pa.Table, path: Path, named: set[str]) -> None:
    """Raise for text in a CSV column that starts with a number and is mostly numbers; `named` columns are exempt."""
    for field in table.schema:
        if not pa.types.is_string(field.type) or field.name in named or field.name.lower() in (*ID_NAMES, *LABEL_NAMES):
            continue
        values = table.column(field.name).to_pylist()
        stray = [row for row, text in enumerate(values) if text is not None and not is_number(text)]
        if values[0] is not None and 0 not in stray and 2 * len(stray) < len(values):
            line = stray[0] + Dialect.of(path).skipped + 1
            raise FormatError(path, repr(values[stray[0]]), "a number, as in the rows above", line, field.name)
