"""Rows of a CSV file or of standard input as (features, target), read one at a time."""

import csv
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from recurra.argument_checks import path_of
from recurra.errors import InputError, UnknownNameError


def read_rows(
    data: str, target: str | None, ignore: list[str], labels: list[str] | int | None, seen: list[str]
) -> Iterator[tuple[dict[str, float], Any]]:
    """Every row as numbers by column and its target; the text of the target is appended to `seen`."""
    with ExitStack() as stack:
        if data == "-":
            lines: Any = sys.stdin
        else:
            path = path_of("DATA", data)
            if not path.is_file():
                raise InputError("DATA", data, "a CSV file, or - for standard input")
            lines = stack.enter_context(path.open(newline="", encoding="utf-8-sig"))
        reader = csv.DictReader(lines)
        names = list(reader.fieldnames or [])
        if not names:
            raise InputError("DATA", "no header", "a first line with the names of the columns")
        wanted = names[-1] if target is None else target
        for name in (wanted, *ignore):
            if name not in names:
                raise UnknownNameError("column", name, names)
        inputs = [name for name in names if name != wanted and name not in ignore]
        for row in reader:
            x = {name: _number(row[name], name, reader.line_num) for name in inputs}
            text = (row[wanted] or "").strip()
            seen.append(text)
            yield x, text if labels is not None else _number(text, wanted, reader.line_num)


def _number(text: str | None, column: str, line: int) -> float:
    try:
        return float(text or "")
    except ValueError:
        hint = "a number; leave text columns out with --ignore; --classes takes labels of the target, or their number"
        raise InputError(f"line {line}, column {column}", repr(text), hint) from None
