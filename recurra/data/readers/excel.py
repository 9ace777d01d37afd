"""Reads a sheet of an Excel workbook (.xlsx): the only one with a table, or the one asked for."""

import zipfile
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Unpack

import pyarrow as pa

from ...errors import UnknownNameError
from ...optional import require
from ..data_errors import EmptyFileError, FormatError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .open_files import existing, open_zip
from .table_sources import OpenTable, TableSource
from .tables import sequences_of

NumberedRows = list[tuple[int, tuple[Any, ...]]]


def read_excel(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from a sheet of a workbook, with the options of `Layout`; its first row has the names.

    **Example**

        >>> import openpyxl
        >>> book = openpyxl.Workbook()
        >>> for row in [("id", "x", "label"), ("a", 1, "up"), ("a", 2, "up"), ("b", 5, "down")]:
        ...     book.active.append(row)
        >>> book.save("steps.xlsx")
        >>> rc.data.read_excel("steps.xlsx").lengths.tolist()
        [2, 1]
    """
    parts = Layout.of(layout)
    return sequences_of(open_excel(path, parts), parts)


def open_excel(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a sheet; an error names the row of the sheet."""
    path = existing(path)
    with open_zip(path):  # checks the size once decoded
        pass
    openpyxl = require("openpyxl", extra="excel", what="reading Excel files")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise FormatError(path, str(error).splitlines()[0], "an Excel workbook") from error
    try:
        sheets = {sheet.title: _filled_rows(sheet) for sheet in book.worksheets}
    finally:
        book.close()
    (line, header), *body = _without_title(_chosen(sheets, parts.sheet, path))
    names = [str(name).strip() if name is not None else f"Unnamed: {k}" for k, name in enumerate(header)]
    for name in names:
        if names.count(name) > 1:
            raise FormatError(path, f"two columns called {name!r}", "a name for each column", line, name)
    columns = {name: _column([row[k] for _, row in body]) for k, name in enumerate(names)}
    return OpenTable(TableSource(pa.table(columns)), path, lambda row: body[row][0])


def _filled_rows(sheet: Any) -> NumberedRows:
    return [(number, row) for number, row in enumerate(sheet.values, start=1) if any_value(row)]


def _chosen(sheets: dict[str, NumberedRows], asked: str | None, path: Path) -> NumberedRows:
    """The rows of the sheet that was asked for, or of the only one that has a table."""
    if asked is not None and asked not in sheets:
        raise UnknownNameError("sheet", repr(asked), sheets)
    tables = [name for name, rows in sheets.items() if len(_without_title(rows)) > 1]
    if asked is None and len(tables) > 1:
        got = f"{len(tables)} sheets with tables ({', '.join(tables)})"
        raise FormatError(path, got, f"one table; use sheet={tables[0]!r}".replace("'", '"'))
    name = asked or next(iter(tables), next(iter(sheets)))
    if name not in tables:
        raise EmptyFileError(path, f"{len(sheets[name])} rows in sheet {name!r}", "a row of names and rows of data")
    return sheets[name]


def _without_title(rows: NumberedRows) -> NumberedRows:
    """The rows from the names of the columns on: rows of one cell may stand before them."""
    counts = [sum(value is not None for value in row) for _, row in rows]
    first = next((k for k, count in enumerate(counts) if count > 1), 0)
    is_title = first and all(isinstance(value, str | None) for value in rows[first][1]) and len(rows) > first + 1
    return rows[first:] if is_title else rows


def any_value(row: tuple[Any, ...]) -> bool:
    return any(value is not None for value in row)


def _column(cells: list[Any]) -> pa.Array:
    """Numbers, dates or texts; what is mixed is text, as in a CSV."""
    values = [value for value in cells if value is not None]
    if not values:  # or formulas that no program has computed
        return pa.nulls(len(cells))
    for kinds, arrow in ((bool, pa.bool_()), (int, pa.int64()), (int | float, pa.float64()), (time, pa.time64("us"))):
        if values and all(isinstance(value, kinds) for value in values):
            return pa.array(cells, arrow)
    if values and all(isinstance(value, datetime | date) for value in values):
        moments = [
            value if value is None or isinstance(value, datetime) else datetime(*value.timetuple()[:3])
            for value in cells
        ]
        return pa.array(moments, pa.timestamp("us"))
    return pa.array([None if value is None else str(value) for value in cells], pa.string())
