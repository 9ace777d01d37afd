"""Reads delimited text with pyarrow; after an error, a slower second pass finds the line."""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from ...numerals import is_number
from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import SequenceSet
from .column_conversion import refuse_stray_text, stays_text
from .column_kinds import kind_of
from .csv_types import read_with_types
from .fields import NumberedFields, is_header, names_and_counts, split_line
from .layout import ID_NAMES, Layout, LayoutOptions, names_sequences
from .numbers_in_text import find_notation
from .open_files import decoding, estimated_size, existing, lines, open_arrow, text_encoding
from .table_facts import count_distinct
from .table_sources import OpenTable, TableSource, spool_to_disk
from .tables import sequences_of

THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})*|0")
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)
#: larger files become a memory-mapped table
IN_MEMORY = 128 << 20


def read_csv(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from delimited text (comma, semicolon, tab or |, also gzip), with the options of `Layout`.

    A first line that holds numbers is data: the columns are then called f0, f1, …

    **Example**

        >>> from pathlib import Path
        >>> _ = Path("steps.csv").write_text("id,x,label\\na,1,up\\na,2,up\\nb,5,down\\nb,6,down\\n")
        >>> rc.data.read_csv("steps.csv")
        SequenceSet for classification
          sequences  2 of 2 steps
          features   1: x
          classes    2: down, up
          source     steps.csv
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_csv(path, parts), parts)


def open_csv(path: str | Path, parts: Layout) -> OpenTable:
    """The table of a delimited text."""
    path = existing(path)
    dialect = Dialect.of(path)
    try:
        source, became_text = _source(path, dialect, parts)
    except (pa.ArrowInvalid, OSError) as error:
        _raise_line_error(path, dialect)  # raises if the error has a line
        raise FormatError(path, str(error).splitlines()[0], "a table of delimited text") from error
    opened = OpenTable(
        source,
        path,
        lambda row: _line_of(path, dialect, row),
        dialect.delimiter,
        lambda names, literal=False: as_text(path, dialect, names, literal),
    )
    for name in became_text:
        texts = source.table.column(name).drop_null().unique().to_pylist()
        if not stays_text(name, parts) and find_notation(texts, dialect.delimiter, parts.decimal) is None:
            refuse_stray_text(source.table, name, parts, opened)
    return opened


class Dialect:
    """The delimiter, the column names, whether there is a header line, and how many lines to skip."""

    def __init__(self, delimiter: str, names: list[str], header: bool, skipped: int):
        self.delimiter, self.names, self.header, self.skipped = delimiter, names, header, skipped

    @classmethod
    def of(cls, path: Path) -> "Dialect":
        written = ((number, line) for number, line in lines(path) if line.strip() and not line.startswith("#"))
        start = list(islice(written, 20))
        if not start:
            raise EmptyFileError(path, "comments only", "a table with data")
        told = SEPARATOR_LINE.fullmatch(start[0][1])  # as spreadsheets write it
        start = start[1:] if told and len(start) > 1 else start
        delimiter = told[1] if told else _delimiter([line for _, line in start])
        rows = [(number, _split(line, delimiter)) for number, line in start]
        rows = rows[_preface(rows) :]
        number, fields = rows[0]
        header = is_header(fields) or (len(rows) > 1 and names_and_counts(fields, rows[1][1]))
        names = [name or f"Unnamed: {k}" for k, name in enumerate(fields)]
        names = names if header else [f"f{k}" for k in range(len(fields))]
        for name, count in Counter(names).items():
            if count > 1:
                raise FormatError(path, f"two columns called {name!r}", "a name for each column", number, name)
        return cls(delimiter, names, header, number if header else number - 1)


def _split(line: str, delimiter: str) -> list[str]:
    return [field.strip() for field in split_line(line, delimiter)]


def _delimiter(start: list[str]) -> str:
    """The delimiter that gives the first lines equally many fields, more than one if possible.

    Lines without any delimiter may stand before them.
    """
    counts = {sign: [len(_split(line, sign)) for line in start] for sign in ",;\t|"}
    if all(each[0] == 1 for each in counts.values()):
        counts = {sign: [count for count in each if count > 1] or each for sign, each in counts.items()}
    return max(counts, key=lambda sign: (counts[sign][0] > 1, counts[sign].count(counts[sign][0]), counts[sign][0]))


def _preface(rows: NumberedFields) -> int:
    """How many lines stand before the names of the columns: lines without a delimiter before a table."""
    first = next((k for k, (_, fields) in enumerate(rows) if len(fields) > 1), 0)
    table = [fields for _, fields in rows[first:]]
    same = len(table) > 2 and len({len(fields) for fields in table}) == 1
    return first if same and not any(map(is_number, table[0])) and any(map(is_number, table[1])) else 0


def _source(path: Path, dialect: Dialect, parts: Layout) -> tuple[TableSource, list[str]]:
    """The rows, and the columns that are numbers until a later block has text."""
    read = arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False)
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
    named = [name for name in dialect.names if name.lower() in ID_NAMES]
    ids = (parts.id, *(parts.id or "").split("+"))
    kept = {*ids, parts.label, *named, *(parts.target or () if parts.task == "classification" else ())}
    types = {name: pa.string() for name in kept if name in dialect.names}

    def load(types: dict[str, pa.DataType]) -> TableSource:
        convert = convert_options(types, parts.na)
        if estimated_size(path) <= IN_MEMORY:
            return TableSource(_trimmed(arrow_csv.read_csv(open_arrow(path), read, parse, convert)))
        stream = arrow_csv.open_csv(open_arrow(path), read, parse, convert)
        batches = (batch for each in stream for batch in _trimmed(pa.Table.from_batches([each])).to_batches())
        return spool_to_disk(stream.schema, batches)

    source, became_text = read_with_types(load, dialect.names, types)
    _check_encoding(source.schema, path)
    texts = _shortened_ids(source.table, path, dialect)
    texts += _columns_of_thousands(source.table, path, dialect, parts.decimal)
    known = {item.name: item.type for item in source.schema}
    return (load(known | dict.fromkeys(texts, pa.string())) if texts else source), became_text


def _check_encoding(schema: pa.Schema, path: Path) -> None:
    """Raise for bytes that are no UTF-8, of which pyarrow makes columns of bytes."""
    if any(pa.types.is_binary(item.type) for item in schema):
        for _ in lines(path):  # raises, and knows the line
            pass


def _shortened_ids(table: pa.Table, path: Path, dialect: Dialect) -> list[str]:
    """Columns that name sequences and lose something as numbers: 7 and 007, or more digits than a number has."""
    numbers = [item.name for item in table.schema if names_sequences(item.name) and kind_of(item.type) == "number"]
    found = []
    for name in numbers:
        written = as_text(path, dialect, [name]).column(name).unique().drop_null()
        is_whole = all(text.lstrip("+-").isdigit() for text in written.to_pylist())
        if is_whole and (
            pa.types.is_floating(table.schema.field(name).type) or len(written) > count_distinct(table, name)
        ):
            found.append(name)
    return found


def convert_options(types: dict[str, pa.DataType], missing: Sequence[str] = ()) -> arrow_csv.ConvertOptions:
    """Which texts are missing values, `missing` among them; the types of columns that are not to be found."""
    nulls = [*arrow_csv.ConvertOptions().null_values, "?", *(" " * n for n in range(1, 9)), *missing]
    return arrow_csv.ConvertOptions(strings_can_be_null=True, null_values=nulls, column_types=types)


def as_text(path: Path, dialect: Dialect, names: Sequence[str], literal: bool = False) -> pa.Table:
    """Columns as they are written. If `literal`, texts such as NA and an empty one are no missing values."""
    read = arrow_csv.ReadOptions(column_names=dialect.names, skip_rows=dialect.skipped, use_threads=False)
    parse = arrow_csv.ParseOptions(delimiter=dialect.delimiter, newlines_in_values=True)
    convert = convert_options(dict.fromkeys(names, pa.string()))
    convert.include_columns, convert.strings_can_be_null = list(names), not literal
    return _trimmed(arrow_csv.read_csv(open_arrow(path), read, parse, convert))


def _trimmed(table: pa.Table) -> pa.Table:
    """The table without blanks around its texts."""
    for position, item in enumerate(table.schema):
        if pa.types.is_string(item.type):
            table = table.set_column(position, item, pc.call_function("utf8_trim_whitespace", [table.column(position)]))
    return table


def _columns_of_thousands(table: pa.Table, path: Path, dialect: Dialect, decimal: str | None) -> list[str]:
    """Columns like 1.234, in which the point separates thousands: they stay text, for `find_notation`.

    So it is beside decimal commas. Where semicolons are all that says so, such a column has two readings.
    """
    if decimal == "point" or (decimal is None and dialect.delimiter != ";" and not _has_commas(table, dialect)):
        return []
    sure, found = decimal == "comma" or _has_commas(table, dialect), []
    for name in [item.name for item in table.schema if pa.types.is_floating(item.type)]:
        written = as_text(path, dialect, [name]).column(name)
        if all(THOUSANDS.fullmatch(text) for text in written.drop_null().unique().to_pylist()):
            found.append(name)
        elif not sure:  # a column such as 0.5 shows that the point is the decimal sign
            return []
    if found and not sure:
        written = as_text(path, dialect, found[:1]).column(found[0])
        text = next(text for text in written.drop_null().to_pylist() if "." in text)
        row = pc.index(written, text).as_py()
        got = f"{text}, which is {text.replace('.', '')} with decimal commas or {float(text):g} with decimal points"
        expected = 'numbers with one reading; use decimal="comma" if the point separates thousands, else '
        raise FormatError(path, got, expected + 'decimal="point"', _line_of(path, dialect, row), found[0])
    return found


def _has_commas(table: pa.Table, dialect: Dialect) -> bool:
    """Whether a column has numbers with a decimal comma."""
    texts = [item.name for item in table.schema if pa.types.is_string(item.type)]
    few = ([text for text in table.column(name)[:50].to_pylist() if text] for name in texts)
    return any((found := find_notation(v, dialect.delimiter)) and "decimal comma" in found[0] for v in few)


def _records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The data rows with their line numbers, read with the csv module."""
    reader = csv.reader((line for _, line in lines(path)), delimiter=dialect.delimiter)
    with decoding(path, "table", csv.Error):
        for fields in reader:
            if fields and reader.line_num > dialect.skipped:
                yield reader.line_num, fields


def _raise_line_error(path: Path, dialect: Dialect) -> None:
    expected = len(dialect.names)
    for line, fields in _records(path, dialect):
        if len(fields) != expected:
            names = ", ".join(dialect.names)
            plural = "" if len(fields) == 1 else "s"
            raise RaggedRowError(path, f"{len(fields)} field{plural}", f"{expected} fields ({names})", line)


def _line_of(path: Path, dialect: Dialect, row: int) -> int:
    return next(islice(_records(path, dialect), row, None))[0]
