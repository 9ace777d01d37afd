"""The kernels of `device_scan.py`. Rows are steps, columns are units; a program owns a chunk of steps of some units."""

import triton
import triton.language as L
from triton.language import constexpr


@triton.jit
def join(a, b, later_a, later_b):
    """Two neighbouring steps as one."""
    return later_a * a, later_a * b + later_b


@triton.jit
def load_chunk(a, b, first, steps, columns, width, backward: constexpr, STEPS: constexpr):
    """Factors and terms of a chunk, joined from its first step up to each. Past the end a step changes nothing."""
    row = first + L.arange(0, STEPS)
    time = steps - 1 - row if backward else row
    here = (row < steps)[:, None] & (columns < width)[None, :]
    place = time.to(L.int64)[:, None] * width + columns[None, :]
    factors = L.load(a + place, mask=here, other=1.0)
    terms = L.load(b + place, mask=here, other=0.0)
    factors, terms = L.associative_scan((factors, terms), 0, join)
    return factors, terms, place, here


@triton.jit
def last_row(values, STEPS: constexpr):
    is_last = (L.arange(0, STEPS) == STEPS - 1)[:, None]
    return L.sum(L.where(is_last, values, 0.0), 0)


@triton.jit
def chunk_ends(a, b, end_a, end_b, steps, width, backward: constexpr, STEPS: constexpr, COLUMNS: constexpr):
    """What each chunk does to the value before it."""
    chunk, columns = L.program_id(0), L.program_id(1) * COLUMNS + L.arange(0, COLUMNS)
    factors, terms, _, _ = load_chunk(a, b, chunk * STEPS, steps, columns, width, backward, STEPS)
    place = chunk.to(L.int64) * width + columns
    L.store(end_a + place, last_row(factors, STEPS), mask=columns < width)
    L.store(end_b + place, last_row(terms, STEPS), mask=columns < width)


@triton.jit
def chunk_starts(end_a, end_b, start, chunks, width, STEPS: constexpr, COLUMNS: constexpr):
    """The value before each chunk; it is zero before the first one."""
    columns = L.program_id(0) * COLUMNS + L.arange(0, COLUMNS)
    value = L.zeros([COLUMNS], end_a.dtype.element_ty)
    L.store(start + columns, value, mask=columns < width)
    for first in range(0, chunks - 1, STEPS):
        factors, terms, place, here = load_chunk(end_a, end_b, first, chunks - 1, columns, width, False, STEPS)
        values = factors * value[None, :] + terms
        L.store(start + place + width, values, mask=here)
        value = last_row(values, STEPS)


@triton.jit
def all_steps(a, b, start, result, steps, width, backward: constexpr, STEPS: constexpr, COLUMNS: constexpr):
    """The value after every step."""
    chunk, columns = L.program_id(0), L.program_id(1) * COLUMNS + L.arange(0, COLUMNS)
    factors, terms, place, here = load_chunk(a, b, chunk * STEPS, steps, columns, width, backward, STEPS)
    before = L.load(start + chunk.to(L.int64) * width + columns, mask=columns < width, other=0.0)
    L.store(result + place, factors * before[None, :] + terms, mask=here)
