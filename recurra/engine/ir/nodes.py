"""The few operations a planned step consists of, one table row each: C++, torch, and the derivative.

A `Node` is a value with one row a sequence and `width` numbers a row; width 1 spreads over any other. Nodes are made by
a `Builder`, which gives the same node for the same expression, so common subexpressions exist once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .buffers import BufferRef


@dataclass(frozen=True, eq=False)
class Node:
    op: str  # a row of TABLE, or "load", "weight", "const", "product", "lane", "rowsum", "expand"
    args: tuple["Node", ...]
    attr: Any
    width: int
    index: int  # nodes are numbered as they are made: arguments come before what reads them
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
    """A row of a buffer: that of this step, or of `lag` steps before; for `start`, zeros after the first."""

    buffer: BufferRef
    lag: int = 0
    offset: int = 0
    start: bool = False


@dataclass(frozen=True)
class Matrix:
    """Rows and columns of a weight matrix; a product gives `v Mᵀ`, or `v M` when flipped."""

    weight: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    flipped: bool = False

    @property
    def wide(self) -> int:
        low, high = self.cols if self.flipped else self.rows
        return high - low

    @property
    def deep(self) -> int:
        low, high = self.rows if self.flipped else self.cols
        return high - low

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        """(wide, deep), as a product uses it."""
        weight = weights[self.weight]
        if weight.shape != (self.rows[1], self.cols[1]) or self.rows[0] or self.cols[0]:  # not all of it
            weight = weight[slice(*self.rows), slice(*self.cols)]
        return weight.t() if self.flipped else weight


@dataclass(frozen=True)
class Vector:
    """Some numbers of a weight: of a vector, or of one column of a matrix."""

    weight: str
    rows: tuple[int, int]
    col: int | None = None

    def of(self, weights: Mapping[str, Tensor]) -> Tensor:
        low, high = self.rows
        weight = weights[self.weight]
        return weight[low:high, self.col] if self.col is not None else weight.reshape(-1)[low:high]


class Builder:
    """Makes nodes, each expression once."""

    def __init__(self) -> None:
        self.nodes: dict[Any, Node] = {}

    def _intern(self, op: str, args: tuple[Node, ...], attr: Any, width: int) -> Node:
        key = (op, tuple(a.index for a in args), attr, width)
        if key not in self.nodes:
            self.nodes[key] = Node(op, args, attr, width, len(self.nodes), self)
        return self.nodes[key]

    def lift(self, value: "Node | float") -> Node:
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
        """A sum of products: one accumulator."""
        operands, matrices = zip(*products, strict=True)
        return self._intern("lane", operands, matrices, matrices[0].wide)

    def rowsum(self, value: Node, width: int) -> Node:
        """The sum over a row of `width` numbers."""
        if value.width == 1:
            return value * float(width) if width > 1 else value
        return self._intern("rowsum", (value,), None, 1)

    def rowmax(self, value: Node) -> Node:
        """The largest of a row: a row sum in every respect but how two numbers are put together."""
        return value if value.width == 1 else self._intern("rowsum", (value,), "max", 1)

    def expand(self, value: Node, width: int) -> Node:
        return value if value.width == width else self._intern("expand", (value,), None, width)

    def make(self, op: str, *args: Node, attr: Any = None) -> Node:
        full = {a.width for a in args if a.op != "expand"}
        args = tuple(a.args[0] if a.op == "expand" and a.width in full else a for a in args)
        width = max((a.width for a in args), default=1)
        if all(a.op == "const" or (a.op == "expand" and a.args[0].op == "const") for a in args):
            return self.expand(self._folded(op, args, attr), width)
        simpler = self._simplified(op, args)
        if simpler is not None:
            return simpler
        return self._intern(op, args, attr, width)

    def _folded(self, op: str, args: tuple[Node, ...], attr: Any) -> Node:
        """An operation on constants is one: not every device has it for numbers that stand alone."""
        numbers = [torch.tensor((a if a.op == "const" else a.args[0]).attr, dtype=torch.float64) for a in args]
        more = () if attr is None else attr if op == "clamp" else (attr,)
        return self.const(float(TABLE[op].torch(*numbers, *more)))

    def _simplified(self, op: str, args: tuple[Node, ...]) -> Node | None:
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

    def remade(self, node: Node, args: tuple[Node, ...]) -> Node:
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
        """Rebuild everything below `roots`, taking `change(node)` where it gives one. Returns old → new."""
        done: dict[Node, Node] = {}
        for node in below(roots, stop=lambda n: change(n) is not None):
            new = change(node)
            if new is None:
                new = node if node.is_leaf else self.remade(node, tuple(done[a] for a in node.args))
            done[node] = new
        return done

    def cut(self, node: Node, low: int, high: int) -> Node:
        """Columns `low` to `high` of a value, pushed down to what is loaded."""
        if node.width == 1 or (low == 0 and high == node.width):
            return node
        if node.op == "load":
            at = node.attr
            return self.load(at.buffer, high - low, at.lag, at.offset + low, at.start)
        if node.op == "weight":
            first = node.attr.rows[0]
            return self.weight(Vector(node.attr.weight, (first + low, first + high), node.attr.col))
        if node.op == "product":
            return self.product(node.args[0], _narrowed(node.attr, low, high))
        if node.op == "lane":
            return self.lane((a, _narrowed(m, low, high)) for a, m in zip(node.args, node.attr, strict=True))
        if node.op == "expand":
            return self.expand(node.args[0], high - low)
        return self.make(node.op, *(self.cut(a, low, high) for a in node.args), attr=node.attr)


def _narrowed(matrix: Matrix, low: int, high: int) -> Matrix:
    if matrix.flipped:
        first = matrix.cols[0]
        return Matrix(matrix.weight, matrix.rows, (first + low, first + high), True)
    first = matrix.rows[0]
    return Matrix(matrix.weight, (first + low, first + high), matrix.cols)


def below(roots: Iterable[Node], stop: Callable[[Node], bool] = lambda node: False) -> list[Node]:
    """Everything the roots are made of, arguments first; nothing beneath a node that stops."""
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
    """Whether it differs from row to row and, if it is wider than one, from column to column, as far as its operations
    tell. What does not may be held once for all that share it, and is to be spread out before it is written."""
    differs: dict[Node, tuple[bool, bool]] = {}  # from row to row, from column to column
    for part in below([node]):
        if part.op in ("load", "lane", "product", "rowsum"):
            differs[part] = True, part.width > 1
        elif part.op == "weight":
            differs[part] = False, part.width > 1
        else:
            differs[part] = any(differs[a][0] for a in part.args), any(differs[a][1] for a in part.args)
    rows, columns = differs[node]
    return rows and (columns or node.width == 1)


# ---------------------------------------------------------------------------------------------------- the table

Pull = Callable[[Node, Node], tuple[Node | None, ...]]  # (the node, its cotangent) → one for each argument


@dataclass(frozen=True)
class Row:
    cpp: str
    torch: Callable[..., Tensor]
    pull: Pull
    costly: bool = False  # dearer to compute again than to keep


def _mul(node: Node, g: Node) -> tuple[Node, Node]:
    a, b = node.args
    return g * b, g * a


def _div(node: Node, g: Node) -> tuple[Node, Node]:
    quotient = g / node.args[1]
    return quotient, -(quotient * node)


def _where(node: Node, g: Node) -> tuple[None, Node, Node]:
    make, zero = node.builder.make, node.builder.const(0.0)
    return None, make("where", node.args[0], g, zero), make("where", node.args[0], zero, g)


def _larger(node: Node, g: Node) -> tuple[Node, Node]:
    """Of maximum and minimum: the winner takes the cotangent, equals share it, as in torch."""
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
    """Kept finite: `where` multiplies the branch not taken (elu's) by zero, and zero times infinity is not zero."""
    return (g * node.builder.make("minimum", node + 1.0, node.builder.const(1e38)),)


def _one(rule: Callable[[Node, Node, Node], Node | None]) -> Pull:
    """A rule for one argument: `(cotangent, argument, result)` → cotangent."""
    return lambda node, g: (rule(g, node.args[0], node),)


def _flat(node: Node, g: Node) -> tuple[None, ...]:
    return (None,) * len(node.args)


def _compare(symbol: str, function: Callable[[Tensor, Tensor], Tensor]) -> Row:
    return Row(f"truth({{0}} {symbol} {{1}})", lambda a, b: function(a, b).to(a.dtype), _flat)


def _f(name: str, node: Node) -> Node:
    return node.builder.make(name, node)


def _truth(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args: function(*(a != 0 for a in args)).to(args[0].dtype)


def _clamped(x: Tensor, low: float | None, high: float | None) -> Tensor:
    return torch.clamp(x, low, high)


TABLE: dict[str, Row] = {
    "add": Row("{0} + {1}", torch.add, lambda node, g: (g, g)),
    "sub": Row("{0} - {1}", torch.sub, lambda node, g: (g, -g)),
    "mul": Row("{0} * {1}", torch.mul, _mul),
    "div": Row("{0} / {1}", torch.div, _div),
    "neg": Row("-{0}", torch.neg, _one(lambda g, x, y: -g)),
    "reciprocal": Row("splat(1) / {0}", torch.reciprocal, _one(lambda g, x, y: -(g * y * y))),
    "sigmoid": Row("sigmoid({0})", torch.sigmoid, _one(lambda g, x, y: g * (y * (1.0 - y))), True),
    "tanh": Row("tanh_({0})", torch.tanh, _one(lambda g, x, y: g * (1.0 - y * y)), True),
    "relu": Row("pick({0} < splat(0), splat(0), {0})", torch.relu, _relu),
    "exp": Row("exp_({0})", torch.exp, _one(lambda g, x, y: g * y), True),
    "expm1": Row("expm1_({0})", torch.expm1, _expm1, True),
    "log": Row("log_({0})", torch.log, _one(lambda g, x, y: g / x), True),
    "log1p": Row("log1p_({0})", torch.log1p, _one(lambda g, x, y: g / (x + 1.0)), True),
    "softplus": Row(
        "softplus({0})",
        lambda x: torch.clamp(x, min=0) + torch.log1p(torch.exp(-torch.abs(x))),
        _one(lambda g, x, y: g * _f("sigmoid", x)),
        True,
    ),
    "sin": Row("sin_({0})", torch.sin, _one(lambda g, x, y: g * _f("cos", x)), True),
    "cos": Row("cos_({0})", torch.cos, _one(lambda g, x, y: -(g * _f("sin", x))), True),
    "erf": Row("erf_({0})", torch.erf, _one(lambda g, x, y: g * _f("exp", -(x * x)) * 1.1283791670955126), True),
    "sqrt": Row("sqrt_({0})", torch.sqrt, _one(lambda g, x, y: g / (y * 2.0)), True),
    "rsqrt": Row("splat(1) / sqrt_({0})", torch.rsqrt, _one(lambda g, x, y: g * (y * y * y) * -0.5), True),
    "abs": Row("abs_({0})", torch.abs, _one(lambda g, x, y: g * _f("sign", x))),
    "sign": Row("truth({0} > splat(0)) - truth({0} < splat(0))", torch.sign, _flat),
    "floor": Row("floor_({0})", torch.floor, _flat, True),
    "remainder": Row("{0} - {1} * floor_({0} / {1})", torch.remainder, _remainder, True),
    "pow": Row("pow_({0}, {attr})", torch.pow, _power, True),
    "maximum": Row("maximum({0}, {1})", torch.maximum, _larger),
    "minimum": Row("minimum({0}, {1})", torch.minimum, _larger),
    "clamp": Row("{clamp}", _clamped, _clamp),
    "where": Row("pick({0} != splat(0), {1}, {2})", lambda c, a, b: torch.where(c != 0, a, b), _where),
    "eq": _compare("==", torch.eq),
    "ne": _compare("!=", torch.ne),
    "lt": _compare("<", torch.lt),
    "le": _compare("<=", torch.le),
    "gt": _compare(">", torch.gt),
    "ge": _compare(">=", torch.ge),
    "and": Row("truth(({0} != splat(0)) & ({1} != splat(0)))", _truth(torch.logical_and), _flat),
    "or": Row("truth(({0} != splat(0)) | ({1} != splat(0)))", _truth(torch.logical_or), _flat),
    "not": Row("truth({0} == splat(0))", _truth(torch.logical_not), _flat),
    "stop": Row("{0}", lambda x: x, _flat),  # detach
}
