"""Lowers torch's order statistics and cumulative operations of rows, over any of their axes: one table row each.

Sorting counts, for each number, those that come before it: n² comparisons a row, all of them elementwise. A selected
number is a sum over the row in which all others are zero, so that the cotangent goes to it alone, as in torch.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from .index_map import IndexMap
from .nodes import Builder, Node
from .ops_elementwise import operation
from .ops_reduce import FEW_GROUPS, Reader, reduced, row_sum
from .values import Unsupported, Value, at_batch

aten = torch.ops.aten

MAX_SORTED = 128  # numbers of a row, beyond which sorting by n² comparisons is slower than the plain loop
SHORT_SCAN = 32  # numbers up to which a cumulative sum adds all before each number


def _last(reader: Reader, value: Value, dim: int) -> Value:
    """The value with this axis as its last one."""
    size = value.shape[dim]
    if not isinstance(size, int):
        raise Unsupported("a sorted or cumulated batch")
    return reader.move(lambda places: places.movedim(dim, -1), value)[0]


def _back(reader: Reader, value: Value, dim: int) -> Value:
    return reader.move(lambda places: places.movedim(-1, dim), value)[0]


def _unsqueezed(value: Value, axis: int) -> Value:
    at = axis % (len(value.shape) + 1)
    return value.with_shape((*value.shape[:at], 1, *value.shape[at:]))


def _literal(reader: Reader, numbers: Tensor) -> Value:
    return Value((reader.builder.literal(numbers.flatten().tolist()),), tuple(numbers.shape))


# ---------------------------------------------------------------------------------------------- extrema


def _extremum(sign: float) -> Callable[..., tuple[Value, Value]]:
    """max and min over an axis: the values, whose cotangent goes to the first of equal ones, and its index."""

    def read(reader: Reader, value: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
        index = _first_extreme(reader, sign, value, dim, keepdim)
        chosen = _at_index(reader, value, _unsqueezed(index, dim) if not keepdim else index, dim, keepdim)
        return chosen, index

    return read


def _first_extreme(reader: Reader, sign: float, value: Value, dim: int, keepdim: bool) -> Value:
    """The index of the first largest (smallest) number; NaN is larger and smaller than any other."""
    signed = value if sign > 0 else reader.elementwise(operation("neg"), (value,), {})
    places, shape = reduced("a maximum", value, [dim], keepdim=True)
    highest = Value((reader.gather(signed.segments, IndexMap.of(places), "max"),), shape)
    number = _literal(reader, _positions(value, dim))

    def distance(b: Builder, x: Node, m: Node, at: Node) -> Node:
        hit = b.make("or", b.make("eq", x, m), b.make("ne", x, x))
        return b.make("where", hit, -at, b.const(-float(places.shape[0])))

    behind = reader.elementwise(distance, (signed, highest, number), {})
    places, shape = reduced("a maximum", value, [dim], keepdim)
    nearest = Value((reader.gather(behind.segments, IndexMap.of(places), "max"),), shape)
    return reader.elementwise(lambda b, x: b.make("stop", -x), (nearest,), {})


def _positions(value: Value, dim: int) -> Tensor:
    """The indices along an axis, in a shape that broadcasts with the value."""
    axis = dim % len(value.shape)
    size = value.shape[axis]
    assert isinstance(size, int)
    return torch.arange(float(size)).reshape(-1, *[1] * (len(value.shape) - axis - 1))


def _at_index(reader: Reader, value: Value, index: Value, dim: int, keepdim: bool) -> Value:
    """The numbers at computed indices of an axis, one of each row along it."""

    def picked(b: Builder, x: Node, at: Node, number: Node) -> Node:
        return b.make("where", b.make("eq", at, number), x, b.const(0.0))

    alone = reader.elementwise(picked, (value, index, _literal(reader, _positions(value, dim))), {})
    return row_sum(reader, alone, [dim], keepdim)


def _arg_extremum(sign: float) -> Callable[..., Value]:
    def read(reader: Reader, value: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        if dim is None:
            raise Unsupported("the index of an extremum of a batch")
        return _first_extreme(reader, sign, value, dim, keepdim)

    return read


# ---------------------------------------------------------------------------------------------- sorting


def _order(reader: Reader, value: Value, descending: bool, count: int) -> tuple[Value, Value]:
    """The first `count` numbers of the last axis in order, and their indices. Equal ones keep their order."""
    size = value.shape[-1]
    assert isinstance(size, int)
    if size > MAX_SORTED:
        raise Unsupported(f"a sorted row of {size} numbers")
    mine, other = _pairs(reader, value, size)
    earlier = _literal(reader, torch.ones(size, size).tril(-1))  # whether the other one stands first

    def comes_before(b: Builder, x: Node, y: Node, first: Node) -> Node:
        number, numbers = b.make("eq", x, x), b.make("eq", y, y)
        less = b.make("gt" if descending else "lt", y, x)
        largest, other = (numbers, number) if descending else (number, numbers)
        nan = b.make("and", b.make("not", largest), other)
        same = b.make("or", b.make("eq", x, y), b.make("not", b.make("or", number, numbers)))
        return b.make("or", b.make("or", less, nan), b.make("and", same, first))

    rank = row_sum(reader, reader.elementwise(comes_before, (mine, other, earlier), {}), [-1])
    place = _literal(reader, torch.arange(float(count))[:, None])

    def picked(b: Builder, x: Node, at: Node, number: Node) -> Node:
        return b.make("where", b.make("eq", at, number), x, b.const(0.0))

    by_place = _unsqueezed(rank, -2), place  # (…, count, n)
    values = reader.elementwise(picked, (_unsqueezed(value, -2), *by_place), {})
    indices = reader.elementwise(picked, (_literal(reader, torch.arange(float(size))), *by_place), {})
    return row_sum(reader, values, [-1]), row_sum(reader, indices, [-1])


def _pairs(reader: Reader, value: Value, size: int) -> tuple[Value, Value]:
    """Every number of the last axis beside every number of it: (…, n, n), or (…, n, 1) and (…, 1, n).

    Both read the same numbers. A column of a product, made on its own, may be rounded otherwise than in the whole
    product, and a number that is larger than itself has no place in an order.
    """
    if value.width <= FEW_GROUPS:  # sums over few numbers are cut into columns: all of them are columns from the start
        columns = [reader.cut(value, at, at + 1).segments[0] for at in range(value.width)]
        alone = Value(tuple(columns), value.shape)
        return _unsqueezed(alone, -1), _unsqueezed(alone, -2)
    at = torch.arange(value.width).reshape(*at_batch(value.shape, 1))
    mine, other = at.unsqueeze(-1).expand(*at.shape, size), at.unsqueeze(-2).expand(*at.shape, size)
    pairs = [IndexMap.of(places.flatten()) for places in (mine, other)]
    first, second = (Value((reader.gather(value.segments, places),), (*value.shape, size)) for places in pairs)
    return first, second


def _sorted(reader: Reader, value: Value, dim: int, descending: bool, count: int | None) -> tuple[Value, Value]:
    last = _last(reader, value, dim)
    size = last.shape[-1]
    assert isinstance(size, int)
    values, indices = _order(reader, last, descending, size if count is None else count)
    return _back(reader, values, dim), _back(reader, indices, dim)


def _sort(reader: Reader, value: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return _sorted(reader, value, dim, descending, None)


def _stable_sort(reader: Reader, value: Value, *, stable: Any = None, dim: int = -1, descending: bool = False) -> Any:
    return _sorted(reader, value, dim, descending, None)


def _argsort(reader: Reader, value: Value, dim: int = -1, descending: bool = False) -> Value:
    return _sorted(reader, value, dim, descending, None)[1]


def _topk(
    reader: Reader, value: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Value, Value]:
    return _sorted(reader, value, dim, largest, k)


# ---------------------------------------------------------------------------------------------- cumulative


def _cumsum(reader: Reader, value: Value, dim: int, dtype: Any = None) -> Value:
    last = _last(reader, value, dim)
    size = last.shape[-1]
    assert isinstance(size, int)
    block = size if size <= SHORT_SCAN else isqrt(size - 1) + 1
    sums = Value((reader.gather(last.segments, _sums_within(last.width, size, block)),), last.shape)
    if block < size:
        before = Value((reader.gather(sums.segments, _sums_before(last.width, size, block)),), last.shape)
        sums = reader.elementwise(operation("add"), (sums, before), {})
    return _back(reader, sums, dim)


def _sums_within(width: int, size: int, block: int) -> IndexMap:
    """Each number and those before it in its block."""
    at, back = torch.arange(width), torch.arange(block)[:, None]
    return IndexMap.of(torch.where(back <= at % size % block, at - back, -1))


def _sums_before(width: int, size: int, block: int) -> IndexMap:
    """For each number the sums of the blocks before its own, each at the end of its block."""
    at, blocks = torch.arange(width), torch.arange((size - 1) // block)[:, None]
    return IndexMap.of(torch.where(blocks < at % size // block, at - at % size + (blocks + 1) * block - 1, -1))


def _cumprod(reader: Reader, value: Value, dim: int, dtype: Any = None) -> Value:
    """By doubling: without a division, so that the derivative is right at zeros."""
    last = _last(reader, value, dim)
    size, step = int(last.shape[-1]), 1  # pyrefly: ignore
    while step < size:
        at = torch.arange(last.width)
        first = at % size < step
        shifted = Value((reader.gather(last.segments, IndexMap.of(torch.where(first, -1, at - step))),), last.shape)
        ones = Value((reader.builder.literal(first.double().tolist()),), last.shape)
        last = reader.elementwise(lambda b, x, y, one: x * (y + one), (last, shifted, ones), {})
        step *= 2
    return _back(reader, last, dim)


def _prod(reader: Reader, value: Value, dim: int, keepdim: bool = False, dtype: Any = None) -> Value:
    """By halves: without a division, so that the derivative is right at zeros."""
    last = _last(reader, value, dim)
    while (size := int(last.shape[-1])) > 1:  # pyrefly: ignore
        half = size // 2
        low, high, *rest = reader.move(lambda p, h=half: p.split([h, h, *[1] * (p.shape[-1] % 2)], -1), last)
        product = reader.elementwise(operation("mul"), (low, high), {})
        last = reader.move(lambda *parts: torch.cat(parts, -1), product, *rest)[0]
    return _back(reader, last, dim) if keepdim else last.with_shape(last.shape[:-1])


ORDER: dict[Any, Callable] = {
    aten.max.dim: _extremum(1.0),
    aten.min.dim: _extremum(-1.0),
    aten.argmax.default: _arg_extremum(1.0),
    aten.argmin.default: _arg_extremum(-1.0),
    aten.sort.default: _sort,
    aten.sort.stable: _stable_sort,
    aten.argsort.default: _argsort,
    aten.topk.default: _topk,
    aten.cumsum.default: _cumsum,
    aten.cumprod.default: _cumprod,
    aten.prod.dim_int: _prod,
}
