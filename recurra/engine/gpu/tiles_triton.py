"""Tile functions of the generated kernels in plain Triton, for stepwise kernels and for Triton's interpreter.

The interpreter runs the kernels of all steps with the functions of `tiles_gluon.py` under the same names. It runs one
program after another, and a program that waits for a later one would never end: such kernels run here with one program
per batch tile. They show that the equations are right, not that programs exchange values correctly.
"""

import triton
import triton.language as L

from . import tiles_common

jit = triton.jit
constexpr = L.constexpr
DIALECT = "triton"

choose = tiles_common.bind(tiles_common.choose, globals())
load_f32 = tiles_common.bind(tiles_common.load_f32, globals())
load_raw = tiles_common.bind(tiles_common.load_raw, globals())
store = tiles_common.bind(tiles_common.store, globals())
longest = tiles_common.bind(tiles_common.longest, globals())
any_unset = tiles_common.bind(tiles_common.any_unset, globals())
has_nan = tiles_common.bind(tiles_common.has_nan, globals())
load_weights = tiles_common.bind(tiles_common.load_weights, globals())
load_matrix = tiles_common.bind(tiles_common.load_matrix, globals())
vector_matrix = tiles_common.bind(tiles_common.vector_matrix, globals())
max_of_rows = tiles_common.bind(tiles_common.max_of_rows, globals())
reduce_columns = tiles_common.bind(tiles_common.reduce_columns, globals())
store_column_sums = tiles_common.bind(tiles_common.store_column_sums, globals())
square = tiles_common.bind(tiles_common.square, globals())
own_columns = tiles_common.bind(tiles_common.own_columns, globals())
squares_around = tiles_common.bind(tiles_common.squares_around, globals())


# ------------------------------------------------------------------------------------------------ layouts: none


@triton.constexpr_function
def operand_layout(S, side, BITS):
    return None


@triton.constexpr_function
def matrix_layout(BT, U, S):
    return None


# ---------------------------------------------------------------------------------------------------- indices


@triton.jit
def rows(first, BT: constexpr, U: constexpr, S: constexpr):
    return (first + L.arange(0, BT))[:, None]


@triton.jit
def column_range(BT: constexpr, U: constexpr, S: constexpr):
    return L.arange(0, U)


@triton.jit
def columns(first, BT: constexpr, U: constexpr, S: constexpr):
    return (first + L.arange(0, U))[None, :]


@triton.jit
def zeros(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([BT, U], L.float32)


@triton.jit
def unit_range(U: constexpr):
    return L.arange(0, U)


@triton.jit
def unit_zeros(U: constexpr):
    return L.zeros([U], L.float32)


@triton.jit
def axis_range(count: constexpr, layout: constexpr, axis: constexpr):
    if axis == 0:
        return L.arange(0, count)[:, None, None]
    elif axis == 1:
        return L.arange(0, count)[None, :, None]
    else:
        return L.arange(0, count)[None, None, :]


# ------------------------------------------------------------------------------------------------ exchange, products


@triton.jit
def publish(pointer, value, mask):
    store(pointer, value, mask)


@triton.jit
def load_operand(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    k = start + (L.arange(0, S) * KC)[:, None, None] + L.arange(0, KC)[None, None, :]
    r = first + L.arange(0, BT)[None, :, None]
    return L.load(pointer + r * stride + k, mask=(r < batch) & (k < depth) & ((k * 0 + valid) != 0), other=0.0)


@triton.jit
def operand_unset(
    pointer,
    valid,
    first,
    batch,
    stride: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    BT: constexpr,
    S: constexpr,
):
    return any_unset(load_operand(pointer, valid, first, batch, stride, start, depth, KC, BT, S))


@triton.jit
def probe_unset(
    pointer, valid, first, batch, stride: constexpr, depth: constexpr, BT: constexpr, U: constexpr, S: constexpr
):
    return 0


@triton.jit
def zero_accumulator(BT: constexpr, U: constexpr, S: constexpr):
    return L.zeros([S, BT, U], L.float32)


@triton.jit
def dot(a, w, total, PRECISION: constexpr):
    return L.dot(a, w, total)


# Shared memory has no counterpart in Triton: buffers are a zero, and values stay in variables.


@triton.jit
def partials_buffer(count: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    return 0


@triton.jit
def store_partials(buffer, number: constexpr, value):
    return value


@triton.jit
def reduce_partials(buffer, number: constexpr, value, BT: constexpr, U: constexpr, S: constexpr):
    return L.sum(value, 0)


@triton.jit
def operand_slot(BT: constexpr, U: constexpr, S: constexpr):
    return 0


@triton.jit
def store_slot(slot, value, mask):
    return L.where(mask, value, 0.0)


@triton.jit
def load_slot(slot, value, BT: constexpr, U: constexpr, S: constexpr):
    return value[:, :, None]


# ---------------------------------------------------------------------------------------------------- single steps


@triton.jit
def reduce_parts(pointer, first, batch, COUNT: constexpr, WIDTH: constexpr, MAX: constexpr, BT: constexpr):
    """(BT, 1): the sum or the maximum of the COUNT parts of a row that an earlier kernel stored; WIDTH: power of 2."""
    row = (first + L.arange(0, BT))[:, None]
    part = L.arange(0, WIDTH)[None, :]
    valid = (row < batch) & (part < COUNT)
    if MAX:
        return max_of_rows(L.load(pointer + row * COUNT + part, mask=valid, other=0.0), valid)[:, None]
    else:
        return L.sum(L.load(pointer + row * COUNT + part, mask=valid, other=0.0), 1)[:, None]


@triton.jit
def add_column_sums(pointer, value, width: constexpr, first, BT: constexpr, U: constexpr):
    """Add the column sums of a tile to those stored. No other program adds to them, so the order is fixed."""
    u = first + L.arange(0, U)
    L.store(pointer + u, L.load(pointer + u, mask=u < width, other=0.0) + L.sum(value, 0), mask=u < width)
