"""Lowers torch's reductions of rows, over any of their axes: one table row each."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from .index_map import IndexMap
from .nodes import Builder, Node
from .ops_elementwise import operation
from .ops_view import shape_without
from .values import LoopInvariant, Shape, Unsupported, Value, at_batch, count

aten = torch.ops.aten

FEW_GROUPS = 4  # results up to which the numbers of each are a row of their own; heads of matrices stay together


class Reader(Protocol):
    """The part of the lowering that these functions use."""

    builder: Builder
    has_matrices: bool  # whether a state has axes of its own

    def value(self, argument: Any) -> Value: ...

    def matrix(self, weight: LoopInvariant) -> LoopInvariant: ...

    def diagonal_block(self, weight: LoopInvariant) -> tuple[int, int] | None: ...

    def broadcast_to(self, value: Value, shape: Shape) -> Value: ...

    def cut(self, value: Value, low: int, high: int) -> Value: ...

    def take(self, segments: Sequence[Node], places: Tensor, shape: Shape) -> Value: ...

    def gather(self, segments: Sequence[Node], index: IndexMap, kind: str = "sum") -> Node: ...

    def move(self, function: Callable, *operands: Value) -> list[Value]: ...

    def elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value: ...

    def at_each_step(self, node: Node) -> Node: ...


def reduced(what: str, value: Value, dims: Any, keepdim: bool) -> tuple[Tensor, Shape]:
    """The places that a reduction over `dims` combines, (terms, results), and the shape of the result."""
    if dims is None or not len(dims):
        raise Unsupported(f"{what} over all numbers of a batch")
    axes = {axis % len(value.shape) for axis in dims}
    if any(not isinstance(value.shape[axis], int) for axis in axes):
        raise Unsupported(f"{what} over dimensions {list(dims)}, which mixes sequences")
    places = torch.arange(value.width).reshape(at_batch(value.shape, 1))
    kept = [axis for axis in range(len(value.shape)) if axis not in axes]
    terms = count([value.shape[axis] for axis in axes])
    return places.permute(*sorted(axes), *kept).reshape(terms, -1), shape_without(value.shape, axes, keepdim)


def _reduce(reader: Reader, kind: str, value: Value, places: Tensor, shape: Shape) -> Value:
    """The sum or maximum of each column of places. A few pieces of a row are reduced as rows of their own."""
    terms, results = places.shape
    of_rows = _sum_of if kind == "sum" else _max_of
    if terms == 1:
        return reader.take(value.segments, places[0], shape)
    few = 1 if reader.has_matrices else FEW_GROUPS
    if results <= few and bool((places.t().flatten() == torch.arange(value.width)).all()):
        parts = [reader.cut(value, low, low + terms) for low in range(0, value.width, terms)]
        return Value(tuple(of_rows(reader.builder, part.segments, terms) for part in parts), shape)
    return Value((reader.gather(value.segments, IndexMap.of(places), kind),), shape)


def row_sum(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    return _reduce(reader, "sum", value, *reduced("a sum", value, dims, keepdim))


def _sum_of(b: Builder, segments: Sequence[Node], terms: int) -> Node:
    if len(segments) == 1 and segments[0].width == 1:
        return b.rowsum(segments[0], terms)
    total, *others = (b.rowsum(segment, segment.width) for segment in segments)
    for other in others:
        total = total + other
    return total


def _mean(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    total = row_sum(reader, value, dims, keepdim)
    share = total.width / value.width
    return reader.elementwise(lambda b, x: x * share, (total,), {})


def _var_mean(
    reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    mean = _mean(reader, value, dims, keepdim=True)
    centred = reader.elementwise(operation("sub"), (value, mean), {})
    total = row_sum(reader, reader.elementwise(operation("mul"), (centred, centred), {}), dims, keepdim)
    free = float(value.width // total.width - (1 if correction is None else correction))
    return reader.elementwise(lambda b, x: x / free, (total,), {}), mean.with_shape(total.shape)


def _var(reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    """Of the distances to the first number: the mean of equal numbers is rounded, and their variance is exactly 0."""
    places, shape = reduced("a variance", value, dims, keepdim=True)
    first = reader.take(value.segments, places[0], shape)
    distance = reader.elementwise(lambda b, x, y: x - b.make("stop", y), (value, first), {})
    return _var_mean(reader, distance, dims, correction=correction, keepdim=keepdim)[0]


def _std(reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    variance = _var(reader, value, dims, correction=correction, keepdim=keepdim)
    return reader.elementwise(_sqrt_of_norm, (variance,), {})


def _amax(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    return _reduce(reader, "max", value, *reduced("a maximum", value, dims, keepdim))


def _max_of(b: Builder, segments: Sequence[Node], terms: int) -> Node:
    highest, *others = (b.rowmax(segment) for segment in segments)
    for other in others:
        highest = b.make("maximum", highest, other)
    return highest


def _amin(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    highest = _amax(reader, reader.elementwise(operation("neg"), (value,), {}), dims, keepdim)
    return reader.elementwise(operation("neg"), (highest,), {})


def _detached_max(reader: Reader, value: Value, dims: Any) -> Value:
    """The maximum m in `e^(v - m)`. Results that use both do not depend on m."""
    return reader.elementwise(operation("stop"), (_amax(reader, value, dims, keepdim=True),), {})


def _shifted_exp(reader: Reader, value: Value, shift: Value) -> Value:
    return reader.elementwise(lambda b, v, m: b.make("exp", v - m), (value, shift), {})


def _logsumexp(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    """An infinite maximum is replaced by 0, as in torch: `-inf - -inf` is NaN."""

    def finite(b: Builder, m: Node) -> Node:
        return b.make("where", b.make("eq", b.make("abs", m), b.const(float("inf"))), b.const(0.0), m)

    shift = reader.elementwise(finite, (_detached_max(reader, value, dims),), {})
    total = row_sum(reader, _shifted_exp(reader, value, shift), dims, keepdim)
    return reader.elementwise(lambda b, x, y: b.make("log", x) + y, (total, shift.with_shape(total.shape)), {})


def _softmax(reader: Reader, value: Value, dim: int, half_to_float: bool = False) -> Value:
    powers = _shifted_exp(reader, value, _detached_max(reader, value, [dim]))
    return reader.elementwise(operation("div"), (powers, row_sum(reader, powers, [dim], keepdim=True)), {})


def _log_softmax(reader: Reader, value: Value, dim: int, half_to_float: bool = False) -> Value:
    shift = _detached_max(reader, value, [dim])
    total = row_sum(reader, _shifted_exp(reader, value, shift), [dim], keepdim=True)
    return reader.elementwise(lambda b, v, m, x: v - m - b.make("log", x), (value, shift, total), {})


def _norm(
    reader: Reader, value: Value, order: float = 2.0, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    if float(order) not in (1.0, 2.0, float("inf")) or dims is None:
        raise Unsupported(f"a norm of order {order} over {dims}")
    if order == 2.0:
        total = row_sum(reader, reader.elementwise(lambda b, x: x * x, (value,), {}), dims, keepdim)
        return reader.elementwise(_sqrt_of_norm, (total,), {})
    size = reader.elementwise(operation("abs"), (value,), {})
    return row_sum(reader, size, dims, keepdim) if order == 1.0 else _amax(reader, size, dims, keepdim)


def _sqrt_of_norm(b: Builder, x: Node) -> Node:
    """A square root with derivative zero at zero, as torch defines it for norms."""
    none = b.make("eq", x, b.const(0.0))
    return b.make("where", none, b.const(0.0), b.make("sqrt", b.make("where", none, b.const(1.0), x)))


def _glu(reader: Reader, value: Value, dim: int = -1) -> Value:
    first, second = reader.move(lambda places: places.chunk(2, dim), value)
    return reader.elementwise(lambda b, x, y: x * b.make("sigmoid", y), (first, second), {})


def _layer_norm(
    reader: Reader, value: Value, shape: list[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, ...]:
    dims = list(range(-len(shape), 0))
    variance, mean = _var_mean(reader, value, dims, correction=0, keepdim=True)
    scale = reader.elementwise(lambda b, x: b.make("rsqrt", x + float(eps)), (variance,), {})
    centred = reader.elementwise(operation("sub"), (value, mean), {})
    result = reader.elementwise(operation("mul"), (centred, scale), {})
    for op, extra in (("mul", weight), ("add", bias)):
        result = result if extra is None else reader.elementwise(operation(op), (result, extra), {})
    return (result,)


def _group_norm(
    reader: Reader, value: Value, weight: Any, bias: Any, batch: Any, channels: int, size: int, groups: int, eps: float
) -> tuple[Value, ...]:
    """Each group of channels normalised; weight and bias have a number for every channel."""
    grouped = value.with_shape((value.shape[0], groups, channels * size // groups))
    (normal,) = _layer_norm(reader, grouped, [0], None, None, eps)
    result = normal.with_shape((value.shape[0], channels, size))
    for op, extra in (("mul", weight), ("add", bias)):
        if extra is not None:
            result = reader.elementwise(operation(op), (result, reader.value(extra).with_shape((channels, 1))), {})
    return (result.with_shape(value.shape),)


def _any(reader: Reader, value: Value, dim: int, keepdim: bool = False) -> Value:
    return _amax(reader, reader.elementwise(lambda b, x: b.make("ne", x, b.const(0.0)), (value,), {}), [dim], keepdim)


def _all(reader: Reader, value: Value, dim: int, keepdim: bool = False) -> Value:
    return _amin(reader, reader.elementwise(lambda b, x: b.make("ne", x, b.const(0.0)), (value,), {}), [dim], keepdim)


def _log_sigmoid(reader: Reader, value: Value) -> tuple[Value, ...]:
    return (reader.elementwise(lambda b, x: 0.0 - b.make("softplus", -x), (value,), {}),)


def _copy(reader: Reader, value: Value, source: Any, *_: Any) -> Value:
    """`value[:] = source`."""
    return reader.broadcast_to(reader.value(source), value.shape)


def _like(fill: float | None) -> Callable[..., Value]:
    def read(reader: Reader, like: Any, value: Any = None, **_: Any) -> Value:
        number = reader.builder.const(value if fill is None else fill)
        if not isinstance(like, Value):
            raise Unsupported("a constant shaped like a weight")
        return Value((reader.builder.expand(number, like.width),), like.shape)

    return read


def _full(fill: float | None) -> Callable[..., Value]:
    def read(reader: Reader, shape: list[Any], value: Any = None, **_: Any) -> Value:
        number = reader.builder.const(value if fill is None else fill)
        return Value((reader.builder.expand(number, count(shape)),), tuple(shape))

    return read


def _new(fill: float | None) -> Callable[..., Value]:
    return lambda reader, _, shape, value=None, **__: _full(fill)(reader, shape, value)


ROWS: dict[Any, Callable] = {
    aten.sum.dim_IntList: row_sum,
    aten.mean.dim: _mean,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.std.correction: _std,
    aten.amax.default: _amax,
    aten.amin.default: _amin,
    aten.logsumexp.default: _logsumexp,
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.linalg_vector_norm.default: _norm,
    aten.glu.default: _glu,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.any.dim: _any,
    aten.all.dim: _all,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.copy.default: _copy,
    aten.fill.Scalar: _copy,
    aten.fill.Tensor: _copy,
    aten.full_like.default: _like(None),
    aten.zeros_like.default: _like(0.0),
    aten.empty_like.default: _like(0.0),  # to write into it
    aten.ones_like.default: _like(1.0),
    aten.full.default: _full(None),
    aten.zeros.default: _full(0.0),
    aten.ones.default: _full(1.0),
    aten.new_full.default: _new(None),
    aten.new_zeros.default: _new(0.0),
    aten.new_ones.default: _new(1.0),
    aten.new_empty.default: _new(0.0),  # as circular padding makes one, to write into it
}
