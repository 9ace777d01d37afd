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
    if ends:  # past its end a row repeats its last step
        last = L.load(lengths + place, mask=live, other=1).to(L.int32) - 1
        sequence = L.where(last < 0, L.load(order), sequence)
        step = L.minimum(step, L.maximum(last, 0))
    place = step.to(L.int64) * batch + sequence.to(L.int64)
    row = row.to(L.int64)
    for first in range(0, width, COLUMNS):
        column = first + L.arange(0, COLUMNS)
        there = live[:, None] & (column < width)[None, :]
        value = L.load(source + place[:, None] * width + column[None, :], mask=there, other=0.0)
        L.store(result + row[:, None] * width + column[None, :], value, mask=there)
