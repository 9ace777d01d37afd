"""Reads columns separated by white space, and year-by-month tables of climate and sunspot records."""

from pathlib import Path
from typing import Unpack

import numpy as np
import pyarrow as pa

from ...numerals import is_number
from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import SequenceSet
from .fields import is_mixed, split_fields
from .layout import Layout, LayoutOptions
from .open_files import existing, lines, text_encoding
from .spaced_text import counts_years, open_mixed
from .table_sources import OpenTable, TableSource
from .tables import sequences_of

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
Rows = list[tuple[int, list[float]]]


def read_dat(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """A table from columns separated by white space, with the options of `Layout`.

    Columns may hold text if every line has equally many fields. Lines of text around columns of numbers are skipped.

    A line of names directly above the numbers names the columns; without one, a first column that counts up by one
    from a year between 1000 and 2999 is `year`. A year and twelve months on a row become one monthly series.

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("sunspots.dat").write_text("1700  5.0\\n1701 11.0\\n1702 16.0\\n")
        >>> data = rc.data.read_dat("sunspots.dat")
        >>> data.task, data[0].inputs.flatten().tolist()
        ('forecasting', [5.0, 11.0])
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_dat(path, parts), parts)


def open_dat(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a file with columns separated by white space."""
    path = existing(path)
    written = [(number, line) for number, line in lines(path) if line.strip() and not line.startswith(("#", "%"))]
    fields = [(number, split_fields(line)) for number, line in written]
    if is_mixed(fields):
        return open_mixed(path, fields)
    names, rows = _numbers(path)
    if [name[:3].lower() for name in names[1:]] == list(MONTHS):
        table, places = _monthly(rows, path)
    else:
        table, places = _columns(names, rows, path)
    return OpenTable(TableSource(table), path, lambda row: places[row])


def _numbers(path: Path) -> tuple[list[str], Rows]:
    """The column names, from the last line of text before the numbers, and the rows with their line numbers."""
    names: list[str] = []
    rows: Rows = []
    for line, text in lines(path):
        fields = text.split()
        try:
            values = [float(field) for field in fields]
        except ValueError as error:
            if rows and any(is_number(field) for field in fields[:1]):
                raise FormatError(path, repr(text.strip()[:40]), "numbers, as in the lines above", line) from error
            names = names if rows or not any(c.isalpha() for c in text) else _names_in(text)
            continue
        if values:
            rows.append((line, values))
    if not rows:
        expected = "columns of numbers or of text, as many in every line; or separated by commas, semicolons or tabs"
        raise EmptyFileError(path, "no row of numbers only", expected)
    return names, rows


def _names_in(line: str) -> list[str]:
    """The names in a line, which may stand in quotes."""
    return [name.strip("'\"") for name in line.lstrip("#% ").split()]


def _monthly(rows: Rows, path: Path) -> tuple[pa.Table, list[int]]:
    months, values, places = [], [], []
    for number, (line, (year, *numbers)) in enumerate(rows):
        if len(numbers) > 12 or (len(numbers) < 12 and number < len(rows) - 1):
            raise RaggedRowError(path, f"{len(numbers)} months", "12, except in the last year", line)
        months += [np.datetime64(f"{int(year):04d}-{month:02d}-01") for month in range(1, len(numbers) + 1)]
        values += numbers
        places += [line] * len(numbers)
    return pa.table({"ds": np.array(months), "y": values}), places


def _columns(names: list[str], rows: Rows, path: Path) -> tuple[pa.Table, list[int]]:
    width = len(rows[0][1])
    for line, values in rows:
        if len(values) != width:
            raise RaggedRowError(path, f"{len(values)} columns", f"{width} columns, as in the lines above", line)
    columns = np.array([values for _, values in rows])
    if len(names) != width or len(set(names)) != width:
        names = [f"f{k}" for k in range(width)]
        names[0] = "year" if width > 1 and counts_years(columns[:, 0]) else names[0]
    table = dict(zip(names, columns.T, strict=True))
    if "year" in table:
        table["year"] = table["year"].astype(np.int64)
    return pa.table({name: np.ascontiguousarray(column) for name, column in table.items()}), [line for line, _ in rows]
