"""Words of a program of `instructions.h`: codes, addresses, rows; and the library that runs it."""

import ctypes
import functools
import struct
from pathlib import Path

from ..cpu import compiler
from ..cpu.codegen import KERNELS
from ..ir.table import TABLE

CODES = [
    "ELEMENTWISE",
    "COPY",
    "PRODUCT",
    "ROWSUM",
    "ROWMAX",
    "GATHER",
    "ZERO",
    "ADD_DIAGONAL",
    "ADD_PRODUCT",
    "SCALE_ROWS",
    "MULTIPLY",
    "ADD_SCALED_COLUMNS",
    "SUM_SCALED_COLUMNS",
    "SPREAD_COLUMN",
    "SCATTER",
    "BACK_DIAGONAL",
    "BACK_MATRIX",
    "OWN",
    "KEEP_ROWS",
    "OUTER",
    "OUTER_MATRIX",
    "FROM_OWN",
    "FROM_SHEET",
]
CODE = {name: number for number, name in enumerate(CODES)}
OPERATIONS = {op: number for number, op in enumerate(op for op, rule in TABLE.items() if rule.cpp)}
OFTEN = {"add", "sub", "mul", "neg", "sigmoid", "tanh"}  # with a loop of their own for rows of whole vectors
NOWHERE = -1  # an address that is not there
REGION = 40  # bits of an offset


def address(region: int, offset: int) -> int:
    return (region << REGION) | offset


def bits(value: float) -> int:
    """A number as the bits of a double."""
    return struct.unpack("<q", struct.pack("<d", value))[0]


def _case(op: str) -> str:
    template = TABLE[op].cpp
    if op == "clamp":
        expression = "flags & 1 ? at_least(A, real(attr)) : A; if (flags & 2) v = at_most(v, real(attr2))"
    else:
        expression = template.format("A", "B", "C", attr="attr")
    names = {"A": ("a", "{0}"), "B": ("b_", "{1}"), "C": ("c_", "{2}")}
    used = {n: row for n, (row, mark) in names.items() if mark in template or (op == "clamp" and n == "A")}
    operands = "".join(f"const vec {name} = {row}.get(j, count); " for name, row in used.items())
    general = f"ITEMS COLUMNS_OF(width) {{ {operands}vec v = {expression}; store(y + j, v, count); }}"
    if op not in OFTEN:
        return f"case {OPERATIONS[op]}: {general} break;"
    rows = "".join(f"const vec {name} = *(const loose*)({row}.p + j); " for name, row in used.items())
    whole = " && ".join(["width % W == 0", *(f"{row}.step == 1" for row in used.values())])
    quick = f"ITEMS UNROLLED for (int64_t j = 0; j < width; j += W) {{ {rows}*(loose*)(y + j) = {expression}; }}"
    return f"case {OPERATIONS[op]}: if ({whole}) {quick} else {general} break;"


@functools.cache
def library(real: str) -> ctypes.CDLL:
    """The interpreter for `float` or `double`; raises `BuildError` where nothing can be compiled."""
    cases = " ".join(map(_case, OPERATIONS))
    names = "\n".join(f"#define {name} {number}" for name, number in CODE.items())
    headers = (
        "instructions.h",
        "recursions.h",
        "row_chunk.h",
        "online_chunk.h",
        "estimates.h",
        "kronecker.h",
        "online_loop.h",
    )
    here = "\n".join(Path(__file__).with_name(name).read_text(encoding="utf-8") for name in headers)
    parts = [
        f"#define REAL {real}",
        *((KERNELS / n).read_text(encoding="utf-8") for n in ("vectors.h", "elementwise.h")),
    ]
    return compiler.load("\n".join([*parts, names, f"#define ELEMENTWISE_CASES {cases}", here]))
