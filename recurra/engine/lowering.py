"""A traced step → nodes: what leaves the loop over time, and what stays in it, as rows of numbers.

Whatever depends on weights alone becomes the *prologue*, run once a call by torch (which also differentiates it).
Moving numbers about (split, slice, cat) disappears: a value is a tuple of segments, a product of a concatenation is a
sum of products with columns of the weight, a piece of a product is a product with rows of the weight.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate, map_arg

from ..cell import Cell
from .nodes import Builder, Matrix, Node, Vector
from .trace import Step, lower

aten = torch.ops.aten

# A product with so few numbers is a sum of columns times numbers: no matrix product pays, least of all its gradient.
NARROW = 4


class Unsupported(Exception):
    """The compiled engines do not take this cell; the message names the operation."""


@dataclass(frozen=True)
class Value:
    """A row of numbers in segments; `flat` if torch sees `(B,)` instead of `(B, 1)`."""

    segments: tuple[Node, ...]
    flat: bool = False

    @property
    def width(self) -> int:
        return sum(s.width for s in self.segments)


@dataclass(frozen=True)
class Hoisted:
    """Something computed from weights alone."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Equations:
    """One step as nodes: the results by name, and the function that makes their weights."""

    builder: Builder
    outputs: dict[str, tuple[Node, ...]]  # "output", then the states
    named: dict[str, tuple[Node, ...]]
    weights: tuple[str, ...]  # what the step reads of the cell, in the prologue's order
    hoisted: dict[str, tuple[int, ...]]  # what the prologue gives, by name: shape
    prologue: Callable[..., tuple[Tensor, ...]]


def equations(cell: Cell, step: Step) -> Equations:
    """A traced step of the cell as nodes. Raises `Unsupported` naming what the engines cannot take."""
    try:
        return _Reader(cell, step).read()
    except Unsupported:
        simpler = lower(step)  # takes seconds, so it is not asked for what is known here anyway
        if simpler is step:
            raise
        return _Reader(cell, simpler).read()


class _Reader:
    def __init__(self, cell: Cell, step: Step):
        self.cell, self.step, self.builder = cell, step, Builder()
        self.values: dict[fx.Node, Any] = {}
        self.meta: dict[fx.Node, Any] = {}  # of what depends on weights alone
        self.used: dict[str, tuple[fx.Node, tuple[int, ...]]] = {}

    def read(self) -> Equations:
        placeholders = self.step.placeholders()
        for node, name in zip(placeholders, self.step.inputs, strict=False):
            self.values[node] = Value((self._input(name, node),))
        for node in placeholders[len(self.step.inputs) :]:
            like = node.meta["val"]  # on the "meta" device, torch would import its compiler for this
            self.meta[node] = torch.zeros(like.shape, dtype=like.dtype)
        for node in self.step.graph.nodes:
            if node.op == "call_function":
                self._call(node)
        names = (*self.step.outputs, *self.step.named)
        results = [(name, self._result(node)) for name, node in zip(names, self.step.results(), strict=True)]
        count = len(self.step.outputs)
        return Equations(
            self.builder,
            {name: segments for name, segments in results[:count] if segments is not None},
            {name: segments for name, segments in results[count:] if segments is not None},
            self.step.weights,
            {name: shape for name, (_, shape) in self.used.items()},
            self._prologue(),
        )

    def _input(self, name: str, node: fx.Node) -> Node:
        """`h[3]` is the state h of three steps before; a plain state that of one step before."""
        width = node.meta["val"].shape[1]
        base, _, delay = name.partition("[")
        if any(state.name == base for state in self.cell.carried):
            return self.builder.load(base, width, lag=int(delay.rstrip("]")) if delay else 1)
        return self.builder.load(name, width)

    def _result(self, node: fx.Node) -> tuple[Node, ...] | None:
        value = self._operand(node)
        return value.segments if isinstance(value, Value) else None

    def _prologue(self) -> Callable[..., tuple[Tensor, ...]]:
        graph = fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in self.step.placeholders()[len(self.step.inputs) :]}
        for node in self.step.graph.nodes:
            if node in self.meta and node not in copies:
                copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output([copies[node] for node, _ in self.used.values()])
        graph.eliminate_dead_code()
        return fx.GraphModule(torch.nn.Module(), graph).forward

    # ------------------------------------------------------------------------------------------ one operation

    def _call(self, node: fx.Node) -> None:
        arguments = map_arg((node.args, node.kwargs), lambda n: n)
        parents: list[fx.Node] = []
        map_arg(arguments, lambda n: parents.append(n) or n)
        if all(parent in self.meta for parent in parents):
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.meta[n])
            if "device" in kwargs:
                kwargs = kwargs | {"device": "cpu"}
            self.meta[node] = node.target(*args, **kwargs)  # pyrefly: ignore
            return
        given: Any = map_aggregate((node.args, node.kwargs), self._resolve)
        args, kwargs = given
        if node.target is aten.sym_size.int:
            self.values[node] = "batch"
        elif node.target is operator.getitem:
            self.values[node] = args[0][args[1]]
        elif node.target in READERS:
            self.values[node] = READERS[node.target](self, *args, **kwargs)
        elif node.target in ELEMENTWISE:
            self.values[node] = self._elementwise(ELEMENTWISE[node.target], args, kwargs)
        else:
            raise Unsupported(f"{node.target}")

    def _resolve(self, argument: Any) -> Any:
        return self._operand(argument) if isinstance(argument, fx.Node) else argument

    def _operand(self, node: fx.Node) -> Any:
        if node in self.values:
            return self.values[node]
        meta = self.meta[node]
        if not isinstance(meta, Tensor):
            return meta
        name = self.step.weights[self._weight_index(node)] if node.op == "placeholder" else f"={node.name}"
        self.used[name] = (node, tuple(meta.shape))
        return Hoisted(name, tuple(meta.shape))

    def _weight_index(self, node: fx.Node) -> int:
        return self.step.placeholders().index(node) - len(self.step.inputs)

    def value(self, argument: Any) -> Value:
        """Anything a row can be combined with, as a row."""
        if isinstance(argument, Value):
            return argument
        if isinstance(argument, (int, float)):
            return Value((self.builder.const(argument),), flat=True)
        if isinstance(argument, Hoisted):
            shape = argument.shape
            if len(shape) <= 1 or (len(shape) == 2 and shape[0] == 1):
                count = shape[-1] if shape else 1
                return Value((self.builder.weight(Vector(argument.name, (0, count))),), flat=len(shape) == 0)
            raise Unsupported(f"a weight of shape {shape} outside a matrix product")
        raise Unsupported(f"{argument!r} as an operand")

    def _elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value:
        rows = [a for a in args if isinstance(a, Value)]
        flat = all(row.flat for row in rows)
        values = [self.value(a) if isinstance(a, (Value, Hoisted)) else a for a in args]
        if any(row.flat for row in rows) and not flat:
            raise Unsupported("an operation between shapes (B,) and (B, n)")
        pieces = self.aligned([v for v in values if isinstance(v, Value)])
        made = []
        for piece in pieces:
            parts = iter(piece)
            made.append(op(self.builder, *(next(parts) if isinstance(v, Value) else v for v in values), **kwargs))
        return Value(tuple(made), flat)

    def aligned(self, values: Sequence[Value]) -> list[list[Node]]:
        """Cut the values at each other's boundaries: one list of nodes a piece. Width 1 goes with every piece."""
        cuts = sorted({c for v in values if v.width > 1 for c in _boundaries(v)})
        if not cuts:
            return [[v.segments[0] for v in values]]
        ends = {_boundaries(v)[-1] for v in values if v.width > 1}
        if len(ends) > 1:
            raise Unsupported(f"an operation between widths {sorted(ends)}")
        return [[self.piece(v, low, high) for v in values] for low, high in pairwise(cuts)]

    def piece(self, value: Value, low: int, high: int) -> Node:
        if value.width == 1:
            return value.segments[0]
        for (first, last), segment in zip(pairwise(_boundaries(value)), value.segments, strict=True):
            if first <= low and high <= last:
                return self.builder.cut(segment, low - first, high - first)
        raise AssertionError("a piece lies within one segment")

    def cut(self, value: Value, low: int, high: int) -> Value:
        inner = [c for c in _boundaries(value) if low < c < high]
        if value.width == 1:
            return value
        return Value(tuple(self.piece(value, a, b) for a, b in pairwise([low, *inner, high])))


def _boundaries(value: Value) -> list[int]:
    cuts = [0]
    for segment in value.segments:
        cuts.append(cuts[-1] + segment.width)
    return cuts


# ---------------------------------------------------------------------------------------------------- elementwise


def _node(builder: Builder, value: Node | float) -> Node:
    return builder.lift(value)


def _plain(op: str) -> Callable[..., Node]:
    return lambda b, *args: b.make(op, *(_node(b, a) for a in args))


def _scaled(op: str) -> Callable[..., Node]:
    """add and sub carry a factor for their second operand."""
    return lambda b, x, y, alpha=1: b.make(op, _node(b, x), _node(b, y) if alpha == 1 else _node(b, y) * float(alpha))


def _division(b: Builder, x: Any, y: Any, rounding_mode: str | None = None) -> Node:
    if rounding_mode not in (None, "floor"):
        raise Unsupported(f"division with rounding_mode={rounding_mode!r}")
    quotient = b.make("div", _node(b, x), _node(b, y))
    return b.make("floor", quotient) if rounding_mode else quotient


def _power(b: Builder, x: Node, exponent: Any) -> Node:
    if not isinstance(exponent, (int, float)):
        raise Unsupported("aten.pow with an exponent that is not a number")
    known = {
        0.0: lambda: b.const(1.0),
        1.0: lambda: x,
        2.0: lambda: x * x,
        3.0: lambda: x * x * x,
        -1.0: lambda: b.make("reciprocal", x),
        0.5: lambda: b.make("sqrt", x),
        -0.5: lambda: b.make("rsqrt", x),
    }
    return known[float(exponent)]() if float(exponent) in known else b.make("pow", x, attr=float(exponent))


def _clamp(b: Builder, x: Node, low: Any = None, high: Any = None, *, min: Any = None, max: Any = None) -> Node:
    bounds = (low if low is not None else min, high if high is not None else max)
    if any(not isinstance(bound, (int, float, type(None))) for bound in bounds):
        raise Unsupported("aten.clamp with tensors as bounds")
    return b.make("clamp", x, attr=tuple(None if bound is None else float(bound) for bound in bounds))


def _softplus(b: Builder, x: Node, beta: float = 1.0, threshold: float = 20.0) -> Node:
    return b.make("softplus", x * float(beta)) / float(beta)


def _elu(b: Builder, x: Node, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Node:
    low = b.make("expm1", x * float(input_scale)) * (float(alpha) * float(scale))
    return b.make("where", b.make("gt", x, b.const(0.0)), x * float(scale), low)


def _leaky(b: Builder, x: Node, slope: float = 0.01) -> Node:
    return b.make("where", b.make("gt", x, b.const(0.0)), x, x * float(slope))


def _gelu(b: Builder, x: Node, approximate: str = "none") -> Node:
    if approximate != "none":
        raise Unsupported("aten.gelu with approximate='tanh'")
    return x * 0.5 * (b.make("erf", x * 0.7071067811865476) + 1.0)


def _same(b: Builder, x: Node, *_: Any, **__: Any) -> Node:
    return x


ELEMENTWISE: dict[Any, Callable[..., Node]] = {
    aten.add.Tensor: _scaled("add"),
    aten.add.Scalar: _scaled("add"),
    aten.sub.Tensor: _scaled("sub"),
    aten.sub.Scalar: _scaled("sub"),
    aten.rsub.Scalar: lambda b, x, y, alpha=1: _node(b, y) - (x if alpha == 1 else x * float(alpha)),
    aten.mul.Tensor: _plain("mul"),
    aten.mul.Scalar: _plain("mul"),
    aten.div.Tensor: _division,
    aten.div.Scalar: _division,
    aten.div.Tensor_mode: _division,
    aten.pow.Tensor_Scalar: _power,
    aten.square.default: lambda b, x: x * x,
    aten.clamp.default: _clamp,
    aten.clamp_min.default: lambda b, x, low: _clamp(b, x, low, None),
    aten.clamp_max.default: lambda b, x, high: _clamp(b, x, None, high),
    aten.hardtanh.default: lambda b, x, low=-1.0, high=1.0: _clamp(b, x, low, high),
    aten.softplus.default: _softplus,
    aten.elu.default: _elu,
    aten.leaky_relu.default: _leaky,
    aten.gelu.default: _gelu,
    aten.silu.default: lambda b, x: x * b.make("sigmoid", x),
    aten.clone.default: _same,
    aten.alias.default: _same,
    aten._to_copy.default: _same,
    aten.detach.default: _plain("stop"),
    aten.logical_and.default: _plain("and"),
    aten.logical_or.default: _plain("or"),
    aten.logical_not.default: _plain("not"),
    aten.bitwise_and.Tensor: _plain("and"),
    aten.bitwise_or.Tensor: _plain("or"),
    aten.bitwise_not.default: _plain("not"),
    aten.where.self: _plain("where"),
    aten.where.ScalarSelf: _plain("where"),
    aten.where.ScalarOther: _plain("where"),
    aten.where.Scalar: _plain("where"),
    aten.remainder.Tensor: _plain("remainder"),
    aten.remainder.Scalar: _plain("remainder"),
}
ELEMENTWISE |= {
    getattr(aten, name).default: _plain(name)
    for name in [
        "neg",
        "reciprocal",
        "sigmoid",
        "tanh",
        "relu",
        "exp",
        "expm1",
        "log",
        "log1p",
        "sin",
        "cos",
        "erf",
        "sqrt",
        "rsqrt",
        "abs",
        "sign",
        "floor",
        "maximum",
        "minimum",
    ]
}
ELEMENTWISE |= {
    getattr(getattr(aten, name), kind): _plain(name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge")
    for kind in ("Tensor", "Scalar")
}


# ---------------------------------------------------------------------------------------------------- the other rows


def _linear(reader: _Reader, value: Value, weight: Any, bias: Any = None) -> Value:
    if not isinstance(weight, Hoisted) or not isinstance(value, Value) or len(weight.shape) != 2:
        raise Unsupported("a matrix product of two values that change with time")
    result = _product(reader, value, weight, flipped=False)
    return result if bias is None else reader._elementwise(_plain("add"), (result, bias), {})


def _mm(reader: _Reader, value: Any, weight: Any) -> Value:
    if not isinstance(weight, Hoisted) or not isinstance(value, Value):
        raise Unsupported("a matrix product of two values that change with time")
    return _product(reader, value, weight, flipped=True)


def _product(reader: _Reader, value: Value, weight: Hoisted, flipped: bool) -> Value:
    rows, cols = weight.shape
    total: Node | None = None
    for (low, high), segment in zip(pairwise(_boundaries(value)), value.segments, strict=True):
        if high - low <= NARROW and not flipped and segment.op == "load" and segment.attr.lag == 0:
            term = _narrow(reader.builder, segment, weight.name, rows, low)
        elif flipped:
            term = reader.builder.product(segment, Matrix(weight.name, (low, high), (0, cols), True))
        else:
            term = reader.builder.product(segment, Matrix(weight.name, (0, rows), (low, high)))
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


def _mv(reader: _Reader, value: Value, weight: Any) -> Value:
    return _sum(reader, reader._elementwise(_plain("mul"), (value, weight), {}), [-1])


def _sum(reader: _Reader, value: Value, dims: list[int], keepdim: bool = False, dtype: Any = None) -> Value:
    if [d % 2 for d in dims] != [1] or value.flat:
        raise Unsupported(f"a sum over dimensions {dims}")
    total: Node | None = None
    for segment in value.segments:
        term = reader.builder.rowsum(segment, segment.width)
        total = term if total is None else total + term
    assert total is not None
    return Value((total,), flat=not keepdim)


def _mean(reader: _Reader, value: Value, dims: list[int], keepdim: bool = False, dtype: Any = None) -> Value:
    total = _sum(reader, value, dims, keepdim)
    return Value((total.segments[0] * (1.0 / value.width),), total.flat)


def _var_mean(
    reader: _Reader, value: Value, dims: list[int], *, correction: Any = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    mean = _mean(reader, value, dims, keepdim=True)
    centred = reader._elementwise(_plain("sub"), (value, mean), {})
    total = _sum(reader, reader._elementwise(_plain("mul"), (centred, centred), {}), dims, keepdim)
    count = value.width - (1 if correction is None else correction)
    return Value((total.segments[0] / float(count),), total.flat), Value(mean.segments, total.flat)


def _var(reader: _Reader, value: Value, dims: list[int], *, correction: Any = 1, keepdim: bool = False) -> Value:
    return _var_mean(reader, value, dims, correction=correction, keepdim=keepdim)[0]


def _layer_norm(
    reader: _Reader, value: Value, shape: list[int], weight: Any, bias: Any, eps: float
) -> tuple[Value, ...]:
    if shape != [value.width]:
        raise Unsupported(f"a layer norm over {shape} of rows of {value.width}")
    variance, mean = _var_mean(reader, value, [1], correction=0, keepdim=True)
    scale = reader.builder.make("rsqrt", variance.segments[0] + float(eps))
    centred = reader._elementwise(_plain("sub"), (value, mean), {})
    result = reader._elementwise(_plain("mul"), (centred, Value((scale,))), {})
    for op, extra in (("mul", weight), ("add", bias)):
        result = result if extra is None else reader._elementwise(_plain(op), (result, extra), {})
    return (result,)


def _log_sigmoid(reader: _Reader, value: Value) -> tuple[Value, ...]:
    return (reader._elementwise(lambda b, x: -b.make("softplus", -x), (value,), {}),)


def _cat(reader: _Reader, values: list[Any], dim: int = 0) -> Value:
    if dim % 2 != 1:
        raise Unsupported("aten.cat along the batch")
    return Value(tuple(s for v in values for s in reader.value(v).segments))


def _slice(reader: _Reader, value: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    low, high, _ = slice(start, end).indices(value.width)
    if dim % 2 == 0 and start in (None, 0) and (end is None or end == "batch" or end > 1 << 40):
        return value
    if dim % 2 != 1 or step != 1 or value.flat:
        raise Unsupported("aten.slice with a step, or along the batch")
    return reader.cut(value, low, max(low, high))


def _split(reader: _Reader, value: Value, size: int | list[int], dim: int = 0) -> list[Value]:
    if dim % 2 != 1:
        raise Unsupported("aten.split along the batch")
    sizes = size if isinstance(size, list) else [min(size, value.width - i) for i in range(0, value.width, size)]
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [reader.cut(value, low, low + n) for low, n in zip(starts, sizes, strict=True)]


def _select(reader: _Reader, value: Value, dim: int, index: int) -> Value:
    if dim % 2 != 1 or value.flat:
        raise Unsupported("aten.select along the batch")
    index %= value.width
    return Value(reader.cut(value, index, index + 1).segments, flat=True)


def _unsqueeze(reader: _Reader, value: Value, dim: int) -> Value:
    if not value.flat or dim not in (1, -1):
        raise Unsupported("aten.unsqueeze of a row")
    return Value(value.segments)


def _squeeze(reader: _Reader, value: Value, dim: Any = None) -> Value:
    if value.width == 1 and dim in (1, -1, [1], [-1]):
        return Value(value.segments, flat=True)
    raise Unsupported("aten.squeeze of a row")


def _shaped(reader: _Reader, value: Any, shape: list[Any], **_: Any) -> Value:
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
    def read(reader: _Reader, like: Any, value: Any = None, **_: Any) -> Value:
        number = reader.builder.const(value if fill is None else fill)
        if not isinstance(like, Value):
            raise Unsupported("a constant shaped like a weight")
        return Value((reader.builder.expand(number, like.width),), like.flat)

    return read


def _full(fill: float | None) -> Callable[..., Value]:
    def read(reader: _Reader, shape: list[Any], value: Any = None, **_: Any) -> Value:
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
    aten.native_layer_norm.default: _layer_norm,
    aten.log_sigmoid_forward.default: _log_sigmoid,
    aten.cat.default: _cat,
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
