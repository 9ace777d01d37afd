"""The intermediate representation: nodes, and a table of the operations with their C++, torch function and vjp.

A `Node` is a value with one row per sequence and `width` numbers per row; width 1 broadcasts. A `Builder` makes nodes
and interns them: the same expression is the same node, so common subexpressions exist once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...cells.surrogates import DERIVATIVES
from .buffers import BufferRef


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a step."""

    op: str  # a row of TABLE, or "load", "weight", "const", "product", "lane", "rowsum", "expand"
    args: tuple["Node", ...]
    attr: Any
    width: int
    index: int  # in order of creation: arguments have smaller ones
    builder: "Builder" = field(repr=False)

    def __add__(self, other: "Node | float") -> "Node":
        return self.builder.make("add", self, self.builder.lift(other))

    def __sub__(self, other: "Node | float") -> "Node":
        return self.builder.make("sub", self, self.builder.lift(other))

    def __mul__(self, other: "Node | float") -> "Node":
        return self.builder.make("mul", self, self.builder.lift(other))

    def __rsub__(self, other: float) -> "Node":
        return self.builder.lift(other) - self

    def __truediv__(self, other: "Node | float") -> "Node":
        return self.builder.make("div", self, self.builder.lift(other))

    def __neg__(self) -> "Node":
        return self.builder.make("neg", self)

    @property
    def is_leaf(self) -> bool:
        return self.op in ("load", "weight", "const")

    @property
    def is_elementwise(self) -> bool:
        return self.op in TABLE


@dataclass(frozen=True)
class Load:
    """A row of a buffer: of this step, or of `lag` steps back. With `start`, zeros after the first step."""

    buffer: BufferRef
    lag: int = 0
    offset: int = 0
    start: bool = False


@dataclass(frozen=True)
class Matrix:
    """A block of a weight matrix. A product with it is `v Mᵀ`, or `v M` when flipped."""

    weight: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    flipped: bool = False

    @property
    def wide(self) -> int:
        """The number of outputs of a product."""
        low, high = self.cols if self.flipped else self.rows
        return high - low

    @property
    def deep(self) -> int:
        """The number of inputs of a product."""
        low, high = self.rows if self.flipped else self.cols
        return high - low

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        """(wide, deep), as a product uses it."""
        weight = weights[self.weight]
        if weight.shape != (self.rows[1], self.cols[1]) or self.rows[0] or self.cols[0]:  # a part of it
            weight = weight[slice(*self.rows), slice(*self.cols)]
        return weight.t() if self.flipped else weight


@dataclass(frozen=True)
class Vector:
    """A range of a weight vector, or of one column of a weight matrix."""

    weight: str
    rows: tuple[int, int]
    col: int | None = None

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        low, high = self.rows
        weight = weights[self.weight]
        return weight[low:high, self.col] if self.col is not None else weight.reshape(-1)[low:high]


class Builder:
    """Makes nodes and interns them, with constant folding and a few simplifications."""

    def __init__(self) -> None:
        self.nodes: dict[Any, Node] = {}

    def _intern(self, op: str, args: tuple[Node, ...], attr: Any, width: int) -> Node:
        key = (op, tuple(a.index for a in args), attr, width)
        if key not in self.nodes:
            self.nodes[key] = Node(op, args, attr, width, len(self.nodes), self)
        return self.nodes[key]

    def lift(self, value: "Node | float") -> Node:
        """A number as a constant; a node unchanged."""
        return value if isinstance(value, Node) else self.const(value)

    def const(self, value: float) -> Node:
        return self._intern("const", (), float(value), 1)

    def load(self, buffer: BufferRef, width: int, lag: int = 0, offset: int = 0, start: bool = False) -> Node:
        return self._intern("load", (), Load(buffer, lag, offset, start), width)

    def weight(self, vector: Vector) -> Node:
        return self._intern("weight", (), vector, vector.rows[1] - vector.rows[0])

    def product(self, operand: Node, matrix: Matrix) -> Node:
        if operand.width != matrix.deep:
            operand = self.expand(operand, matrix.deep)
        return self._intern("product", (operand,), matrix, matrix.wide)

    def lane(self, products: Iterable[tuple[Node, Matrix]]) -> Node:
        """A sum of products in one accumulator."""
        operands, matrices = zip(*products, strict=True)
        return self._intern("lane", operands, matrices, matrices[0].wide)

    def rowsum(self, value: Node, width: int) -> Node:
        """The sum over a row of `width` numbers."""
        if value.width == 1:
            return value * float(width) if width > 1 else value
        return self._intern("rowsum", (value,), None, 1)

    def rowmax(self, value: Node) -> Node:
        """The maximum of a row; a "rowsum" whose attribute names another reduction."""
        return value if value.width == 1 else self._intern("rowsum", (value,), "max", 1)

    def expand(self, value: Node, width: int) -> Node:
        return value if value.width == width else self._intern("expand", (value,), None, width)

    def make(self, op: str, *args: Node, attr: Any = None) -> Node:
        """An elementwise operation, a row of the table."""
        full = {a.width for a in args if a.op != "expand"}
        args = tuple(a.args[0] if a.op == "expand" and a.width in full else a for a in args)
        width = max((a.width for a in args), default=1)
        if all(a.op == "const" or (a.op == "expand" and a.args[0].op == "const") for a in args):
            return self.expand(self._fold_constants(op, args, attr), width)
        simpler = self._simplify(op, args)
        if simpler is not None:
            return simpler
        return self._intern(op, args, attr, width)

    def _fold_constants(self, op: str, args: tuple[Node, ...], attr: Any) -> Node:
        """The result of an operation on constants. Some devices lack scalar versions of operations."""
        numbers = [torch.tensor((a if a.op == "const" else a.args[0]).attr, dtype=torch.float64) for a in args]
        more = () if attr is None else attr if op == "clamp" else (attr,)
        return self.const(float(TABLE[op].torch(*numbers, *more)))

    def _simplify(self, op: str, args: tuple[Node, ...]) -> Node | None:
        if op == "log1p" and args[0].op == "exp":  # exp overflows where softplus does not
            return self.make("softplus", args[0].args[0])
        if op in ("add", "sub", "mul", "div") and args[1].op == "const" and args[1].attr == float(op in ("mul", "div")):
            return args[0]
        if op in ("add", "mul") and args[0].op == "const" and args[0].attr == float(op == "mul"):
            return args[1]
        if op == "mul" and args[1].op == "const" and args[1].attr == -1.0:
            return self.make("neg", args[0])
        if op == "neg" and args[0].op == "neg":
            return args[0].args[0]
        return None

    # ------------------------------------------------------------------------------------------ rewriting

    def rebuild(self, node: Node, args: tuple[Node, ...]) -> Node:
        """The same operation on other arguments."""
        if node.op == "product":
            return self.product(args[0], node.attr)
        if node.op == "lane":
            return self.lane(zip(args, node.attr, strict=True))
        if node.op == "rowsum":
            return self.rowmax(args[0]) if node.attr == "max" else self.rowsum(args[0], node.args[0].width)
        if node.op == "expand":
            return self.expand(args[0], node.width)
        return self.make(node.op, *args, attr=node.attr)

    def substitute(self, roots: Iterable[Node], change: Callable[[Node], Node | None]) -> dict[Node, Node]:
        """Rebuild the subgraph of `roots` with `change(node)` where that is not None. Returns old → new."""
        done: dict[Node, Node] = {}
        for node in subgraph(roots, stop=lambda n: change(n) is not None):
            new = change(node)
            if new is None:
                new = node if node.is_leaf else self.rebuild(node, tuple(done[a] for a in node.args))
            done[node] = new
        return done

    def cut(self, node: Node, low: int, high: int) -> Node:
        """Columns `low` to `high` of a value. The slice is pushed down to the leaves."""
        if node.width == 1 or (low == 0 and high == node.width):
            return node
        if node.op == "load":
            at = node.attr
            return self.load(at.buffer, high - low, at.lag, at.offset + low, at.start)
        if node.op == "weight":
            first = node.attr.rows[0]
            return self.weight(Vector(node.attr.weight, (first + low, first + high), node.attr.col))
        if node.op == "product":
            return self.product(node.args[0], slice_matrix(node.attr, low, high))
        if node.op == "lane":
            return self.lane((a, slice_matrix(m, low, high)) for a, m in zip(node.args, node.attr, strict=True))
        if node.op == "expand":
            return self.expand(node.args[0], high - low)
        return self.make(node.op, *(self.cut(a, low, high) for a in node.args), attr=node.attr)


def slice_matrix(matrix: Matrix, low: int, high: int) -> Matrix:
    """The block that computes outputs `low` to `high` of a product."""
    if matrix.flipped:
        first = matrix.cols[0]
        return Matrix(matrix.weight, matrix.rows, (first + low, first + high), True)
    first = matrix.rows[0]
    return Matrix(matrix.weight, (first + low, first + high), matrix.cols)


def subgraph(roots: Iterable[Node], stop: Callable[[Node], bool] = lambda node: False) -> list[Node]:
    """The nodes that the roots depend on, arguments first. Arguments of a node that stops are left out."""
    found: set[Node] = set()
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in found:
            found.add(node)
            if not stop(node):
                todo.extend(node.args)
    return sorted(found, key=lambda node: node.index)


def is_whole(node: Node) -> bool:
    """Whether a value varies over rows and, if wider than one, over columns, judged by its operations.

    A value that does not may be computed as a scalar, row or column, and must be broadcast before it is stored.
    """
    differs: dict[Node, tuple[bool, bool]] = {}  # from row to row, from column to column
    for part in subgraph([node]):
        if part.op in ("load", "lane", "product", "rowsum"):
            differs[part] = True, part.width > 1
        elif part.op == "weight":
            differs[part] = False, part.width > 1
        else:
            differs[part] = any(differs[a][0] for a in part.args), any(differs[a][1] for a in part.args)
    rows, columns = differs[node]
    return rows and (columns or node.width == 1)


# ---------------------------------------------------------------------------------------------------- the table

Vjp = Callable[[Node, Node], tuple[Node | None, ...]]  # (the node, its cotangent) → a cotangent per argument


@dataclass(frozen=True)
class Rule:
    """One elementwise operation: a C++ template, the torch function, and the vector-Jacobian product."""

    cpp: str
    torch: Callable[..., Tensor]
    vjp: Vjp
    costly: bool = False  # storing the result is cheaper than recomputing it


def _mul(node: Node, g: Node) -> tuple[Node, Node]:
    a, b = node.args
    return g * b, g * a


def _div(node: Node, g: Node) -> tuple[Node, Node]:
    quotient = g / node.args[1]
    return quotient, -(quotient * node)


def _where(node: Node, g: Node) -> tuple[None, Node, Node]:
    make, zero = node.builder.make, node.builder.const(0.0)
    return None, make("where", node.args[0], g, zero), make("where", node.args[0], zero, g)


def _extremum(node: Node, g: Node) -> tuple[Node, Node]:
    """maximum and minimum: the larger (smaller) one gets the cotangent, equal ones share it, as in torch."""
    make = node.builder.make
    a, b = node.args
    first, second = ("gt", "lt") if node.op == "maximum" else ("lt", "gt")
    half = make("where", make("eq", a, b), g * 0.5, node.builder.const(0.0))
    return make("where", make(first, a, b), g, half), make("where", make(second, a, b), g, half)


def _clamp(node: Node, g: Node) -> tuple[Node]:
    make, (low, high) = node.builder.make, node.attr
    x = node.args[0]
    for bound, inside in ((low, "ge"), (high, "le")):
        if bound is not None:
            g = make("where", make(inside, x, node.builder.const(bound)), g, node.builder.const(0.0))
    return (g,)


def _power(node: Node, g: Node) -> tuple[Node]:
    x, exponent = node.args[0], node.attr
    if exponent == 2.0:
        return (g * x * 2.0,)
    return (g * node.builder.make("pow", x, attr=exponent - 1.0) * exponent,)


def _relu(node: Node, g: Node) -> tuple[Node]:
    zero = node.builder.const(0.0)
    return (node.builder.make("where", node.builder.make("gt", node, zero), g, zero),)


def _remainder(node: Node, g: Node) -> tuple[Node, Node]:
    a, b = node.args
    return g, -(g * node.builder.make("floor", a / b))


def _expm1(node: Node, g: Node) -> tuple[Node]:
    """Bounded, because `where` multiplies the unused branch (of elu) by zero, and 0 · ∞ is NaN."""
    return (g * node.builder.make("minimum", node + 1.0, node.builder.const(1e38)),)


def _spike(node: Node, g: Node) -> tuple[Node]:
    surrogate, slope, scale = node.attr
    return (DERIVATIVES[surrogate](g * scale, _apply("abs", node.args[0]), slope, lambda v: _apply("relu", v)),)


def _unary(rule: Callable[[Node, Node, Node], Node | None]) -> Vjp:
    """The vjp of a unary operation, from `(cotangent, argument, result)` → cotangent."""
    return lambda node, g: (rule(g, node.args[0], node),)


def _no_gradient(node: Node, g: Node) -> tuple[None, ...]:
    return (None,) * len(node.args)


def _compare(symbol: str, function: Callable[[Tensor, Tensor], Tensor]) -> Rule:
    return Rule(f"truth({{0}} {symbol} {{1}})", lambda a, b: function(a, b).to(a.dtype), _no_gradient)


def _apply(name: str, node: Node) -> Node:
    return node.builder.make(name, node)


def _boolean(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: function(*(a != 0 for a in args)).to(args[0].dtype)


def _torch_clamp(x: Tensor, low: float | None, high: float | None) -> Tensor:
    return torch.clamp(x, low, high)


TABLE: dict[str, Rule] = {
    "add": Rule("{0} + {1}", torch.add, lambda node, g: (g, g)),
    "sub": Rule("{0} - {1}", torch.sub, lambda node, g: (g, -g)),
    "mul": Rule("{0} * {1}", torch.mul, _mul),
    "div": Rule("{0} / {1}", torch.div, _div),
    "neg": Rule("-{0}", torch.neg, _unary(lambda g, x, y: -g)),
    "reciprocal": Rule("splat(1) / {0}", torch.reciprocal, _unary(lambda g, x, y: -(g * y * y))),
    "sigmoid": Rule("sigmoid({0})", torch.sigmoid, _unary(lambda g, x, y: g * (y * (1.0 - y))), True),
    "tanh": Rule("tanh_({0})", torch.tanh, _unary(lambda g, x, y: g * (1.0 - y * y)), True),
    "relu": Rule("pick({0} < splat(0), splat(0), {0})", torch.relu, _relu),
    "exp": Rule("exp_({0})", torch.exp, _unary(lambda g, x, y: g * y), True),
    "expm1": Rule("expm1_({0})", torch.expm1, _expm1, True),
    "log": Rule("log_({0})", torch.log, _unary(lambda g, x, y: g / x), True),
    "log1p": Rule("log1p_({0})", torch.log1p, _unary(lambda g, x, y: g / (x + 1.0)), True),
    "softplus": Rule(
        "softplus({0})",
        lambda x: torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x))),
        _unary(lambda g, x, y: g * _apply("sigmoid", x)),
        True,
    ),
    "sin": Rule("sin_({0})", torch.sin, _unary(lambda g, x, y: g * _apply("cos", x)), True),
    "cos": Rule("cos_({0})", torch.cos, _unary(lambda g, x, y: -(g * _apply("sin", x))), True),
    "erf": Rule("erf_({0})", torch.erf, _unary(lambda g, x, y: g * _apply("exp", -(x * x)) * 1.1283791670955126), True),
    "sqrt": Rule("sqrt_({0})", torch.sqrt, _unary(lambda g, x, y: g / (y * 2.0)), True),
    "rsqrt": Rule("splat(1) / sqrt_({0})", torch.rsqrt, _unary(lambda g, x, y: g * (y * y * y) * -0.5), True),
    "abs": Rule("abs_({0})", torch.abs, _unary(lambda g, x, y: g * _apply("sign", x))),
    "sign": Rule("truth({0} > splat(0)) - truth({0} < splat(0))", torch.sign, _no_gradient),
    "floor": Rule("floor_({0})", torch.floor, _no_gradient, True),
    "remainder": Rule("{0} - {1} * floor_({0} / {1})", torch.remainder, _remainder, True),
    "pow": Rule("pow_({0}, {attr})", torch.pow, _power, True),
    "maximum": Rule("maximum({0}, {1})", torch.maximum, _extremum),
    "minimum": Rule("minimum({0}, {1})", torch.minimum, _extremum),
    "clamp": Rule("{clamp}", _torch_clamp, _clamp),
    "where": Rule("pick({0} != splat(0), {1}, {2})", lambda c, a, b: torch.where(c != 0, a, b), _where),
    "eq": _compare("==", torch.eq),
    "ne": _compare("!=", torch.ne),
    "lt": _compare("<", torch.lt),
    "le": _compare("<=", torch.le),
    "gt": _compare(">", torch.gt),
    "ge": _compare(">=", torch.ge),
    "and": Rule("truth(({0} != splat(0)) & ({1} != splat(0)))", _boolean(torch.logical_and), _no_gradient),
    "or": Rule("truth(({0} != splat(0)) | ({1} != splat(0)))", _boolean(torch.logical_or), _no_gradient),
    "not": Rule("truth({0} == splat(0))", _boolean(torch.logical_not), _no_gradient),
    "spike": Rule("truth({0} > splat(0))", lambda v, attr: torch.ops.recurra.spike(v, *attr), _spike),
    "stop": Rule("{0}", lambda x: x, _no_gradient),  # detach
}
