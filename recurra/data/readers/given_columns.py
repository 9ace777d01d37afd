"""What is settled before columns get roles: values that mean "missing", and ids in several columns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...numerals import is_number
from ..data_errors import MissingColumnError
from .column_conversion import Conversion, converted
from .column_kinds import kind_of
from .layout import Layout
from .table_scan import strings
from .table_sources import OpenTable, Source, TableSource


def without_missing_values(opened: OpenTable, layout: Layout) -> Source:
    """The source in which the values of `na` are missing: as numbers, or as texts."""
    if not layout.na:
        return opened.source
    kept = {layout.id, *(layout.id or "").split("+"), layout.label}
    changed = []
    for item in opened.source.schema:
        kind = kind_of(item.type)
        if item.name in kept or kind not in ("number", "text") or pa.types.is_null(item.type):
            continue
        apply = partial(_as_nulls, values=layout.na, kind=kind)
        as_text = pa.string() if kind == "text" else item.type
        changed.append(Conversion(item.name, (item.name,), as_text, "", apply))
    return converted(opened.source, changed, opened)


def _as_nulls(parts: list[pa.Array], values: Sequence[str], kind: str) -> pa.Array:
    column = strings(parts[0]) if kind == "text" else parts[0]
    if kind == "text":
        is_missing = pc.call_function("is_in", [column], pc.SetLookupOptions(value_set=pa.array(values, pa.string())))
    else:
        numbers = [float(value) for value in values if is_number(value)]
        as_numbers = pc.cast(column, pa.float64(), safe=False)
        is_missing = pa.array(np.isin(as_numbers.to_numpy(zero_copy_only=False), numbers))
    return pc.call_function("if_else", [is_missing, pa.scalar(None, column.type), column])


def with_joined_id(opened: OpenTable, layout: Layout) -> tuple[Source, Layout]:
    """The source with a column `a+b` of the ids a and b, if these are asked for; a and b are then no inputs."""
    names, source = tuple((layout.id or "").split("+")), opened.source
    if len(names) < 2 or layout.id in source.schema.names:
        return source, layout
    for name in names:
        if name not in source.schema.names:
            raise MissingColumnError.among(opened.file, name, source.schema.names)
    joined = Conversion(layout.id or "", names, pa.string(), "", _joined)
    source = _as_written(source, names, opened)
    taken = {*layout.ignore, *layout.static, *(layout.features or ()), *(layout.target or ()), layout.label}
    ignore = (*layout.ignore, *(name for name in names if name not in taken))
    return converted(source, [joined], opened), replace(layout, ignore=ignore)


def _as_written(source: Source, names: Sequence[str], opened: OpenTable) -> Source:
    """The source with ids that were read as numbers as they stand in the file: 007, not 7."""
    numbers = [name for name in names if kind_of(source.schema.field(name).type) == "number"]
    if opened.as_written is None or not isinstance(source, TableSource) or not numbers:
        return source
    written, table = opened.as_written(numbers), source.table
    for name in numbers:
        table = table.set_column(table.schema.get_field_index(name), name, written.column(name))
    return TableSource(table)


def _joined(parts: list[pa.Array]) -> pa.Array:
    return pc.call_function("binary_join_element_wise", [*map(strings, parts), pa.scalar("/")])
