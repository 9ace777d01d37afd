"""Writes a table to a file in the format of its suffix, or to standard output as CSV or JSON."""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from recurra.cli.control_characters import write_visible
from recurra.cli.error_handling import report_errors_as
from recurra.cli.printing import print_json, to_plain
from recurra.errors import InputError
from recurra.numerals import is_number

FORMULA = ("=", "+", "-", "@", "\t", "\r")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather")


def check_suffix(path: Path | None, more: tuple[str, ...] = ()) -> None:
    """Raise early for a suffix that `write_table` does not know, or a folder that does not exist."""
    if path is not None and path.suffix.lower() not in (*SUFFIXES, *more):
        raise InputError("--out", repr(path.name), f"a file name ending in {', '.join((*SUFFIXES, *more))}")
    if path is not None and not path.resolve().parent.is_dir():
        raise FileNotFoundError(2, "No such folder", str(path.parent))


def write_table(columns: dict[str, Any], path: Path | None, as_json: bool = False) -> None:
    """Write a table, name → values, to a file, or print it."""
    if path is None and as_json:
        print_json(to_records(columns))
        return
    if path is None:
        printed = io.StringIO()
        _csv(columns, ",", printed)
        write_visible(printed.getvalue(), sys.stdout)
        return
    draft = path.with_name(f".{path.name}")
    with report_errors_as(path):
        _write(columns, draft, path.suffix.lower())
        os.replace(draft, path)


def to_records(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _write(columns: dict[str, Any], path: Path, suffix: str) -> None:
    if suffix in (".parquet", ".arrow", ".feather"):
        table = pa.table({name: pa.array(values) for name, values in columns.items()})
        _binary(table, path, suffix)
        return
    with path.open("w", encoding="utf-8", newline="") as file:
        if suffix in (".csv", ".tsv"):
            _csv(columns, "\t" if suffix == ".tsv" else ",", file)
        elif suffix == ".json":
            file.write(json.dumps(to_plain(to_records(columns)), ensure_ascii=False, indent=2) + "\n")
        else:
            file.writelines(json.dumps(to_plain(row), ensure_ascii=False) + "\n" for row in to_records(columns))


def _binary(table: pa.Table, path: Path, suffix: str) -> None:
    from pyarrow import feather, parquet

    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path), compression="uncompressed")


def _csv(columns: dict[str, Any], delimiter: str, file: Any) -> None:
    import csv

    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(map(_cell, columns))
    writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))


def _cell(value: Any) -> Any:
    """Floats with ten significant digits. Text that a spreadsheet would run as a formula begins with an apostrophe."""
    if isinstance(value, float):
        return f"{value:.10g}"
    is_formula = isinstance(value, str) and value.startswith(FORMULA) and not is_number(value)
    return f"'{value}" if is_formula else value
