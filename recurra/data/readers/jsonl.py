"""JSON lines: one object a line, a step or a whole sequence."""

import json
from itertools import islice
from pathlib import Path
from typing import Unpack

import pyarrow as pa
from pyarrow import json as arrow_json

from recurra.data.errors import FormatError
from recurra.data.readers.layout import Layout, LayoutOptions
from recurra.data.readers.opening import existing, lines, open_arrow, text_blocks
from recurra.data.readers.sources import Source, TableSource, spooled
from recurra.data.readers.tables import sequences_of
from recurra.data.sequences import SequenceSet

IN_MEMORY = 128 << 20
BLOCK = 16 << 20  # an object may be as long as this


def read_jsonl(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from JSON lines, with the options of `Layout`.

    `{"unique_id": "a", "ds": "2024-01-01", "y": 3.5}` is a step; `{"inputs": [[…], …], "label": "x"}`,
    `{"tokens": […], "tags": […]}` and `{"text": "…", "label": "x"}` are whole sequences.
    """
    path, parts = existing(path), Layout.of(layout)
    try:
        source = _source(path)
    except (pa.ArrowInvalid, OSError) as error:
        _explain(path)  # raises, when the fault is one that has a line
        raise FormatError(path, str(error).splitlines()[0], "objects with the same fields on every line") from error
    return sequences_of(source, parts, path, place=lambda row: _line_of(path, row))


def _source(path: Path) -> Source:
    for _ in text_blocks(path):  # pyarrow takes any bytes for UTF-8
        pass
    options = arrow_json.ReadOptions(use_threads=False, block_size=BLOCK)
    with open_arrow(path) as file:
        if path.stat().st_size <= IN_MEMORY:
            return TableSource(arrow_json.read_json(file, options))
        stream = arrow_json.open_json(file, options)
        return spooled(stream.schema, stream)


def _explain(path: Path) -> None:
    fields: dict[str, type] = {}
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise FormatError(path, error.msg, "one JSON object", number, error.colno) from error
        if not isinstance(record, dict):
            raise FormatError(path, f"a {type(record).__name__}", "one JSON object", number)
        for name, value in record.items():
            kind = float if isinstance(value, int | float) else type(value)
            if value is not None and fields.setdefault(name, kind) is not kind:
                expected = f"a {fields[name].__name__}, as before"
                raise FormatError(path, f"a {kind.__name__}", expected, number, name)


def _line_of(path: Path, row: int) -> int:
    filled = (number for number, line in lines(path) if line.strip())
    return next(islice(filled, row, None))
