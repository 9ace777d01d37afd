"""What rendered kernels are written in, in plain Triton: those of single steps (`stepwise_text.py`) on any card, and
those of all steps in Triton's interpreter, for which the helpers of `tiles_gluon.py` are here name by name.

The interpreter runs one program after another, so a program that waits for a later one would wait for ever: kernels of
all steps run here with one program to a batch tile, and show that the equations are right, not that programs find each
other.
"""

import triton
import triton.language as L

jit = triton.jit
constexpr = L.constexpr
DIALECT = "triton"


@triton.jit
def rows(first, BT: constexpr, U: constexpr, S: constexpr):
    return (first + L.arange(0, BT))[:, None]


@triton.jit
def columns(first, BT: constexpr, U: constexpr, S: constexpr):
    return (first + L.arange(0, U))[None, :]


@triton.jit
def zeros(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([BT, U], L.float32)


@triton.jit
def choose(condition, one, other):
    return L.where(condition, one, other)


@triton.jit
def read(place, mask):
    return L.load(place, mask=mask, other=0.0).to(L.float32)


@triton.jit
def fetch(place, mask):
    """As it is: whoever converts it at once waits for it."""
    return L.load(place, mask=mask, other=0.0)


@triton.jit
def write(place, value, mask):
    L.store(place, value.to(place.dtype.element_ty), mask=mask)


@triton.jit
def publish(place, value, mask):
    write(place, value, mask)


@triton.jit
def _missing(value):
    if value.dtype.primitive_bitwidth == 32:
        return L.max((value.to(L.int32, bitcast=True) == -1).to(L.int32))
    else:
        return L.max((value.to(L.int16, bitcast=True) == -1).to(L.int32))


@triton.jit
def weights(
    place,
    first,
    across: constexpr,
    down: constexpr,
    wide: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    U: constexpr,
    S: constexpr,
):
    k = start + (L.arange(0, S) * KC)[:, None, None] + L.arange(0, KC)[None, :, None]
    u = first + L.arange(0, U)[None, None, :]
    return L.load(place + u * across + k * down, mask=(u < wide) & (k < deep), other=0.0)


@triton.jit
def operand(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    k = start + (L.arange(0, S) * KC)[:, None, None] + L.arange(0, KC)[None, None, :]
    r = first + L.arange(0, BT)[None, :, None]
    return L.load(place + r * stride + k, mask=(r < batch) & (k < deep) & ((k * 0 + there) != 0), other=0.0)


@triton.jit
def absent(
    place,
    there,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    deep: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    return _missing(operand(place, there, first, batch, stride, start, deep, KC, BT, S))


@triton.jit
def early(place, there, first, batch, stride: constexpr, deep: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    return 0


@triton.jit
def nothing(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([S, BT, U], L.float32)


@triton.jit
def dot(a, w, total, PRECISION: constexpr):
    return L.dot(a, w, total)


@triton.jit
def undefined(value):
    return L.max((value != value).to(L.int32))


@triton.jit
def bench(count: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    return 0


@triton.jit
def put(place, number: constexpr, value):
    return value


@triton.jit
def take(place, number: constexpr, value, BT: constexpr, U: constexpr, S: constexpr):
    return L.sum(value, 0)


@triton.jit
def whole(
    place,
    across: constexpr,
    down: constexpr,
    wide: constexpr,
    deep: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    k = L.arange(0, U)[None, :, None]
    u = L.arange(0, U)[None, None, :]
    return L.load(place + u * across + k * down, mask=(u < wide) & (k < deep), other=0.0).to(L.float32)


@triton.jit
def room(BT: constexpr, U: constexpr, S: constexpr):
    return 0


@triton.jit
def lay(place, value, mask):
    return L.where(mask, value, 0.0)


@triton.jit
def taken(place, value, BT: constexpr, U: constexpr, S: constexpr):
    return value[:, :, None]


@triton.jit
def times(a, w):
    return L.sum(a * w, 1)


@triton.jit
def _largest(value, mask):
    """Of each row; NaN if there is one."""
    undefined_ones = L.max((mask & (value != value)).to(L.int32), 1)
    return L.where(undefined_ones != 0, float("nan"), L.max(L.where(mask, value, float("-inf")), 1))


@triton.jit
def across(value, mask, LARGEST: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    if LARGEST:
        return _largest(value, mask)[:, None]
    else:
        return L.sum(L.where(mask, value, 0.0), 1)[:, None]


@triton.jit
def row_total(
    place,
    part,
    mine,
    live,
    first,
    batch,
    COUNT: constexpr,
    LARGEST: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    return part


@triton.jit
def write_sum(place, value, wide: constexpr, first, BT: constexpr, U: constexpr, S: constexpr):
    u = first + L.arange(0, U)
    L.store(place + u, L.sum(value, 0), mask=u < wide)


# ---------------------------------------------------------------------------------------------------- single steps


@triton.jit
def parts_total(place, first, batch, COUNT: constexpr, WIDE: constexpr, LARGEST: constexpr, BT: constexpr):
    """(BT, 1): the sum, or the largest, of the parts of a row that an earlier kernel left; WIDE: a power of two."""
    row = (first + L.arange(0, BT))[:, None]
    part = L.arange(0, WIDE)[None, :]
    there = (row < batch) & (part < COUNT)
    if LARGEST:
        return _largest(L.load(place + row * COUNT + part, mask=there, other=0.0), there)[:, None]
    else:
        return L.sum(L.load(place + row * COUNT + part, mask=there, other=0.0), 1)[:, None]


@triton.jit
def add_sum(place, value, wide: constexpr, first, BT: constexpr, U: constexpr):
    """Add to a tile's sums of columns. Nobody else does, so the order is always the same."""
    u = first + L.arange(0, U)
    L.store(place + u, L.load(place + u, mask=u < wide, other=0.0) + L.sum(value, 0), mask=u < wide)
