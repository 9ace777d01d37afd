"""Matrix products of a row with a weight, from either side: one table row each."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from .nodes import Builder, Matrix, Node, Vector
from .ops_elementwise import plain
from .ops_reduce import Reader, row_sum
from .ops_view import transposed
from .values import BATCH, Hoisted, Shape, Unsupported, Value, boundaries, shown

aten = torch.ops.aten

# A product with so few numbers is a sum of columns times numbers: no matrix product pays, least of all its gradient.
NARROW = 4


def _linear(reader: Reader, left: Any, right: Any, bias: Any = None) -> Value:
    """`left rightᵀ`, as torch and the traced graph write most products."""
    if isinstance(right, Value):
        result = _matmul(reader, left, transposed(reader, right))
    elif isinstance(left, Value) and len(right.shape) == 2:
        _check_summed(left, -1)
        result = _product(reader, left, reader.matrix(right), False, (*left.shape[:-1], right.shape[0]))
    else:
        raise Unsupported("a matrix product of weights inside the loop")
    return result if bias is None else reader.elementwise(plain("add"), (result, bias), {})


def _matmul(reader: Reader, left: Any, right: Any) -> Value:
    """`left right` of matrices, or of one matrix for every index of an axis in front."""
    if isinstance(left, Value) and isinstance(right, Value):
        return _dot(reader, left, right)
    if isinstance(left, Value):
        _check_summed(left, -1)
        return _product(reader, left, reader.matrix(right), True, (*left.shape[:-1], right.shape[-1]))
    if isinstance(right, Value):
        _check_summed(right, -2)
        shape = (*right.shape[:-2], left.shape[-2], right.shape[-1])
        return _product(reader, right, reader.matrix(left), False, shape)
    raise Unsupported("a matrix product of weights inside the loop")


def _dot(reader: Reader, left: Value, right: Value) -> Value:
    """The one product of two rows of the same sequence that is a row again: their numbers multiplied and summed."""
    if len(left.shape) != 3 or left.shape[:2] != (BATCH, 1) or right.shape[0] != BATCH or right.shape[2] != 1:
        raise Unsupported("a matrix product of two values that change with time")
    product = reader.elementwise(plain("mul"), (left, right.seen_as(left.shape)), {})
    return row_sum(reader, product, [-1], keepdim=True)


def _check_summed(value: Value, axis: int) -> None:
    """That a product sums over all numbers of a row."""
    if BATCH not in value.shape or value.shape[axis] != value.width:
        raise Unsupported(f"a matrix product over one of several axes of a row {shown(value.shape)}")


def _with_product(reader: Reader, start: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    scaled = reader.elementwise(plain("mul"), (_matmul(reader, left, right), alpha), {})
    return reader.elementwise(plain("add"), (scaled, reader.elementwise(plain("mul"), (start, beta), {})), {})


def _mv(reader: Reader, value: Value, weight: Any) -> Value:
    return row_sum(reader, reader.elementwise(plain("mul"), (value, weight), {}), [-1])


def _product(reader: Reader, value: Value, weight: Hoisted, flipped: bool, shape: Shape) -> Value:
    rows, cols = map(int, weight.shape)
    total: Node | None = None
    for (low, high), segment in zip(pairwise(boundaries(value)), value.segments, strict=True):
        if high - low <= NARROW and not flipped and segment.op == "load" and segment.attr.lag == 0:
            term = _narrow(reader.builder, segment, weight.name, rows, low)
        elif flipped:
            matrix = Matrix(weight.name, (low, high), (0, cols), True)
            term = reader.builder.product(reader.of_each_step(segment), matrix)
        else:
            matrix = Matrix(weight.name, (0, rows), (low, high))
            term = reader.builder.product(reader.of_each_step(segment), matrix)
        total = term if total is None else total + term
    assert total is not None
    return Value((total,), shape)


def _narrow(b: Builder, value: Node, weight: str, rows: int, first: int) -> Node:
    total: Node | None = None
    for k in range(value.width):
        column = b.weight(Vector(weight, (0, rows), first + k))
        term = column * b.cut(value, k, k + 1)
        total = term if total is None else total + term
    assert total is not None
    return total


PRODUCTS: dict[Any, Callable] = {
    aten.linear.default: _linear,
    aten.mm.default: _matmul,
    aten.bmm.default: _matmul,
    aten.addmm.default: _with_product,
    aten.baddbmm.default: _with_product,
    aten.mv.default: _mv,
}
