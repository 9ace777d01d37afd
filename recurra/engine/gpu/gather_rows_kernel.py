"""The kernel of `gather_rows.py`."""

import triton
import triton.language as L
from triton.language import constexpr


@triton.jit
def kernel(source, index, result, count, width, ROWS: constexpr, COLUMNS: constexpr):
    row = L.program_id(0) * ROWS + L.arange(0, ROWS)
    live = row < count
    place = L.load(index + row, mask=live, other=0).to(L.int64)
    row = row.to(L.int64)
    for first in range(0, width, COLUMNS):
        column = first + L.arange(0, COLUMNS)
        there = live[:, None] & (column < width)[None, :]
        value = L.load(source + place[:, None] * width + column[None, :], mask=there, other=0.0)
        L.store(result + row[:, None] * width + column[None, :], value, mask=there)
