"""Lowers torch's reductions, slices and concatenations of rows: one table row each."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from .nodes import Builder, Node
from .ops_elementwise import operation
from .values import BATCH, LoopInvariant, Shape, Unsupported, Value, count, format_shapes

aten = torch.ops.aten

MAX_PIECES = 16  # with more pieces a row is slower than the reference engine, and takes long to compile


class Reader(Protocol):
    """The part of the lowering that these functions use."""

    builder: Builder

    def value(self, argument: Any) -> Value: ...

    def matrix(self, weight: LoopInvariant) -> LoopInvariant: ...

    def broadcast_to(self, value: Value, shape: Shape) -> Value: ...

    def cut(self, value: Value, low: int, high: int) -> Value: ...

    def elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value: ...

    def at_each_step(self, node: Node) -> Node: ...


def _reduction_groups(reader: Reader, what: str, value: Value, dims: Any, keepdim: bool) -> tuple[list[Value], Shape]:
    """The parts of a row that a reduction over `dims` combines, one per result, and the shape of the result."""
    if not dims:
        raise Unsupported(f"{what} over all numbers of a batch")
    axes = {axis % len(value.shape) for axis in dims}
    if any(value.shape[axis] == BATCH for axis in axes):
        raise Unsupported(f"{what} over dimensions {dims}")
    kept = [size for axis, size in enumerate(value.shape) if axis not in axes]
    groups = count(kept)
    long = [axis in axes for axis, size in enumerate(value.shape) if size not in (1, BATCH)]
    if long != sorted(long) or groups > MAX_PIECES:
        raise Unsupported(f"{what} over dimensions {dims} of {format_shapes(value.shape)}")
    size = value.width // groups
    parts = [reader.cut(value, low, low + size) for low in range(0, value.width, size)]
    return parts, tuple(1 if axis in axes else n for axis, n in enumerate(value.shape)) if keepdim else tuple(kept)


def row_sum(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    groups, shape = _reduction_groups(reader, "a sum", value, dims, keepdim)
    return Value(tuple(_sum_of(reader.builder, group.segments) for group in groups), shape)


def _sum_of(b: Builder, segments: Sequence[Node]) -> Node:
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
    return _var_mean(reader, value, dims, correction=correction, keepdim=keepdim)[0]


def _std(reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    variance = _var(reader, value, dims, correction=correction, keepdim=keepdim)
    return reader.elementwise(_sqrt_of_norm, (variance,), {})


def _amax(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    groups, shape = _reduction_groups(reader, "a maximum", value, dims, keepdim)
    return Value(tuple(_max_of(reader.builder, group.segments) for group in groups), shape)


def _max_of(b: Builder, segments: Sequence[Node]) -> Node:
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


def _log_of_sum(reader: Reader, value: Value, shift: Value, dims: Any, keepdim: bool) -> Value:
    total = row_sum(reader, _shifted_exp(reader, value, shift), dims, keepdim)
    shift = shift.with_shape(total.shape)
    return reader.elementwise(lambda b, x, y: b.make("log", x) + y, (total, shift), {})


def _logsumexp(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    """An infinite maximum is replaced by 0, as in torch: `-inf - -inf` is NaN."""

    def finite(b: Builder, m: Node) -> Node:
        return b.make("where", b.make("eq", b.make("abs", m), b.const(float("inf"))), b.const(0.0), m)

    shift = reader.elementwise(finite, (_detached_max(reader, value, dims),), {})
    return _log_of_sum(reader, value, shift, dims, keepdim)


def _softmax(reader: Reader, value: Value, dim: int, half_to_float: bool = False) -> Value:
    powers = _shifted_exp(reader, value, _detached_max(reader, value, [dim]))
    return reader.elementwise(operation("div"), (powers, row_sum(reader, powers, [dim], keepdim=True)), {})


def _log_softmax(reader: Reader, value: Value, dim: int, half_to_float: bool = False) -> Value:
    total = _log_of_sum(reader, value, _detached_max(reader, value, [dim]), [dim], keepdim=True)
    return reader.elementwise(operation("sub"), (value, total), {})


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


def _axis_and_stride(what: str, value: Value, dim: int) -> tuple[int, int]:
    """The non-negative axis for `dim`, and the number of contiguous elements per index of it."""
    axis = dim % len(value.shape)
    if value.shape[axis] == BATCH:
        raise Unsupported(f"{what} along the batch")
    if count(value.shape[:axis]) > 1:
        raise Unsupported(f"{what} along dimension {dim} of {format_shapes(value.shape)}")
    return axis, count(value.shape[axis + 1 :])


def _replace_size(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _slice_axis(reader: Reader, value: Value, axis: int, low: int, high: int) -> Value:
    """Indices `low` to `high` of an axis that `_axis_and_stride` accepted."""
    each = count(value.shape[axis + 1 :])
    return reader.cut(value, low * each, high * each).with_shape(_replace_size(value.shape, axis, high - low))


def _glu(reader: Reader, value: Value, dim: int = -1) -> Value:
    axis, each = _axis_and_stride("aten.glu", value, dim)
    half = value.width // each // 2
    gate = reader.elementwise(operation("sigmoid"), (_slice_axis(reader, value, axis, half, 2 * half),), {})
    return reader.elementwise(operation("mul"), (_slice_axis(reader, value, axis, 0, half), gate), {})


def _roll(reader: Reader, value: Value, shifts: list[int], dims: list[int] = []) -> Value:  # noqa: B006
    if len(dims) != 1:
        raise Unsupported("aten.roll along the batch")
    _, each = _axis_and_stride("aten.roll", value, dims[0])
    at = -shifts[0] * each % value.width
    if at == 0:
        return value
    parts = reader.cut(value, at, value.width), reader.cut(value, 0, at)
    return Value(tuple(s for part in parts for s in part.segments), value.shape)


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


def _log_sigmoid(reader: Reader, value: Value) -> tuple[Value, ...]:
    return (reader.elementwise(lambda b, x: 0.0 - b.make("softplus", -x), (value,), {}),)


def _cat(reader: Reader, values: list[Any], dim: int = 0) -> Value:
    rows = [reader.value(v) for v in values]
    axis = _axis_and_stride("aten.cat", rows[0], dim)[0]
    size = sum(count(value.shape[axis : axis + 1]) for value in rows)
    return Value(tuple(s for value in rows for s in value.segments), _replace_size(rows[0].shape, axis, size))


def _stack(reader: Reader, values: list[Any], dim: int = 0) -> Value:
    rows = [reader.value(v) for v in values]
    axis = dim % (len(rows[0].shape) + 1)
    return _cat(reader, [v.with_shape((*v.shape[:axis], 1, *v.shape[axis:])) for v in rows], axis)


def _repeat(reader: Reader, value: Value, times: list[int]) -> Value:
    long = [axis for axis, n in enumerate(times) if n != 1]
    if len(times) != len(value.shape) or len(long) != 1 or times[long[0]] < 1:
        raise Unsupported(f"a row {format_shapes(value.shape)} repeated {times} times")
    axis, each = _axis_and_stride("aten.repeat", value, long[0])
    n = times[axis]
    return Value(value.segments * n, _replace_size(value.shape, axis, n * value.width // each))


def _slice(reader: Reader, value: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    if _is_whole(start, end, step):
        return value
    bounds = _bounds("aten.slice", value, dim, start, end, step)
    return _slice_axis(reader, value, *bounds)


def _is_whole(start: Any, end: Any, step: int) -> bool:
    return start in (None, 0) and (end in (None, BATCH) or end > 1 << 40) and step == 1


def _bounds(what: str, value: Value, dim: int, start: Any, end: Any, step: int) -> tuple[int, int, int]:
    """`(axis, first index, end index)` of a slice."""
    axis, each = _axis_and_stride(what, value, dim)
    if step != 1 or BATCH in (start, end):
        raise Unsupported(f"{what} with a step, or with the batch as a bound")
    low, high, _ = slice(start, end).indices(value.width // each)
    if high <= low:
        raise Unsupported("a slice of nothing")
    return axis, low, high


def _copy(reader: Reader, value: Value, source: Any, *_: Any) -> Value:
    """`value[:] = source`."""
    return reader.broadcast_to(reader.value(source), value.shape)


def _slice_scatter(
    reader: Reader, value: Value, part: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """`value[start:end] = part` along an axis."""
    if _is_whole(start, end, step):
        return reader.value(part)
    axis, low, high = _bounds("aten.slice_scatter", value, dim, start, end, step)
    each = count(value.shape[axis + 1 :])
    before = reader.cut(value, 0, low * each).segments if low else ()
    after = reader.cut(value, high * each, value.width).segments if high * each < value.width else ()
    return Value((*before, *reader.value(part).segments, *after), value.shape)


def _select_scatter(reader: Reader, value: Value, part: Any, dim: int, index: int) -> Value:
    index %= max(1, count(value.shape[dim : dim + 1 or None]))
    return _slice_scatter(reader, value, part, dim, index, index + 1)


def _split(reader: Reader, value: Value, size: int | list[int], dim: int = 0) -> list[Value]:
    axis, each = _axis_and_stride("aten.split", value, dim)
    whole = value.width // each
    sizes = size if isinstance(size, list) else [min(size, whole - i) for i in range(0, whole, size)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [_slice_axis(reader, value, axis, low, low + n) for low, n in zip(starts, sizes, strict=True)]


def _select(reader: Reader, value: Value, dim: int, index: int) -> Value:
    axis = dim % len(value.shape)
    shape = value.shape[:axis] + value.shape[axis + 1 :]
    if value.shape[axis] == 1:
        return value.with_shape(shape)
    each = _axis_and_stride("aten.select", value, dim)[1]
    index %= value.width // each
    return _slice_axis(reader, value, axis, index, index + 1).with_shape(shape)


def _unbind(reader: Reader, value: Value, dim: int = 0) -> list[Value]:
    size = value.shape[dim]
    if not isinstance(size, int):
        raise Unsupported("aten.unbind along the batch")
    return [_select(reader, value, dim, index) for index in range(size)]


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
    aten.roll.default: _roll,
    aten.native_layer_norm.default: _layer_norm,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.cat.default: _cat,
    aten.stack.default: _stack,
    aten.repeat.default: _repeat,
    aten.slice.Tensor: _slice,
    aten.copy.default: _copy,
    aten.fill.Scalar: _copy,
    aten.fill.Tensor: _copy,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.select.int: _select,
    aten.unbind.int: _unbind,
    aten.full_like.default: _like(None),
    aten.zeros_like.default: _like(0.0),
    aten.ones_like.default: _like(1.0),
    aten.full.default: _full(None),
    aten.zeros.default: _full(0.0),
    aten.ones.default: _full(1.0),
    aten.new_full.default: _new(None),
    aten.new_zeros.default: _new(0.0),
    aten.new_ones.default: _new(1.0),
}
