"""A file of columns as an Arrow table, to look at before it is read as sequences."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv
from pyarrow import json as arrow_json
from pyarrow import parquet

from recurra.data.data_errors import FormatError
from recurra.data.readers.csv import Dialect
from recurra.data.readers.dispatch import read
from recurra.data.readers.layout import ID_NAMES, LABEL_NAMES
from recurra.data.readers.open_files import open_arrow
from recurra.numerals import is_number

FORMATS = ("csv", "jsonl", "parquet", "arrow")
BLOCK = 16 << 20


def load(path: Path, format: str) -> pa.Table:
    """All columns as they are. What is wrong with the file is said by its reader, which knows the line."""
    try:
        return _LOADERS[format](path)
    except (pa.ArrowInvalid, OSError) as error:
        read(path, format)  # raises, when the fault is one that has a line
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
    with open_arrow(path) as file:
        return arrow_json.read_json(file, arrow_json.ReadOptions(use_threads=False, block_size=BLOCK))


def _arrow(path: Path) -> pa.Table:
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    with pa.memory_map(str(path)) as mapped:
        return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped).read_all()


_LOADERS: dict[str, Any] = {"csv": _csv, "jsonl": _jsonl, "parquet": parquet.read_table, "arrow": _arrow}


def stand_together(table: pa.Table, column: str) -> bool:
    """Whether equal values of a column without gaps follow each other, two rows to a value or more on average."""
    values = table.column(column)
    if values.null_count or not len(values):
        return False
    runs = 1 + int(np.count_nonzero(~_as_above(table, column)))
    return runs == distinct(table, column) and 2 * runs <= len(values)


def counts_within(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column grows by one from row to row of each id."""
    values, ids = table.column(column), table.column(id)
    if values.null_count or ids.null_count or not stand_together(table, id):
        return False
    return bool(np.all(np.diff(values.to_numpy())[_as_above(table, id)] == 1))


def _as_above(table: pa.Table, column: str) -> np.ndarray:
    """For every row but the first, whether it has the value of the row before."""
    values = table.column(column).to_numpy()
    return np.asarray(values[1:] == values[:-1], dtype=bool)


def constant_within(table: pa.Table, column: str, id: str) -> bool:
    """Whether a column has one value for each id."""
    counts = table.select(list(dict.fromkeys([id, column]))).group_by(id).aggregate([(column, "count_distinct")])
    return max(counts.column(f"{column}_count_distinct").to_pylist(), default=0) <= 1


def distinct(table: pa.Table, column: str) -> int:
    return len(table.column(column).drop_null().unique())


def refuse_slips(table: pa.Table, path: Path, named: set[str]) -> None:
    """A CSV column that begins with numbers and is mostly numbers is one of numbers, with a slip in it."""
    for field in table.schema:
        if not pa.types.is_string(field.type) or field.name in named or field.name.lower() in (*ID_NAMES, *LABEL_NAMES):
            continue
        values = table.column(field.name).to_pylist()
        slips = [row for row, text in enumerate(values) if text is not None and not is_number(text)]
        if values[0] is not None and 0 not in slips and 2 * len(slips) < len(values):
            line = slips[0] + Dialect.of(path).skipped + 1
            raise FormatError(path, repr(values[slips[0]]), "a number, as above it", line, field.name)
