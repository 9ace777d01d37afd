"""The types of the columns of a delimited text that is read block by block: those of the same text read at once.

pyarrow fixes the types of a stream by its first block. When a later block has a value of another type, reading begins
again with the type that fits both.
"""

import io
import re
from collections.abc import Callable

import pyarrow as pa
from pyarrow import csv as arrow_csv

from .layout import names_sequences
from .table_sources import TableSource

#: the types that pyarrow tries for a column, in its order; text takes everything
LADDER: tuple[pa.DataType, ...] = (
    pa.null(),
    pa.int64(),
    pa.bool_(),
    pa.date32(),
    pa.time32("s"),
    pa.timestamp("s"),
    pa.timestamp("ns"),
    pa.float64(),
    pa.string(),
)
NOT_OF_TYPE = re.compile(r"CSV column #(?P<column>\d+): .*error to (?P<type>.+?): invalid value '(?P<value>.*)'", re.S)


def read_with_types(
    read: Callable[[dict[str, pa.DataType]], TableSource], names: list[str], types: dict[str, pa.DataType]
) -> tuple[TableSource, list[str]]:
    """`read(types)` with wider types until every value fits, and the columns that began as numbers but are text."""
    types, became_text = dict(types), []
    while True:
        try:
            return read(types), became_text
        except pa.ArrowInvalid as error:
            if (found := NOT_OF_TYPE.search(str(error))) is None:
                raise
            name = names[int(found["column"])]
            types[name] = _wider(name, found["type"], found["value"])
            if types[name] == LADDER[-1] and found["type"] in ("int64", "double"):
                became_text.append(name)


def _wider(name: str, type: str, value: str) -> pa.DataType:
    """The next type that may hold both the values before and this one; whole numbers that name something are text."""
    step = next((k for k, each in enumerate(LADDER) if str(each) == type), len(LADDER) - 2)
    fits = next((k for k, each in enumerate(LADDER) if k > step and _holds(each, value)), len(LADDER) - 1)
    is_name = names_sequences(name) and type == "int64"
    return LADDER[-1] if is_name else LADDER[fits]


def _holds(kind: pa.DataType, value: str) -> bool:
    options = arrow_csv.ConvertOptions(column_types={"f0": kind}), arrow_csv.ReadOptions(column_names=["f0"])
    try:
        arrow_csv.read_csv(io.BytesIO(f'"{value}"\n'.encode()), options[1], convert_options=options[0])
    except pa.ArrowInvalid:
        return False
    return True
