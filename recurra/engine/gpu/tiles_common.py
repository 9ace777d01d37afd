"""Tile functions with the same text in both dialects: `tiles_gluon.py` and `tiles_triton.py`.

The functions here are plain Python. `bind` compiles a copy of each for a dialect: names such as `L` or `axis_range` are
then looked up in the dialect's module. Shapes: BT rows and U columns of a program on S warps; KC is the depth that one
warp multiplies at a time.
"""

from collections.abc import Callable
from types import FunctionType
from typing import Any

from triton.language import constexpr

# Supplied by the dialect.
L: Any = None
axis_range: Any = None  # 0, 1, … along one axis of three
operand_layout: Any = None  # of an operand (side 0) or a weight (side 1) of the tensor cores
matrix_layout: Any = None  # of a whole matrix, for a program that owns a row
column_range: Any = None  # (U,): this program's columns


def choose(condition, one, other):
    """One of two pointers."""
    return L.where(condition, one, other)


def load_f32(pointer, mask):
    return L.load(pointer, mask=mask, other=0.0).to(L.float32)


def load_raw(pointer, mask):
    """Without conversion: a conversion would wait for the load to complete."""
    return L.load(pointer, mask=mask, other=0.0)


def store(pointer, value, mask):
    L.store(pointer, value.to(pointer.dtype.element_ty), mask=mask)


def longest(lengths, first_row, batch, BT: constexpr):
    """The steps of a tile's longest row."""
    most = L.load(lengths + first_row)
    for i in L.static_range(1, BT):
        most = L.maximum(most, L.load(lengths + L.minimum(first_row + i, batch - 1)))
    return most


def any_unset(value):
    """Whether any element still has all bits set, which means: not written yet."""
    if value.dtype.primitive_bitwidth == 32:
        return L.max((value.to(L.int32, bitcast=True) == -1).to(L.int32))
    else:
        return L.max((value.to(L.int16, bitcast=True) == -1).to(L.int32))


def has_nan(value):
    return L.max((value != value).to(L.int32))


def load_weights(
    pointer,
    first,
    column_stride: constexpr,
    row_stride: constexpr,
    width: constexpr,
    start: constexpr,
    depth: constexpr,
    KC: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(S, KC, U): columns from `first` on; of the depth, S pieces of KC from `start` on."""
    layout: constexpr = operand_layout(S, 1, pointer.dtype.element_ty.primitive_bitwidth)
    k = start + axis_range(S, layout, 0) * KC + axis_range(KC, layout, 1)
    u = first + axis_range(U, layout, 2)
    return L.load(pointer + u * column_stride + k * row_stride, mask=(u < width) & (k < depth), other=0.0)


def load_matrix(
    pointer,
    column_stride: constexpr,
    row_stride: constexpr,
    width: constexpr,
    depth: constexpr,
    BT: constexpr,
    U: constexpr,
    S: constexpr,
):
    """(1, U, U): a whole matrix in registers."""
    layout: constexpr = matrix_layout(BT, U, S)
    k = axis_range(U, layout, 1)
    u = axis_range(U, layout, 2)
    mask = (u < width) & (k < depth)
    return L.load(pointer + u * column_stride + k * row_stride, mask=mask, other=0.0).to(L.float32)


def vector_matrix(a, w):
    """(BT, U): the sum over the depth of a (BT, U, 1) times w (1, U, U)."""
    return L.sum(a * w, 1)


def max_of_rows(value, mask):
    """(BT,); NaN if the row has one."""
    undefined_ones = L.max((mask & (value != value)).to(L.int32), 1)
    return L.where(undefined_ones != 0, float("nan"), L.max(L.where(mask, value, float("-inf")), 1))


def reduce_columns(value, mask, MAX: constexpr, BT: constexpr, U: constexpr, S: constexpr):
    """(BT, 1): the sum or the maximum over this program's columns."""
    if MAX:
        return L.expand_dims(max_of_rows(value, mask), 1)
    else:
        return L.expand_dims(L.sum(L.where(mask, value, 0.0), 1), 1)


def square(value):
    return value * value


def own_columns(first, WIDTH: constexpr, U: constexpr):
    """How many of a program's columns, from `first` on, a value of some width has."""
    return L.minimum(L.maximum(WIDTH - first, 0), U).to(L.float32)


def squares_around(sums, squares, mean, program, VALUES: constexpr, WIDTH: constexpr, U: constexpr):
    """The parts of Σ (v - mean)² of VALUES rows of numbers, from the sum of each program's columns and the sum of
    squares around their own mean."""
    count = own_columns(program * U, WIDTH, U) * VALUES
    return squares + count * square(sums / L.maximum(count, 1.0) - mean)


def store_column_sums(pointer, value, width: constexpr, first, BT: constexpr, U: constexpr, S: constexpr):
    """Store the sums of a tile over its rows."""
    total = L.sum(value, 0)
    u = first + column_range(BT, U, S)
    L.store(pointer + u, total, mask=u < width)


def bind(function: Callable, dialect: dict[str, Any]) -> Any:
    """A copy of `function` that finds its globals in the module `dialect`, compiled by that module's `jit`."""
    assert isinstance(function, FunctionType)
    copy = FunctionType(function.__code__, dialect, function.__name__, function.__defaults__)
    copy.__annotations__, copy.__doc__ = function.__annotations__, function.__doc__
    copy.__module__, copy.__qualname__ = dialect["__name__"], function.__qualname__
    return dialect["jit"](copy)
