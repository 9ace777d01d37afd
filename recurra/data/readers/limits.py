"""Limits on what a file may become in memory: decoded bytes and nesting depth, checked before anything is allocated.

Compression and run lengths can make gigabytes of a few megabytes. A file may become 256 MiB, or 32 times its own size
if that is more. One setting replaces both numbers: `rc.data.read(…, max_bytes=…)`, or the environment variable
RECURRA_MAX_BYTES for everything that reads data, the command line included.
"""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ..data_errors import FormatError, SizeError

VARIABLE = "RECURRA_MAX_BYTES"
ALWAYS_ALLOWED = 256 << 20
RATIO = 32  # decoded bytes per byte of the file
MAX_DEPTH = 64  # of lists and objects inside each other

_GIVEN: ContextVar[int | None] = ContextVar("recurra.data.max_bytes", default=None)
_STEP = np.zeros(256, np.int8)  # what a byte adds to the depth
_STEP[[ord("["), ord("{")]], _STEP[[ord("]"), ord("}")]] = 1, -1
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


@contextmanager
def allow_bytes(max_bytes: int | None) -> Iterator[None]:
    """Allow files inside the block to become so many bytes; None leaves the limit as it is."""
    if max_bytes is None:
        yield
        return
    token = _GIVEN.set(_positive("max_bytes", max_bytes))
    try:
        yield
    finally:
        _GIVEN.reset(token)


def max_bytes(file_size: int) -> int:
    """How many bytes a file of this size may become."""
    given = _GIVEN.get()
    if given is None and (written := os.environ.get(VARIABLE)):
        given = _positive(VARIABLE, written)
    return max(ALWAYS_ALLOWED, RATIO * file_size) if given is None else given


def _positive(argument: str, value: Any) -> int:
    try:
        number = int(float(value))
    except (TypeError, ValueError, OverflowError):
        number = 0
    if number < 1 or isinstance(value, bool):
        raise InputError(argument, repr(value), "a positive number of bytes")
    return number


def check_decoded(path: Path, size: int, where: str | Path | None = None) -> None:
    """Raise `SizeError` if the content of a file, once decoded, is larger than its limit."""
    on_disk = path.stat().st_size
    if size > (limit := max_bytes(on_disk)):
        raise too_large(where or path, f"{size:,} bytes once decoded, in a file of {on_disk:,}", limit)


def too_large(where: str | Path, got: str, limit: int) -> SizeError:
    return SizeError(where, got, f"at most {limit:,}; raise the limit with max_bytes= or {VARIABLE}")


def check_depth(block: bytes, path: str | Path) -> None:
    """Raise `FormatError` for a line of JSON that is nested too deeply: parsers recurse, and the stack ends."""
    codes = np.frombuffer(block, np.uint8)
    if not len(codes):
        return
    starts = np.concatenate([[0], np.flatnonzero(codes[:-1] == ord("\n")) + 1, [len(codes)]])
    openings = np.add.reduceat(_STEP[codes] > 0, starts[:-1], dtype=np.int64)
    for number in np.flatnonzero(openings > MAX_DEPTH):  # the others cannot be deep
        line = STRING.sub(b"", block[starts[number] : starts[number + 1]])
        depth = int(np.cumsum(_STEP[np.frombuffer(line, np.uint8)], dtype=np.int64).max(initial=0))
        if depth > MAX_DEPTH:
            raise FormatError(path, f"lists or objects nested {depth} deep", f"at most {MAX_DEPTH}")


def parse_json(text: str, path: str | Path) -> Any:
    """`json.loads`, after a check of the nesting depth."""
    check_depth(text.replace("\n", " ").encode(), path)
    return json.loads(text)
