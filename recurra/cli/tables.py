"""Results as a table: CSV, JSON lines, Parquet or Arrow by the suffix of the file, CSV on standard output."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from recurra.cli.error_handling import writing
from recurra.cli.printing import _plain, as_json
from recurra.errors import UnknownNameError

SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather")


def check_suffix(path: Path | None, more: tuple[str, ...] = ()) -> None:
    """Before the work, not after it."""
    if path is not None and path.suffix.lower() not in (*SUFFIXES, *more):
        raise UnknownNameError("--out", repr(path.name), f"a name that ends in one of {', '.join((*SUFFIXES, *more))}")
    if path is not None and not path.resolve().parent.is_dir():
        raise FileNotFoundError(2, "No such folder", str(path.parent))


def put(columns: dict[str, Any], path: Path | None, as_json_text: bool = False) -> None:
    """Write a table to a file, or print it."""
    if path is None:
        as_json(rows_of(columns)) if as_json_text else _csv(columns, ",", sys.stdout)
        return
    draft = path.with_name(f".{path.name}")
    with writing(path):
        _write(columns, draft, path.suffix.lower())
        os.replace(draft, path)


def rows_of(columns: dict[str, Any]) -> list[dict[str, Any]]:
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
            file.write(json.dumps(_plain(rows_of(columns)), ensure_ascii=False, indent=2) + "\n")
        else:
            file.writelines(json.dumps(_plain(row), ensure_ascii=False) + "\n" for row in rows_of(columns))


def _binary(table: pa.Table, path: Path, suffix: str) -> None:
    from pyarrow import feather, parquet

    if suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, str(path), compression="uncompressed")


def _csv(columns: dict[str, Any], delimiter: str, file: Any) -> None:
    import csv

    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in zip(*columns.values(), strict=True))


def _cell(value: Any) -> Any:
    """Numbers with as many digits as it takes to tell them apart, dates as ISO 8601."""
    return f"{value:.10g}" if isinstance(value, float) else value
