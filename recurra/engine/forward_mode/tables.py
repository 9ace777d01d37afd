"""Tables that C++ reads: structures whose fields have eight bytes each."""

import ctypes
from collections.abc import Sequence
from typing import Any


def structure(name: str, *fields: str) -> Any:
    """Eight bytes a field: "name" is an integer, "*name" an address, "=name" a number."""
    types = {"*": ctypes.c_void_p, "=": ctypes.c_double}
    pairs = [(f.lstrip("*="), types.get(f[0], ctypes.c_int64)) for f in " ".join(fields).split()]
    return type(name, (ctypes.Structure,), {"_fields_": pairs})


def array(kind: Any, rows: Sequence[Any]) -> Any:
    """Structures one after another; at least one, so that there is an address."""
    return (kind * max(len(rows), 1))(*rows)
