"""Reads `.arff` files (Weka, the UCR and UEA archives): a header of attributes, then one case per line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pyarrow as pa

from ..data_errors import EmptyFileError, FormatError, RaggedRowError
from ..sequences import SequenceSet
from .fields import split_line
from .layout import TARGET_HINTS, Layout, LayoutOptions
from .open_files import existing, lines, text_encoding
from .table_sources import OpenTable, TableSource
from .tables import sequences_of

NUMERIC = ("numeric", "real", "integer")


def read_arff(path: str | Path, **layout: Unpack[LayoutOptions]) -> SequenceSet:
    """Sequences from an .arff file, with the options of `Layout`.

    Three or more numeric attributes are the steps of a case; one or two are the features of a step, and the cases are
    the steps of one sequence, as in any table. A relational attribute holds the channels of a case, one per line. The
    last nominal attribute is the class, unless another one has a usual name.

    **Example**

        >>> from pathlib import Path
        >>> head = "@relation waves\\n" + "".join(f"@attribute t{k} numeric\\n" for k in range(4))
        >>> _ = Path("waves.arff").write_text(head + "@attribute class {up,down}\\n@data\\n1,2,3,4,up\\n")
        >>> data = rc.data.read_arff("waves.arff")
        >>> data.lengths.tolist(), data.classes
        ([4], ('up',))
    """
    parts = Layout.of(layout)
    with text_encoding(parts.encoding):
        return sequences_of(open_arff(path, parts), parts)


def open_arff(path: str | Path, parts: Layout) -> OpenTable:
    """The table of an .arff file, a column per attribute; a relational attribute is a column of lists."""
    path = existing(path)
    numbered = lines(path)
    attributes = _header(numbered, path)
    cases, places = [], []
    for line, text in numbered:
        if not text.strip() or text.startswith("%"):
            continue
        if text.startswith("{"):
            raise FormatError(path, "a sparse case, {…}", "a value for every attribute", line)
        fields = split_line(text, ",", "'" if "'" in text else '"', skip_blanks=True)
        if len(fields) != len(attributes):
            raise RaggedRowError(path, f"{len(fields)} values", f"{len(attributes)}, one per attribute", line)
        cases.append(fields)
        places.append(line)
    if not cases:
        raise EmptyFileError(path, "no case after @data", "at least one")
    columns = {}
    for k, (name, kind) in enumerate(attributes):
        columns[name] = _column([case[k].strip() for case in cases], kind, path, places, name)
    return OpenTable(TableSource(pa.table(_with_class_named(columns, attributes, parts))), path, places.__getitem__)


def _header(numbered: Iterator[tuple[int, str]], path: Path) -> list[tuple[str, str]]:
    """(name, type) of every attribute; the attributes inside a relational one are its steps."""
    attributes: list[tuple[str, str]] = []
    relation = False
    for line, text in numbered:
        key = text.strip().partition(" ")[0]
        match key.lower():
            case "@data":
                return attributes
            case "@end":
                relation = False
            case "@attribute" if not relation:
                name, kind = _attribute(text.strip()[len(key) :].strip(), path, line)
                relation = kind == "relational"
                attributes.append((name, kind))
            case "" | "@relation" | "@attribute":
                pass
            case other if not other.startswith("%"):
                raise FormatError(path, repr(text[:40]), "@relation, @attribute or @data", line)
    raise FormatError(path, "no @data", "a line @data before the cases")


def _attribute(text: str, path: Path, line: int) -> tuple[str, str]:
    if text[:1] in "'\"" and (end := text.find(text[0], 1)) > 0:
        name, kind = text[1:end], text[end + 1 :]
    else:
        name, _, kind = text.replace("\t", " ").partition(" ")
    kind = kind.strip()
    if kind.startswith("{"):
        return name, "nominal"
    lowered = kind.lower().split(" ")[0]
    if lowered not in (*NUMERIC, "string", "date", "relational"):
        raise FormatError(path, repr(kind[:40]), "numeric, {a,b,…}, string, date or relational", line, name)
    return name, "numeric" if lowered in NUMERIC else lowered


def _column(texts: list[str], kind: str, path: Path, places: list[int], name: str) -> pa.Array:
    if kind == "numeric":
        return pa.array([None if text == "?" else _number(text, path, places[k], name) for k, text in enumerate(texts)])
    if kind == "relational":
        return pa.array([_channels(text, path, places[k], name) for k, text in enumerate(texts)])
    found = pa.array([None if text == "?" else text.strip("'\"") for text in texts], pa.string())
    return found.dictionary_encode() if kind == "nominal" else found  # classes stay text where they are called 1, 2, …


def _channels(text: str, path: Path, line: int, name: str) -> list[Any]:
    """The steps of a case, each a list with the value of every channel."""
    rows = [[_number(value, path, line, name) for value in row.split(",")] for row in text.split("\\n") if row]
    if len({len(row) for row in rows}) != 1:
        raise FormatError(path, "channels of different lengths", "equally many values per channel", line, name)
    return np.array(rows).T.tolist()


def _number(text: str, path: Path, line: int, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise FormatError(path, repr(text[:40]), "a number", line, name) from error


def _with_class_named(columns: dict[str, Any], attributes: list[tuple[str, str]], parts: Layout) -> dict[str, Any]:
    """The last attribute, if it is nominal, named "class": the convention of the archives."""
    name, kind = attributes[-1]
    usual = any(column.lower() in TARGET_HINTS for column in columns)
    if kind != "nominal" or usual or name in (parts.label, parts.id, *(parts.target or ())):
        return columns
    return {("class" if column == name else column): values for column, values in columns.items()}
