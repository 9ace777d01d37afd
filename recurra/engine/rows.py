"""Operations of torch that see a row as a whole: products, sums, slices; one table row each."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import torch

from .elementwise import plain
from .nodes import Builder, Matrix, Node, Vector
from .values import Hoisted, Unsupported, Value, boundaries

aten = torch.ops.aten

# A product with so few numbers is a sum of columns times numbers: no matrix product pays, least of all its gradient.
NARROW = 4


class Reader(Protocol):
    """What these functions ask of whoever reads a graph."""

    builder: Builder

    def value(self, argument: Any) -> Value: ...

    def cut(self, value: Value, low: int, high: int) -> Value: ...

    def elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value: ...

    def of_each_step(self, node: Node) -> Node: ...


def _linear(reader: Reader, value: Value, weight: Any, bias: Any = None) -> Value:
    if not isinstance(weight, Hoisted) or not isinstance(value, Value) or len(weight.shape) != 2:
        raise Unsupported("a matrix product of two values that change with time")
    result = _product(reader, value, weight, flipped=False)
    return result if bias is None else reader.elementwise(plain("add"), (result, bias), {})


def _mm(reader: Reader, value: Any, weight: Any) -> Value:
    if not isinstance(weight, Hoisted) or not isinstance(value, Value):
        raise Unsupported("a matrix product of two values that change with time")
    return _product(reader, value, weight, flipped=True)


def _product(reader: Reader, value: Value, weight: Hoisted, flipped: bool) -> Value:
    rows, cols = weight.shape
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
    return Value((total,))


def _narrow(b: Builder, value: Node, weight: str, rows: int, first: int) -> Node:
    total: Node | None = None
    for k in range(value.width):
        column = b.weight(Vector(weight, (0, rows), first + k))
        term = column * b.cut(value, k, k + 1)
        total = term if total is None else total + term
    assert total is not None
    return total


def _mv(reader: Reader, value: Value, weight: Any) -> Value:
    return _sum(reader, reader.elementwise(plain("mul"), (value, weight), {}), [-1])


def _check_row(what: str, value: Value, dims: Any) -> None:
    if value.flat or not dims or [d % 2 for d in dims] != [1]:
        raise Unsupported(f"{what} over dimensions {dims}" if dims else f"{what} over all numbers of a batch")


def _sum(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    _check_row("sum", value, dims)
    total: Node | None = None
    for segment in value.segments:
        term = reader.builder.rowsum(segment, segment.width)
        total = term if total is None else total + term
    assert total is not None
    return Value((total,), flat=not keepdim)


def _mean(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    total = _sum(reader, value, dims, keepdim)
    return Value((total.segments[0] * (1.0 / value.width),), total.flat)


def _var_mean(
    reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    mean = _mean(reader, value, dims, keepdim=True)
    centred = reader.elementwise(plain("sub"), (value, mean), {})
    total = _sum(reader, reader.elementwise(plain("mul"), (centred, centred), {}), dims, keepdim)
    count = value.width - (1 if correction is None else correction)
    return Value((total.segments[0] / float(count),), total.flat), Value(mean.segments, total.flat)


def _var(reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    return _var_mean(reader, value, dims, correction=correction, keepdim=keepdim)[0]


def _std(reader: Reader, value: Value, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Value:
    return reader.elementwise(plain("sqrt"), (_var(reader, value, dims, correction=correction, keepdim=keepdim),), {})


def _amax(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    _check_row("maximum", value, dims)
    highest, *others = (reader.builder.rowmax(segment) for segment in value.segments)
    for other in others:
        highest = reader.builder.make("maximum", highest, other)
    return Value((highest,), flat=not keepdim)


def _amin(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    highest = _amax(reader, reader.elementwise(plain("neg"), (value,), {}), dims, keepdim)
    return reader.elementwise(plain("neg"), (highest,), {})


def _logsumexp(reader: Reader, value: Value, dims: Any = None, keepdim: bool = False) -> Value:
    highest = _amax(reader, value, dims, keepdim=True)
    shifted = reader.elementwise(plain("sub"), (value, highest), {})
    total = _sum(reader, reader.elementwise(plain("exp"), (shifted,), {}), dims, keepdim=True)
    log = reader.builder.make("log", total.segments[0])
    return Value((log + highest.segments[0],), flat=not keepdim)


def _log_softmax(reader: Reader, value: Value, dim: int, half_to_float: bool = False) -> Value:
    return reader.elementwise(plain("sub"), (value, _logsumexp(reader, value, [dim], keepdim=True)), {})


def _norm(
    reader: Reader, value: Value, order: float = 2.0, dims: Any = None, keepdim: bool = False, dtype: Any = None
) -> Value:
    if float(order) not in (1.0, 2.0, float("inf")) or dims is None:
        raise Unsupported(f"a norm of order {order} over {dims}")
    if order == 2.0:
        total = _sum(reader, reader.elementwise(lambda b, x: x * x, (value,), {}), dims, keepdim)
        return reader.elementwise(_root, (total,), {})
    size = reader.elementwise(plain("abs"), (value,), {})
    return _sum(reader, size, dims, keepdim) if order == 1.0 else _amax(reader, size, dims, keepdim)


def _root(b: Builder, x: Node) -> Node:
    """A square root whose derivative at zero is zero, as torch has it for norms."""
    none = b.make("eq", x, b.const(0.0))
    return b.make("where", none, b.const(0.0), b.make("sqrt", b.make("where", none, b.const(1.0), x)))


def _glu(reader: Reader, value: Value, dim: int = -1) -> Value:
    if dim % 2 != 1 or value.width % 2:
        raise Unsupported("aten.glu along the batch")
    half = value.width // 2
    gate = reader.elementwise(plain("sigmoid"), (reader.cut(value, half, value.width),), {})
    return reader.elementwise(plain("mul"), (reader.cut(value, 0, half), gate), {})


def _roll(reader: Reader, value: Value, shifts: list[int], dims: list[int] = []) -> Value:  # noqa: B006
    if [d % 2 for d in dims] != [1]:
        raise Unsupported("aten.roll along the batch")
    at = -shifts[0] % value.width
    if at == 0:
        return value
    return Value((*reader.cut(value, at, value.width).segments, *reader.cut(value, 0, at).segments))


def _layer_norm(
    reader: Reader, value: Value, shape: list[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, ...]:
    if shape != [value.width]:
        raise Unsupported(f"a layer norm over {shape} of rows of {value.width}")
    variance, mean = _var_mean(reader, value, [1], correction=0, keepdim=True)
    scale = reader.builder.make("rsqrt", variance.segments[0] + float(eps))
    centred = reader.elementwise(plain("sub"), (value, mean), {})
    result = reader.elementwise(plain("mul"), (centred, Value((scale,))), {})
    for op, extra in (("mul", weight), ("add", bias)):
        result = result if extra is None else reader.elementwise(plain(op), (result, extra), {})
    return (result,)


def _log_sigmoid(reader: Reader, value: Value) -> tuple[Value, ...]:
    return (reader.elementwise(lambda b, x: -b.make("softplus", -x), (value,), {}),)


def _cat(reader: Reader, values: list[Any], dim: int = 0) -> Value:
    if dim % 2 != 1:
        raise Unsupported("aten.cat along the batch")
    return Value(tuple(s for v in values for s in reader.value(v).segments))


def _repeat(reader: Reader, value: Value, times: list[int]) -> Value:
    if value.flat or len(times) != 2 or times[0] != 1 or times[1] < 1:
        raise Unsupported(f"a row repeated {times} times")
    return Value(value.segments * times[1])


def _slice(reader: Reader, value: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    everything = start in (None, 0) and (end in (None, "batch") or end > 1 << 40) and step == 1
    if everything and (dim % 2 == 0 or value.flat):
        return value
    if dim % 2 != 1 or step != 1 or value.flat:
        raise Unsupported("aten.slice with a step, or along the batch")
    low, high, _ = slice(start, end).indices(value.width)
    if high <= low:
        raise Unsupported("a slice of nothing")
    return reader.cut(value, low, high)


def _split(reader: Reader, value: Value, size: int | list[int], dim: int = 0) -> list[Value]:
    if dim % 2 != 1:
        raise Unsupported("aten.split along the batch")
    sizes = size if isinstance(size, list) else [min(size, value.width - i) for i in range(0, value.width, size)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [reader.cut(value, low, low + n) for low, n in zip(starts, sizes, strict=True)]


def _select(reader: Reader, value: Value, dim: int, index: int) -> Value:
    if dim % 2 != 1 or value.flat:
        raise Unsupported("aten.select along the batch")
    index %= value.width
    return Value(reader.cut(value, index, index + 1).segments, flat=True)


def _unsqueeze(reader: Reader, value: Value, dim: int) -> Value:
    if not value.flat or dim not in (1, -1):
        raise Unsupported("aten.unsqueeze of a row")
    return Value(value.segments)


def _squeeze(reader: Reader, value: Value, dim: Any = None) -> Value:
    if value.width == 1 and dim in (1, -1, [1], [-1]):
        return Value(value.segments, flat=True)
    raise Unsupported("aten.squeeze of a row")


def _shaped(reader: Reader, value: Any, shape: list[Any], **_: Any) -> Value:
    """expand and view, where they leave a row a row."""
    row = reader.value(value)
    if len(shape) == 2 and shape[0] in ("batch", -1):
        width = row.width if shape[1] == -1 else shape[1]
        if width == row.width:
            return Value(row.segments)
        if row.width == 1:
            return Value((reader.builder.expand(row.segments[0], width),))
    raise Unsupported(f"a view of a row as {shape}")


def _filled(fill: float | None) -> Callable[..., Value]:
    def read(reader: Reader, like: Any, value: Any = None, **_: Any) -> Value:
        number = reader.builder.const(value if fill is None else fill)
        if not isinstance(like, Value):
            raise Unsupported("a constant shaped like a weight")
        return Value((reader.builder.expand(number, like.width),), like.flat)

    return read


def _full(fill: float | None) -> Callable[..., Value]:
    def read(reader: Reader, shape: list[Any], value: Any = None, **_: Any) -> Value:
        if not shape:
            return Value((reader.builder.const(value if fill is None else fill),), flat=True)
        if len(shape) != 2 or shape[0] != "batch":
            raise Unsupported(f"a constant of shape {shape}")
        return Value((reader.builder.expand(reader.builder.const(value if fill is None else fill), shape[1]),))

    return read


def _new(fill: float | None) -> Callable[..., Value]:
    return lambda reader, _, shape, value=None, **__: _full(fill)(reader, shape, value)


READERS: dict[Any, Callable] = {
    aten.linear.default: _linear,
    aten.mm.default: _mm,
    aten.mv.default: _mv,
    aten.sum.dim_IntList: _sum,
    aten.mean.dim: _mean,
    aten.var.correction: _var,
    aten.var_mean.correction: _var_mean,
    aten.std.correction: _std,
    aten.amax.default: _amax,
    aten.amin.default: _amin,
    aten.logsumexp.default: _logsumexp,
    aten._log_softmax.default: _log_softmax,
    aten.linalg_vector_norm.default: _norm,
    aten.glu.default: _glu,
    aten.roll.default: _roll,
    aten.native_layer_norm.default: _layer_norm,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.cat.default: _cat,
    aten.repeat.default: _repeat,
    aten.slice.Tensor: _slice,
    aten.split.Tensor: _split,
    aten.split_with_sizes.default: _split,
    aten.select.int: _select,
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.expand.default: _shaped,
    aten.view.default: _shaped,
    aten._unsafe_view.default: _shaped,
    aten.full_like.default: _filled(None),
    aten.zeros_like.default: _filled(0.0),
    aten.ones_like.default: _filled(1.0),
    aten.full.default: _full(None),
    aten.zeros.default: _full(0.0),
    aten.ones.default: _full(1.0),
    aten.new_full.default: _new(None),
    aten.new_zeros.default: _new(0.0),
    aten.new_ones.default: _new(1.0),
}
