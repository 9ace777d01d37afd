"""Lowers torch's matrix products of a row and a weight, on either side: one table row each."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from .nodes import Builder, Matrix, Node, Vector
from .ops_elementwise import operation
from .ops_reduce import Reader, row_sum
from .ops_view import transpose_all
from .values import BATCH, LoopInvariant, Shape, Unsupported, Value, boundaries, format_shapes

aten = torch.ops.aten

# With so few input features, a sum of columns times numbers beats a matrix product, in the gradient most of all.
MAX_NARROW = 4


def _linear(reader: Reader, left: Any, right: Any, bias: Any = None) -> Value:
    """`left rightᵀ + bias`."""
    if isinstance(right, Value):
        result = _matmul(reader, left, transpose_all(reader, right))
    elif isinstance(left, Value) and len(right.shape) == 2:
        _check_summed(left, -1)
        result = _product(reader, left, reader.matrix(right), False, (*left.shape[:-1], right.shape[0]))
    else:
        raise Unsupported("a matrix product of weights inside the loop")
    return result if bias is None else reader.elementwise(operation("add"), (result, bias), {})


def _matmul(reader: Reader, left: Any, right: Any) -> Value:
    """`left right`, for one matrix or a batch of them."""
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
    """The dot product of two rows of the same sequence. Other products of two rows are not supported."""
    if len(left.shape) != 3 or left.shape[:2] != (BATCH, 1) or right.shape[0] != BATCH or right.shape[2] != 1:
        raise Unsupported("a matrix product of two values that change with time")
    product = reader.elementwise(operation("mul"), (left, right.with_shape(left.shape)), {})
    return row_sum(reader, product, [-1], keepdim=True)


def _check_summed(value: Value, axis: int) -> None:
    """Check that a product sums over the whole row."""
    if BATCH not in value.shape or value.shape[axis] != value.width:
        raise Unsupported(f"a matrix product over one of several axes of a row {format_shapes(value.shape)}")


def _addmm(reader: Reader, start: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    """`beta · start + alpha · left right`."""
    scaled = reader.elementwise(operation("mul"), (_matmul(reader, left, right), alpha), {})
    return reader.elementwise(operation("add"), (scaled, reader.elementwise(operation("mul"), (start, beta), {})), {})


def _mv(reader: Reader, value: Value, weight: Any) -> Value:
    """A product with a vector."""
    return row_sum(reader, reader.elementwise(operation("mul"), (value, weight), {}), [-1])


def _product(reader: Reader, value: Value, weight: LoopInvariant, flipped: bool, shape: Shape) -> Value:
    """`value Wᵀ`, or `value W` when flipped: a sum of one product per segment."""
    rows, cols = map(int, weight.shape)
    total: Node | None = None
    for (low, high), segment in zip(pairwise(boundaries(value)), value.segments, strict=True):
        if high - low <= MAX_NARROW and not flipped and segment.op == "load" and segment.attr.lag == 0:
            term = _narrow(reader.builder, segment, weight.name, rows, low)
        elif flipped:
            matrix = Matrix(weight.name, (low, high), (0, cols), True)
            term = reader.builder.product(reader.at_each_step(segment), matrix)
        else:
            matrix = Matrix(weight.name, (0, rows), (low, high))
            term = reader.builder.product(reader.at_each_step(segment), matrix)
        total = term if total is None else total + term
    assert total is not None
    return Value((total,), shape)


def _narrow(b: Builder, value: Node, weight: str, rows: int, first: int) -> Node:
    """A product with few columns of a weight, as a sum of columns times numbers."""
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
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.mv.default: _mv,
}
