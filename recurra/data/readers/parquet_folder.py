"""A folder of Parquet files as one table; folders named `column=value` add columns, as Hive and Spark write them."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from ..data_errors import FormatError
from .table_sources import GroupCache, Source

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
INT64 = 1 << 63


class FolderSource:
    """The rows of several files, one after the other; row groups of all share one cache."""

    def __init__(self, files: Sequence[Source], constants: Sequence[dict[str, Any]], schema: pa.Schema):
        self.files, self.constants, self.schema = list(files), list(constants), schema
        self.starts = [0, *accumulate(file.rows for file in files)]
        self.rows = self.starts[-1]

    @property
    def window_rows(self) -> int | None:
        return min((rows for file in self.files if (rows := getattr(file, "window_rows", None))), default=None)

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for number, file in enumerate(self.files):
            for batch in file.scan(self._stored(columns, number)):
                yield from self._complete(pa.Table.from_batches([batch]), columns, number, batch.num_rows).to_batches()

    def read(self, columns: Sequence[str], start: int, stop: int) -> pa.Table:
        parts, number = [], bisect_right(self.starts, start) - 1
        while start < stop:
            first, last = self.starts[number : number + 2]
            end = min(stop, last)
            if end > start:
                table = self.files[number].read(self._stored(columns, number), start - first, end - first)
                parts.append(self._complete(table, columns, number, end - start))
            start, number = end, number + 1
        return pa.concat_tables(parts)

    def _stored(self, columns: Sequence[str], number: int) -> list[str]:
        """The columns that are in the file; one at least, which counts the rows."""
        found = [name for name in columns if name not in self.constants[number]]
        return found or self.files[number].schema.names[:1]

    def _complete(self, table: pa.Table, columns: Sequence[str], number: int, rows: int) -> pa.Table:
        constants, found = self.constants[number], []
        for name in columns:
            kind = self.schema.field(name).type
            is_constant = name in constants
            found.append(pa.repeat(pa.scalar(constants[name], kind), rows) if is_constant else table.column(name))
        return pa.table(found, schema=pa.schema([self.schema.field(name) for name in columns]))


def open_folder(folder: Path, open_file: Callable[[Path, GroupCache], Source]) -> FolderSource:
    """All Parquet files of a folder and its folders, sorted by path; hidden ones and `_metadata` are left out."""
    paths = parquet_files(folder)
    if not paths:
        raise FormatError(folder, "a folder without Parquet files", "files named *.parquet")
    cache = GroupCache()
    files = [open_file(path, cache) for path in paths]
    cache.limit = max(cache.limit, *(2 * getattr(file, "largest", 0) for file in files))
    constants = [_constants(path.relative_to(folder)) for path in paths]
    for path, file, values in zip(paths, files, constants, strict=True):
        _check_same(path, file.schema, values, paths[0], files[0].schema, constants[0])
    kinds = {name: _kind([values[name] for values in constants]) for name in constants[0]}
    plain = [{name: _value(text, kinds[name]) for name, text in values.items()} for values in constants]
    schema = files[0].schema.remove_metadata()
    for name, kind in kinds.items():
        schema = schema.append(pa.field(name, kind))
    return FolderSource(files, plain, schema)


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files below a folder, in the order of their paths."""
    found = (path.relative_to(folder) for path in folder.rglob("*.parquet") if path.is_file())
    return [folder / path for path in sorted(found) if not any(part.startswith((".", "_")) for part in path.parts)]


def _constants(path: Path) -> dict[str, str]:
    """The columns that the names of the folders give: `year=2024/month=3` is year and month."""
    pairs = [part.split("=", 1) for part in path.parts[:-1] if "=" in part]
    return {unquote(name): unquote(value) for name, value in pairs}


def _check_same(
    path: Path, schema: pa.Schema, values: dict[str, str], first: Path, expected: pa.Schema, others: dict[str, str]
) -> None:
    """All files have the columns of the first, with the same types, and stand in folders of the same kind."""
    if values.keys() != others.keys():
        got = f"the folders {', '.join(values) or 'without a column'}"
        raise FormatError(path, got, f"{', '.join(others) or 'none'}, as of {first.name}")
    inside = values.keys() & set(schema.names)
    if inside:
        raise FormatError(path, f"the column {min(inside)!r} in the file and in its folder", "one of the two")
    for field in expected:
        if field.name not in schema.names or schema.field(field.name).type != field.type:
            got = str(schema.field(field.name).type) if field.name in schema.names else "no such column"
            raise FormatError(path, got, f"{field.type}, as in {first.name}", column=field.name)


def _kind(texts: Sequence[str]) -> pa.DataType:
    """Whole numbers if all are; a text such as 007 is none, since it would not be written so again."""
    known = [text for text in texts if text != NO_VALUE]
    whole = known and all(text.lstrip("-").isdecimal() and str(int(text)) == text for text in known)
    return pa.int64() if whole and all(-INT64 <= int(text) < INT64 for text in known) else pa.string()


def _value(text: str, kind: pa.DataType) -> Any:
    return None if text == NO_VALUE else int(text) if pa.types.is_integer(kind) else text
