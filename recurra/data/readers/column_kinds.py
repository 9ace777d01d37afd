"""Kinds of columns: number, text, time, clock, list."""

import pyarrow as pa

NOTE = b"recurra"  # metadata of a converted column: how its text was read


def kind_of(kind: pa.DataType) -> str:
    """The kind of a column: "number", "text", "time" (a date), "clock" (a time of day), "list" or "another type"."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "time"
    if pa.types.is_time(kind):
        return "clock"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return "list"
    if is_text(kind) or pa.types.is_dictionary(kind):
        return "text"
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return "number" if numeric or pa.types.is_decimal(kind) or pa.types.is_null(kind) else "another type"


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def type_name(table: pa.Table, column: str) -> str:
    """The type of a column in words, with the notation of a converted one."""
    item = table.schema.field(column)
    names = {"time": "date", "clock": "time of day"}
    found = names.get(kind_of(item.type), kind_of(item.type))
    if pa.types.is_integer(item.type):
        found = "integer"
    elif pa.types.is_boolean(item.type):
        found = "yes or no"
    elif pa.types.is_null(item.type):
        found = "empty"
    note = (item.metadata or {}).get(NOTE, b"").decode()
    return f"{found} ({note})" if note else found
