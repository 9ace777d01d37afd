"""Shapes of parameters in terms of D, the inputs, and H, the units."""

from collections.abc import Sequence

INPUTS, UNITS = 10, 16  # sizes at which no sum or small multiple of one is one of the other


def symbolic(size: int) -> str:
    """`32` at 16 units is `2H`; a size that follows from neither is the number itself."""
    known = {INPUTS: "D", UNITS: "H", INPUTS + UNITS: "D + H", UNITS // 2: "H/2", UNITS**2: "H²"}
    if size in known:
        return known[size]
    for base, letter in ((UNITS, "H"), (INPUTS, "D")):
        if size % base == 0:
            return f"{size // base}{letter}"
    return str(size)


def shape(sizes: Sequence[int]) -> str:
    return "(" + ", ".join(map(symbolic, sizes)) + ("," if len(sizes) == 1 else "") + ")"
