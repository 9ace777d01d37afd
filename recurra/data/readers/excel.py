"""Reads the first sheet of an Excel workbook (.xlsx)."""

import zipfile
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from ...optional import require
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .open_files import existing, open_zip
from .table_sources import OpenTable, TableSource
from .tables import sequences_of


def read_excel(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from the first sheet of a workbook, with the options of `Layout`; its first row has the names."""
    parts = Layout.of(layout)
    return sequences_of(open_excel(path, parts), parts)


def open_excel(path: str | Path, parts: Layout) -> OpenTable:
    """The table of the first sheet; an error names the row of the sheet."""
    path = existing(path)
    with open_zip(path):  # checks the size once decoded
        pass
    openpyxl = require("openpyxl", extra="excel", what="reading Excel files")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise FormatError(path, str(error).splitlines()[0], "an Excel workbook") from error
    try:
        rows = [(number, row) for number, row in enumerate(book.worksheets[0].values, start=1) if any_value(row)]
    finally:
        book.close()
    if len(rows) < 2:
        raise EmptyFileError(path, f"{len(rows)} rows in the first sheet", "a row of names and rows of data")
    (line, header), *body = rows
    names = [str(name).strip() if name is not None else f"Unnamed: {k}" for k, name in enumerate(header)]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(path, f"two columns called {name!r}", "a name for each column", line, name)
    columns = {name: _column(path, name, [(number, row[k]) for number, row in body]) for k, name in enumerate(names)}
    return OpenTable(TableSource(pa.table(columns)), path, lambda row: body[row][0])


def any_value(row: tuple[Any, ...]) -> bool:
    return any(value is not None for value in row)


def _column(path: Path, name: str, cells: list[tuple[int, Any]]) -> pa.Array:
    """Numbers, dates or texts; a text among numbers is an error with its row."""
    values = [value for _, value in cells if value is not None]
    for kinds, arrow in ((bool, pa.bool_()), (int, pa.int64()), (int | float, pa.float64()), (time, pa.time64("us"))):
        if values and all(isinstance(value, kinds) for value in values):
            return pa.array([value for _, value in cells], arrow)
    if values and all(isinstance(value, datetime | date) for value in values):
        moments = [
            value if value is None or isinstance(value, datetime) else datetime(*value.timetuple()[:3])
            for _, value in cells
        ]
        return pa.array(moments, pa.timestamp("us"))
    stray = [(number, value) for number, value in cells if isinstance(value, str)]
    if stray and 2 * len(stray) < len(values):
        raise FormatError(path, repr(stray[0][1]), "a value as in most rows", stray[0][0], name)
    return pa.array([None if value is None else str(value) for _, value in cells], pa.string())
