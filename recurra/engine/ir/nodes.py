"""The intermediate representation: nodes, whose operations are rows of the table in table.py.

A `Node` is a value with one row per sequence and `width` numbers per row; width 1 broadcasts. A `Builder` makes nodes
and interns them: the same expression is the same node, so common subexpressions exist once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .buffers import BufferRef
from .index_map import Gather, IndexMap
from .table import TABLE, Rule, attributes, evaluate

__all__ = [
    "TABLE",
    "Builder",
    "Load",
    "Matrix",
    "Node",
    "Rule",
    "Vector",
    "flip_matrix",
    "is_whole",
    "slice_matrix",
    "subgraph",
]


@dataclass(frozen=True, eq=False)
class Node:
    """One value of a step."""

    op: str  # a row of TABLE, or "load", "weight", "const", "product", "lane", "rowsum", "expand", "gather", "concat",
    # "literal"
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
        return self.op in ("load", "weight", "const", "literal")

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
    block: tuple[int, int] | None = None  # rows and columns of a block, where all but diagonal blocks is zero

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

    @property
    def bands(self) -> tuple[int, int, int, int]:
        """First output, outputs of a block, first input, inputs of a block; zeros for a matrix without blocks."""
        if self.block is None:
            return 0, 0, 0, 0
        down, across = (self.rows[0], self.block[0]), (self.cols[0], self.block[1])
        return (*across, *down) if self.flipped else (*down, *across)

    @property
    def multiplications(self) -> int:
        """Of a product with one row."""
        deep = min(self.deep, self.bands[3]) if self.block else self.deep
        return self.wide * deep

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

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.nodes: dict[Any, Node] = {}
        self.dtype = dtype  # of the numbers in a row

    def _intern(self, op: str, args: tuple[Node, ...], attr: Any, width: int) -> Node:
        key = (op, tuple(a.index for a in args), str(attr) if op == "const" else attr, width)  # 0.0 == -0.0
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

    def literal(self, numbers: Iterable[float]) -> Node:
        """A row of constants, the same for every sequence."""
        row = tuple(map(float, numbers))
        if len(set(row)) == 1:
            return self.expand(self.const(row[0]), len(row))
        return self._intern("literal", (), row, len(row))

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

    def concat(self, values: Iterable[Node]) -> Node:
        """Values side by side in memory, for a gather to read. Neighbours in one buffer are one value."""
        parts: list[Node] = []
        for value in values:
            if parts and (both := self._adjacent(parts[-1], value)) is not None:
                parts[-1] = both
            else:
                parts.append(value)
        return parts[0] if len(parts) == 1 else self._intern("concat", tuple(parts), None, sum(p.width for p in parts))

    def _adjacent(self, first: Node, second: Node) -> Node | None:
        if first.op != "load" or second.op != "load":
            return None
        a, b = first.attr, second.attr
        if (a.buffer, a.lag, a.offset + first.width, a.start) != (b.buffer, b.lag, b.offset, b.start):
            return None
        return self.load(a.buffer, first.width + second.width, a.lag, a.offset, a.start)

    def gather(self, value: Node, index: IndexMap, kind: str = "sum") -> Node:
        """The sum or maximum of the numbers of a row that each place of a map reads."""
        single = index.single()
        if single is not None:
            return self.expand(self.cut(value, *single[:2]) if value.width > 1 else value, index.width)
        if value.op == "literal":
            row = torch.tensor([value.attr], dtype=torch.float64)
            return self.literal(Gather(kind, (index,)).compute([row])[0].tolist())
        if _is_read_through(value, index):
            return self.gather(value.args[0], index.after(value.attr.maps[0]), kind)
        if value.op == "concat":
            low, high = index.bounds()
            at = 0
            for part in value.args:
                if at <= low and high < at + part.width:
                    return self.gather(part, index.moved(-at), kind)
                at += part.width
        numbers, alike = index.counts(), value.args[0] if value.op == "expand" else value
        if alike.width == 1 and bool((numbers == numbers[0]).all()) and (int(numbers[0]) or kind == "sum"):
            return self.expand(alike * float(numbers[0]) if kind == "sum" else alike, index.width)
        return self._intern("gather", (value,), Gather(kind, (index,)), index.width)

    def dot(self, values: Iterable[Node], maps: Iterable[IndexMap]) -> Node:
        """The sum of products of the numbers of two rows that each place of two maps reads."""
        read = [
            (v.args[0], m.after(v.attr.maps[0])) if _is_read_through(v, m) else (v, m)
            for v, m in zip(values, maps, strict=True)
        ]
        args, maps = zip(*read, strict=True)
        return self._intern("gather", args, Gather("sum", maps), maps[0].width)

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
        return self.const(float(evaluate(op, numbers, attr)))

    def _simplify(self, op: str, args: tuple[Node, ...]) -> Node | None:
        """A simpler node with the same value for every number, -0 and NaN included."""
        if op == "where" and args[0].op == "const":
            return self.expand(args[1] if args[0].attr != 0.0 else args[2], max(a.width for a in args))
        neutral = {"add": "-0.0", "sub": "0.0", "mul": "1.0", "div": "1.0"}.get(op)
        if args[-1].op == "const" and str(args[-1].attr) == neutral:
            return args[0]
        if op in ("add", "mul") and args[0].op == "const" and str(args[0].attr) == neutral:
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
        if node.op == "concat":
            return self.concat(args)
        if node.op == "gather":
            maps = node.attr.maps
            return self.gather(args[0], maps[0], node.attr.kind) if len(args) == 1 else self.dot(args, maps)
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

    def expand_composites(self, roots: Iterable[Node]) -> dict[Node, Node]:
        """Rewrite rows of the table without C++ as those that have some. Returns old → new."""
        done: dict[Node, Node] = {}
        for node in subgraph(roots):
            new = node if node.is_leaf else self.rebuild(node, tuple(done[a] for a in node.args))
            while new.is_elementwise and (expansion := TABLE[new.op].expansion) is not None:
                made = expansion(*new.args, *attributes(new.attr))
                new = self.expand(self.expand_composites([made])[made], new.width)
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
        if node.op == "literal":
            return self.literal(node.attr[low:high])
        if node.op == "product":
            return self.product(node.args[0], slice_matrix(node.attr, low, high))
        if node.op == "lane":
            return self.lane((a, slice_matrix(m, low, high)) for a, m in zip(node.args, node.attr, strict=True))
        if node.op == "expand":
            return self.expand(node.args[0], high - low)
        if node.op == "gather":
            part = node.attr.columns(low, high)
            if len(node.args) == 1:
                return self.gather(node.args[0], part.maps[0], part.kind)
            return self.dot(node.args, part.maps)
        if node.op == "concat":
            return self._cut_concat(node, low, high)
        return self.make(node.op, *(self.cut(a, low, high) for a in node.args), attr=node.attr)

    def _cut_concat(self, node: Node, low: int, high: int) -> Node:
        at, parts = 0, []
        for part in node.args:
            first, last = max(low - at, 0), min(high - at, part.width)
            if first < last:
                parts.append(self.cut(part, first, last))
            at += part.width
        return self.concat(parts)


def _is_read_through(value: Node, index: IndexMap) -> bool:
    """Whether a map of a value that only moves numbers reads its source instead. A row in another order that is spread
    over a wider one is put in order once."""
    if value.op != "gather" or not value.attr.moves:
        return False
    return value.width != value.args[0].width or index.terms * index.width <= value.width


def flip_matrix(matrix: Matrix) -> Matrix:
    """The matrix that multiplies a cotangent of the product."""
    return replace(matrix, flipped=not matrix.flipped)


def slice_matrix(matrix: Matrix, low: int, high: int) -> Matrix:
    """The block that computes outputs `low` to `high` of a product."""
    if matrix.flipped:
        first = matrix.cols[0]
        return replace(matrix, cols=(first + low, first + high))
    first = matrix.rows[0]
    return replace(matrix, rows=(first + low, first + high))


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
        if part.op in ("load", "lane", "product", "rowsum", "gather"):
            differs[part] = True, part.width > 1
        elif part.op in ("weight", "literal"):
            differs[part] = False, part.width > 1
        else:
            differs[part] = any(differs[a][0] for a in part.args), any(differs[a][1] for a in part.args)
    rows, columns = differs[node]
    return rows and (columns or node.width == 1)
