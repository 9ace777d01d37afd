"""The kernel that finds the states before all chunks of a state that reads itself alone, many chunks at once."""

import triton
import triton.language as L
from triton.language import constexpr


@triton.jit
def join(p, q, later_p, later_q):
    """Two neighbouring chunks as one. Zero stays zero, whatever the factor."""
    return later_p * p, later_q + L.where(q == 0.0, 0.0, later_p * q)


@triton.jit
def kernel(
    effect, factor, given, start, width, stride, offset, batch, chunks, CHUNKS: constexpr, UNITS: constexpr
):  # fmt: skip
    row = L.program_id(0)
    u = L.program_id(1) * UNITS + L.arange(0, UNITS)
    state = L.load(given + row * stride + offset + u, mask=u < width, other=0.0).to(L.float64)
    L.store(start + row * width + u, state.to(L.float32), mask=u < width)
    for first in range(0, chunks - 1, CHUNKS):
        chunk = first + L.arange(0, CHUNKS)
        here = (chunk < chunks - 1)[:, None] & (u < width)[None, :]
        place = (chunk.to(L.int64) * batch + row)[:, None] * width + u[None, :]
        p = L.load(factor + place, mask=here, other=1.0)
        q = L.load(effect + place, mask=here, other=0.0).to(L.float64)
        p, q = L.associative_scan((p, q), 0, join)
        old = state[None, :]
        new = q + L.where(old == 0.0, 0.0, p * old)
        L.store(start + place + batch * width, new.to(L.float32), mask=here)
        is_last = (L.arange(0, CHUNKS) == CHUNKS - 1)[:, None]
        state = L.sum(L.where(is_last, new, 0.0), 0)
