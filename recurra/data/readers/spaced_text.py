"""Tables of text and numbers separated by white space: names of rows, dates and missing values beside the numbers."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from ...numerals import is_number
from .csv import convert_options
from .fields import NULLS, NumberedFields, header_and_rows
from .table_sources import OpenTable, TableSource


def open_mixed(path: Path, fields: NumberedFields) -> OpenTable:
    """The table of fields for which `is_mixed` is true; types are found as in a CSV file."""
    names, rows = header_and_rows(fields)
    width = len(rows[0][1])
    names = names if names and len(set(names)) == width else _made_up_names([row for _, row in rows])
    written = io.StringIO()
    csv.writer(written).writerows(["" if field in NULLS else field for field in row] for _, row in rows)
    content = pa.py_buffer(written.getvalue().encode())

    def as_text(columns: Sequence[str], literal: bool = False) -> pa.Table:
        convert = convert_options(dict.fromkeys(columns, pa.string()))
        convert.include_columns, convert.strings_can_be_null = list(columns), not literal
        return _parse(content, names, convert)

    table = _parse(content, names, convert_options({}))
    return OpenTable(TableSource(table), path, lambda row: rows[row][0], " ", as_text)


def _parse(content: pa.Buffer, names: list[str], convert: arrow_csv.ConvertOptions) -> pa.Table:
    read = arrow_csv.ReadOptions(column_names=names, use_threads=False)
    return arrow_csv.read_csv(pa.BufferReader(content), read, convert_options=convert)


def _made_up_names(rows: list[list[str]]) -> list[str]:
    """f0, f1, …; the first column of numbers is `year` if it counts up from a year."""
    names = [f"f{k}" for k in range(len(rows[0]))]
    for k, column in enumerate(zip(*rows, strict=True)):
        if all(map(is_number, column)):
            values = np.array([float(field) for field in column])
            if counts_years(values):
                names[k] = "year"
            break
    return names


def counts_years(values: np.ndarray) -> bool:
    return bool(1000 <= values[0] < 3000 and (np.diff(values) == 1).all())
