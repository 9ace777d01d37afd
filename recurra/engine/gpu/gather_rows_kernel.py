"""The kernel of `gather_rows.py`."""

import triton
import triton.language as L
from triton.language import constexpr


@triton.jit
def kernel(
    source, order, lengths, result, count, batch, width, ends: constexpr, ROWS: constexpr, COLUMNS: constexpr
):  # fmt: skip
    row = L.program_id(0) * ROWS + L.arange(0, ROWS)
    live = row < count
    step, place = row // batch, row % batch
    sequence = L.load(order + place, mask=live, other=0)
    holds = live
    if ends:  # past its end a row repeats its last step, if it has one
        count_here = L.load(lengths + place, mask=live, other=0).to(L.int32)
        step = L.minimum(step, L.maximum(count_here - 1, 0))
        holds = live & (count_here > 0)
    place = step.to(L.int64) * batch + sequence.to(L.int64)
    row = row.to(L.int64)
    for first in range(0, width, COLUMNS):
        column = first + L.arange(0, COLUMNS)
        here = (column < width)[None, :]
        value = L.load(source + place[:, None] * width + column[None, :], mask=holds[:, None] & here, other=0.0)
        L.store(result + row[:, None] * width + column[None, :], value, mask=live[:, None] & here)
