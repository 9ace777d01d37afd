"""Reads `.tsf` files of the Monash forecasting archive: one series per line, with its name and first date."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import SequenceSet
from .layout import Layout, LayoutOptions
from .open_files import existing, lines, text_encoding
from .table_sources import OpenTable, TableSource
from .tables import sequences_of

#: frequency → (unit of numpy, how many)
FREQUENCIES = {
    "yearly": ("M", 12),
    "quarterly": ("M", 3),
    "monthly": ("M", 1),
    "weekly": ("D", 7),
    "daily": ("D", 1),
    "hourly": ("h", 1),
    "half_hourly": ("m", 30),
    "minutely": ("m", 1),
    "10_minutes": ("m", 10),
    "15_minutes": ("m", 15),
    "5_minutes": ("m", 5),
    "4_seconds": ("s", 4),
}


def read_tsf(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Series from a .tsf file, with the options of `Layout`; the columns are unique_id, ds, y and the attributes.

    **Example**

        >>> from pathlib import Path
        >>> head = "@relation rain\\n@attribute series_name string\\n@frequency monthly\\n@missing false\\n"
        >>> _ = Path("rain.tsf").write_text(head + "@horizon 2\\n@equallength true\\n@data\\nT1:1,2,3\\nT2:5,6,7\\n")
        >>> data = rc.data.read_tsf("rain.tsf")
        >>> data.task, data.names
        ('forecasting', ['T1', 'T2'])
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_tsf(path, parts), parts)


def open_tsf(path: str | Path, parts: Layout) -> OpenTable:
    """The series as a long table `unique_id, ds, y`, with a column for every further attribute."""
    path = existing(path)
    numbered = lines(path)
    attributes, frequency = _header(numbered, path)
    columns: dict[str, list[Any]] = {"unique_id": [], "ds": [], "y": []}
    columns |= {name: [] for name, _ in attributes if name not in ("series_name", "start_timestamp")}
    places: list[int] = []
    for line, text in numbered:
        if not text.strip() or text.startswith("#"):
            continue
        *fields, series = text.split(":")
        if len(fields) != len(attributes):
            raise RaggedRowError(path, f"{len(fields)} attributes", f"{len(attributes)} before the series", line)
        values = [_number(value, path, line) for value in series.split(",")]
        named = dict(zip((name for name, _ in attributes), fields, strict=True))
        columns["unique_id"] += [named.pop("series_name", f"T{len(set(places)) + 1}").strip()] * len(values)
        columns["ds"] += _times(named.pop("start_timestamp", None), frequency, len(values), path, line)
        columns["y"] += values
        for name, value in named.items():
            kind = dict(attributes)[name]
            columns[name] += [float(value) if kind == "numeric" else value] * len(values)
        places += [line] * len(values)
    if not places:
        raise EmptyFileError(path, "no series after @data", "at least one")
    if columns["ds"][0] is None:
        del columns["ds"]
    return OpenTable(TableSource(pa.table(columns)), path, places.__getitem__)


def _header(numbered: Iterator[tuple[int, str]], path: Path) -> tuple[list[tuple[str, str]], str | None]:
    attributes, frequency = [], None
    for line, text in numbered:
        words = text.split()
        if not words or text.startswith("#"):
            continue
        match words[0].lower(), words[1:]:
            case "@data", _:
                return attributes, frequency
            case "@attribute", [name, kind]:
                attributes.append((name, kind.lower()))
            case "@frequency", [name]:
                frequency = name.lower()
            case key, _ if not key.startswith("@"):
                raise FormatError(path, repr(text[:40]), "a header line that begins with @ or #", line)
    raise FormatError(path, "no @data", "a line @data before the series")


def _times(start: str | None, frequency: str | None, count: int, path: Path, line: int) -> list[Any]:
    """The times of a series from its first; all None without a start or a frequency."""
    if start is None or frequency is None:
        return [None] * count
    if frequency not in FREQUENCIES:
        raise FormatError(path, f"the frequency {frequency}", f"one of {', '.join(FREQUENCIES)}")
    day, _, clock = start.strip().partition(" ")
    try:
        first = np.datetime64(f"{day}T{clock.replace('-', ':') or '00:00:00'}", "us")
    except ValueError as error:
        raise FormatError(path, repr(start), "a start like 1979-01-01 00-00-00", line, "start_timestamp") from error
    unit, many = FREQUENCIES[frequency]
    if unit == "M":
        month = first.astype("datetime64[M]")
        rest = first - month.astype("datetime64[us]")
        return [(month + many * k).astype("datetime64[us]") + rest for k in range(count)]
    return list(first + (many * np.arange(count)).astype(f"timedelta64[{unit}]"))


def _number(text: str, path: Path, line: int) -> float | None:
    if text.strip() in ("?", "NaN", "nan", ""):
        return None
    try:
        return float(text)
    except ValueError as error:
        raise FormatError(path, repr(text[:40]), "a number or ?", line, "y") from error
