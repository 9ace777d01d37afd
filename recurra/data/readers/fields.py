"""The fields of a line of text: which lines are a header, and which lines make a table with text in it."""

import csv
import threading
from collections.abc import Sequence
from itertools import pairwise

from ...numerals import is_number
from .dates import is_date

NULLS = frozenset({"NA", "N/A", "NaN", "nan", "null", "NULL", "?", "-"})
ROW_NAMES = "Unnamed: 0"  # how pandas calls an index that was written without a name
_LONG_FIELDS = threading.Lock()  # the limit of the csv module belongs to the process
NumberedFields = list[tuple[int, list[str]]]  # the fields of lines, with the number of each line


def is_header(fields: list[str]) -> bool:
    """Whether a line has names: no numbers, or numbers that count the columns, as in 0, 1, 2 or 1990, 1991, 1992."""
    numbers = [field for field in fields if is_number(field)]
    if not numbers or (fields[0] == "" and fields[1:] == [str(k) for k in range(len(fields) - 1)]):
        return True  # the second is how pandas writes columns without names: an index without one, then 0, 1, …
    if (
        len(numbers) < 3
        or not all(field.isdigit() for field in numbers)
        or any(map(is_date, set(fields) - set(numbers)))
    ):
        return False
    steps = {int(after) - int(before) for before, after in pairwise(numbers)}
    return len(steps) == 1 and min(steps) > 0


def names_and_counts(first: list[str], second: list[str]) -> bool:
    """Whether a line has names and then 0, 1, …, as pandas writes a series with a named index: Month,0."""
    names = [field for field in first if not field.isdigit()]
    counts = [str(k) for k in range(len(first) - len(names))]
    if not names or not counts or first != names + counts or any(is_number(name) or is_date(name) for name in names):
        return False
    return any(is_number(field) or is_date(field) for field in second[: len(names)])


def split_line(line: str, delimiter: str = ",", quote: str = '"', skip_blanks: bool = False) -> list[str]:
    """The fields of one line of any length; one in quotes may hold the delimiter."""
    if quote not in line:
        return [each.lstrip(" ") if skip_blanks else each for each in line.split(delimiter)] if line else []
    options = {"delimiter": delimiter, "quotechar": quote, "skipinitialspace": skip_blanks}
    if len(line) <= csv.field_size_limit():
        return next(csv.reader([line], **options), [])
    with _LONG_FIELDS:
        limit = csv.field_size_limit(len(line))
        try:
            return next(csv.reader([line], **options), [])
        finally:
            csv.field_size_limit(limit)


def split_fields(line: str) -> list[str]:
    """The fields of a line; one in quotes may hold blanks."""
    return split_line(" ".join(line.split()), " ", skip_blanks=True)


def header_and_rows(fields: NumberedFields) -> tuple[list[str] | None, NumberedFields]:
    """The names of the columns and the rows below them. R writes no name above its names of rows."""
    (_, first), rest = fields[0], fields[1:]
    width = len(rest[0][1])
    if len(first) == width - 1 and not any(map(is_number, first)):
        return [ROW_NAMES, *first], rest
    if len(first) == width and not any(map(is_number, first)) and any(map(is_number, rest[0][1])):
        return first, rest
    return None, fields


def is_mixed(fields: NumberedFields) -> bool:
    """Whether lines of fields are a table with text in it: each column is text or numbers, at least one is numbers."""
    if len(fields) < 3:
        return False
    rows = [row for _, row in header_and_rows(fields)[1]]
    if {len(row) for row in rows} != {len(rows[0])} or len(rows[0]) < 2:
        return False
    kinds = [_kind(column) for column in zip(*rows, strict=True)]
    gaps = any(field in NULLS for row in rows for field in row)
    return (
        "numbers" in kinds and None not in kinds and ("text" in kinds or gaps) and 2 * kinds.count("text") <= len(kinds)
    )


def _kind(column: Sequence[str]) -> str | None:
    """`numbers`, `text`, or None for a mixture of both. Dates are text."""
    known = [field for field in column if field not in NULLS]
    numbers = sum(map(is_number, known))
    if numbers == len(known):
        return "numbers"
    return "text" if numbers == 0 or all(map(is_date, known)) else None
