"""Lowers torch's matrix products: with weights as products of the plan, between values of a step as gathers."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .index_map import MAX_ENTRIES, IndexMap
from .nodes import Builder, Matrix, Node, Vector
from .ops_elementwise import operation
from .ops_reduce import Reader, row_sum
from .placement import places_of, rows_of
from .values import (
    BATCH,
    LoopInvariant,
    Shape,
    Unsupported,
    Value,
    at_batch,
    boundaries,
    count,
    format_shapes,
    has_batch,
)

aten = torch.ops.aten

# With so few input features, a sum of columns times numbers beats a matrix product, in the gradient most of all.
MAX_NARROW = 4
MAX_PRODUCTS = 16  # products with parts of a row, one each; more of them become one gather


def _linear(reader: Reader, left: Any, right: Any, bias: Any = None) -> Value:
    """`left rightᵀ + bias`."""
    if isinstance(left, Value) and _is_weight(right) and len(right.shape) == 2 and _sums_whole_row(left):
        result = _product(reader, left, reader.matrix(right), False, (*left.shape[:-1], right.shape[0]))
    elif _is_weight(right):
        result = _weight_product(reader, left, right, transposed=True)
    else:
        (turned,) = reader.move(lambda places: places.mT, reader.value(right))
        result = _matmul(reader, left, turned)
    return result if bias is None else reader.elementwise(operation("add"), (result, bias), {})


def _matmul(reader: Reader, left: Any, right: Any) -> Value:
    """`left right`, for one matrix or a batch of them."""
    left, right = _once(left), _once(right)
    if _is_weight(left) and _is_weight(right):
        raise Unsupported("a matrix product of weights inside the loop")
    if isinstance(left, Value) and _is_weight(right):
        if _sums_whole_row(left) and count(right.shape[:-2]) == 1:
            return _product(reader, left, reader.matrix(right), True, (*left.shape[:-1], right.shape[-1]))
        return _weight_product(reader, left, right)
    if isinstance(right, Value) and _is_weight(left):
        if _is_column(right) and count(left.shape[:-2]) == 1:
            shape = (*right.shape[:-2], left.shape[-2], right.shape[-1])
            return _product(reader, right, reader.matrix(left), False, shape)
        (turned,) = reader.move(lambda places: places.mT, right)
        (result,) = reader.move(lambda places: places.mT, _weight_product(reader, turned, left, transposed=True))
        return result
    return _contract(reader, reader.value(left), reader.value(right))


def _once(operand: Any) -> Any:
    """A batch of matrices that are one weight, repeated for every sequence, as that weight."""
    if isinstance(operand, LoopInvariant) and len(operand.shape) == 3 and operand.shape[0] == BATCH:
        return LoopInvariant(operand.name, (1, *operand.shape[1:]))
    return operand


def _is_weight(operand: Any) -> bool:
    return isinstance(operand, LoopInvariant) and not has_batch(operand.shape)


def _sums_whole_row(value: Value) -> bool:
    """Whether a product sums over the whole row."""
    return has_batch(value.shape) and value.shape[-1] == value.width


def _is_column(value: Value) -> bool:
    return has_batch(value.shape) and len(value.shape) > 1 and value.shape[-2] == value.width


# ---------------------------------------------------------------------------------------------- values with values


def _contract(reader: Reader, left: Value, right: Value) -> Value:
    """Products of matrices of the same sequence: dot products of places."""
    if len(left.shape) < 2 or len(right.shape) < 2:
        raise Unsupported(f"a matrix product of {format_shapes(left.shape, right.shape)}")
    a = places_of(left.shape, left.width).movedim(-1, 0)[..., None]  # (j, …, i, 1)
    b = places_of(right.shape, right.width).movedim(-2, 0).unsqueeze(-2)  # (j, …, 1, k)
    return dot(reader, left, right, a, b, "a matrix product of two values that change with time")


def dot(reader: Reader, left: Value, right: Value, a: Tensor, b: Tensor, what: str) -> Value:
    """Sums of products over the first axis of two tensors of places, which are broadcast."""
    terms, *sizes = torch.broadcast_shapes(a.shape, b.shape)
    read = [
        (places.expand(terms, *sizes), value.width if has_batch(value.shape) else None)
        for places, value in ((a, left), (b, right))
    ]
    (first, second), (_, *shape) = rows_of(read, what)
    if first.numel() > MAX_ENTRIES:
        raise Unsupported(f"{what}, of {first.numel()} products a row")
    none = (first < 0) | (second < 0)
    maps = [IndexMap.of(rows.masked_fill(none, -1).reshape(terms, -1)) for rows in (first, second)]
    nodes = [reader.builder.concat(value.segments) for value in (left, right)]
    if terms == 1:
        one, other = (reader.builder.gather(node, index) for node, index in zip(nodes, maps, strict=True))
        return Value((one * other,), tuple(shape))
    if maps[0].width == 1 and all(index.single() for index in (IndexMap.of(m.places[:, 0]) for m in maps)):
        rows = [reader.take(v.segments, m.places[:, 0], (terms,)) for v, m in zip((left, right), maps, strict=True)]
        product = reader.elementwise(operation("mul"), tuple(rows), {})
        return row_sum(reader, product, [0]).with_shape(shape)
    return Value((reader.builder.dot(nodes, maps),), tuple(shape))


def _weight_product(reader: Reader, left: Value, weight: LoopInvariant, transposed: bool = False) -> Value:
    """`(…, i, j) (…, j, k)` with a weight: one product for every row of j numbers, each with its block."""
    what = f"a matrix product of a row {format_shapes(left.shape)} and a weight {format_shapes(weight.shape)}"
    *front, rows, cols = at_batch(weight.shape, 1)
    deep, wide = (cols, rows) if transposed else (rows, cols)
    blocks = torch.arange(count(front)).reshape(*front, 1, 1)
    places = places_of(left.shape, left.width)
    sizes = torch.broadcast_shapes(places.shape, blocks.shape)
    (read, block), shape = rows_of([(places.expand(sizes), left.width), ((blocks + 1).expand(sizes), None)], what)
    pieces, block = read.reshape(-1, deep), block.reshape(-1, deep)[:, 0].tolist()
    result = (*shape[:-1], wide)
    if len(pieces) > MAX_PRODUCTS:
        return _weights_gathered(reader, left, weight, transposed, result)
    matrix = reader.matrix(LoopInvariant(weight.name, (count(front) * rows, cols)))
    segments: list[Node] = []
    for places, number in zip(pieces, block, strict=True):
        piece = reader.take(left.segments, places, (deep,))
        own = number * rows, (number + 1) * rows
        segments += _product(reader, piece, matrix, not transposed, (wide,), own).segments
    return Value(tuple(segments), result)


def _weights_gathered(reader: Reader, left: Value, weight: LoopInvariant, transposed: bool, shape: Shape) -> Value:
    """The same as dot products of a row and all numbers of the weight."""
    numbers = reader.value(weight)
    b = places_of(weight.shape, 0)
    b = b.mT if transposed else b
    a = places_of(left.shape, left.width)
    a, b = a.movedim(-1, 0)[..., None], b.movedim(-2, 0).unsqueeze(-2)
    return dot(reader, left, numbers, a, b, "a matrix product with a weight").with_shape(shape)


# ---------------------------------------------------------------------------------------------- rows with weights


def _addmm(reader: Reader, start: Any, left: Any, right: Any, *, beta: float = 1, alpha: float = 1) -> Value:
    """`beta · start + alpha · left right`."""
    scaled = reader.elementwise(operation("mul"), (_matmul(reader, left, right), alpha), {})
    return reader.elementwise(operation("add"), (scaled, reader.elementwise(operation("mul"), (start, beta), {})), {})


def _mv(reader: Reader, value: Value, weight: Any) -> Value:
    """A product with a vector."""
    return row_sum(reader, reader.elementwise(operation("mul"), (value, weight), {}), [-1])


def _product(
    reader: Reader,
    value: Value,
    weight: LoopInvariant,
    flipped: bool,
    shape: Shape,
    block: tuple[int, int] | None = None,
) -> Value:
    """`value Wᵀ`, or `value W` when flipped: a sum of one product per segment. `block`: the rows of W it is with."""
    rows, cols = at_batch(weight.shape, 1)
    top, bottom = block or (0, rows)
    total: Node | None = None
    for (low, high), segment in zip(pairwise(boundaries(value)), value.segments, strict=True):
        narrow = high - low <= MAX_NARROW and not flipped and segment.op == "load" and segment.attr.lag == 0
        if narrow and block is None:
            term = _narrow(reader.builder, segment, weight.name, bottom, low)
        elif flipped:
            matrix = Matrix(weight.name, (top + low, top + high), (0, cols), True, reader.diagonal_block(weight))
            term = reader.builder.product(reader.at_each_step(segment), matrix)
        else:
            matrix = Matrix(weight.name, (top, bottom), (low, high), block=reader.diagonal_block(weight))
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


def _convolution(
    reader: Reader,
    value: Any,
    weight: Any,
    bias: Any,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Value:
    """A convolution over axes of a row: dot products of its windows and the weight."""
    if transposed or not isinstance(value, Value) or not _is_weight(weight) or not has_batch(value.shape):
        raise Unsupported("a transposed convolution, or one with a kernel that changes with time")
    rows, inner, *kernel = at_batch(weight.shape, 1)
    windows = _windows(places_of(value.shape, value.width), kernel, stride, padding, dilation)  # (B, C, *out, *kernel)
    batch, out = windows.shape[0], list(windows.shape[2 : 2 + len(kernel)])
    taps = count(kernel)
    a = windows.reshape(batch, groups, 1, inner, -1, taps).permute(3, 5, 0, 1, 2, 4)  # (inner, taps, B, g, 1, out)
    b = (
        places_of(weight.shape, 0)
        .reshape(groups, rows // groups, inner, taps)
        .permute(2, 3, 0, 1)[:, :, None, ..., None]
    )
    sizes = torch.broadcast_shapes(a.shape, b.shape)
    a, b = (each.expand(sizes).reshape(inner * taps, batch, rows, *out) for each in (a, b))
    result = dot(reader, value, reader.value(weight), a, b, "a convolution")
    if bias is None:
        return result
    return reader.elementwise(operation("add"), (result, reader.value(bias).with_shape((rows, *[1] * len(kernel)))), {})


def _windows(places: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]) -> Tensor:
    """(B, C, *sizes) → (B, C, *windows, *kernel); 0 is what padding fills in."""
    axes = len(kernel)
    for axis in range(axes):
        at = 2 + axis
        pad = [0] * (2 * (places.dim() - 1 - at)) + [padding[axis]] * 2
        places = torch.nn.functional.pad(places, pad)
        reach = dilation[axis] * (kernel[axis] - 1) + 1
        first = torch.arange(0, places.shape[at] - reach + 1, stride[axis])
        read = first[:, None] + torch.arange(kernel[axis]) * dilation[axis]
        places = places.index_select(at, read.flatten()).unflatten(at, tuple(read.shape)).movedim(at + 1, -1)
    return places


PRODUCTS: dict[Any, Callable] = {
    aten.linear.default: _linear,
    aten.mm.default: _matmul,
    aten.bmm.default: _matmul,
    aten.addmm.default: _addmm,
    aten.baddbmm.default: _addmm,
    aten.mv.default: _mv,
    aten.convolution.default: _convolution,
}
