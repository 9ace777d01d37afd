"""Lowers a traced step to nodes: rows of numbers in the few operations of nodes.py.

What depends on weights alone becomes the *prologue*, which torch runs, and differentiates, once per call.
Split, slice and cat disappear: a value is a tuple of segments. A product with a concatenation becomes a sum of products
with columns of the weight; a slice of a product becomes a product with rows of the weight.
"""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate, map_arg

from ...cell import Cell
from ..trace import Step, decompose
from .buffers import BufferRef, Role, X
from .nodes import Builder, Node, Vector
from .ops_elementwise import BOOLEAN, ELEMENTWISE
from .ops_matmul import PRODUCTS
from .ops_reduce import MAX_PIECES, ROWS
from .ops_view import VIEWS
from .values import BATCH, LoopInvariant, Shape, Unsupported, Value, boundaries, broadcast, count, format_shapes, row

aten = torch.ops.aten

# Operations that treat each sequence alone. On a weight that is repeated for every sequence, they run once.
VIEW_OPERATIONS = {*VIEWS, aten.repeat.default}
ROWWISE_OPERATIONS = {*VIEW_OPERATIONS, *ELEMENTWISE}
# Computed in float32 and rounded at the end; casts inside the step are ignored.
REDUCED_PRECISION = (torch.bfloat16, torch.float16)

__all__ = ["LoweredStep", "Unsupported", "lower_step"]


@dataclass(frozen=True)
class LoweredStep:
    """A step as nodes: the results by name, and the prologue that computes the weights they read."""

    builder: Builder
    outputs: dict[str, tuple[Node, ...]]  # OUTPUT, then the states
    named: dict[str, tuple[Node, ...]]
    weights: tuple[str, ...]  # the cell's weights, in the order of the prologue's arguments
    hoisted: dict[str, tuple[int, ...]]  # the results of the prologue: name → shape
    prologue: Callable[..., tuple[Tensor, ...]]


def lower_step(cell: Cell, step: Step) -> LoweredStep:
    """Lower a traced step. Raises `Unsupported`, which names the operation, where the compiled engines cannot."""
    try:
        return _Reader(cell, step).read()
    except Unsupported:
        simpler = decompose(step)  # tried second: it takes seconds
        if simpler is step:
            raise
        return _Reader(cell, simpler).read()


class _Reader:
    """Walks the graph of a step once and lowers every operation."""

    def __init__(self, cell: Cell, step: Step):
        self.cell, self.step = cell, step
        self.values: dict[fx.Node, Any] = {}
        self.meta: dict[fx.Node, Any] = {}  # the stand-in value of what depends on weights alone
        self.repeated: dict[fx.Node, int] = {}  # those of them with a row for every sequence: the axis
        self.known: dict[str, fx.Node] = {}  # the name of a LoopInvariant → its node
        self.used: dict[str, tuple[fx.Node, tuple[int, ...]]] = {}  # what the prologue returns, and in which shape
        like = step.node("x").meta["val"]
        self.batch, self.dtype = like.shape[0], like.dtype
        self.builder = Builder(self.dtype)

    def read(self) -> LoweredStep:
        placeholders = self.step.placeholders()
        for node, name in zip(placeholders, self.step.inputs, strict=False):
            self.values[node] = row(self._input(name, node))
        for node in placeholders[len(self.step.inputs) :]:
            like = node.meta["val"]  # zeros on the CPU: the "meta" device would import torch.compile
            self.meta[node] = torch.zeros(like.shape, dtype=like.dtype)
        for node in self.step.graph.nodes:
            if node.op == "call_function":
                self._call(node)
        names = (*self.step.outputs, *self.step.named)
        results = [(name, self._result(node)) for name, node in zip(names, self.step.results(), strict=True)]
        first = len(self.step.outputs)
        return LoweredStep(
            self.builder,
            {name: segments for name, segments in results[:first] if segments is not None},
            {name: segments for name, segments in results[first:] if segments is not None},
            self.step.weights,
            {name: shape for name, (_, shape) in self.used.items()},
            self._prologue(),
        )

    def _input(self, name: str, node: fx.Node) -> Node:
        """`h[3]` is the state h three steps back; `h` is the state one step back."""
        width = node.meta["val"].shape[1]
        for state in self.cell.carried:
            for lag in state.delays or (1,):
                if name == (f"{state.name}[{lag}]" if state.delays else state.name):
                    return self.builder.load(BufferRef.state(state.name), width, lag=lag)
        return self.builder.load(X if name == "x" else BufferRef.mask(name), width)

    def _result(self, node: fx.Node) -> tuple[Node, ...] | None:
        value = self._as_row(self._operand(node))
        is_row = isinstance(value, Value) and value.shape in ((BATCH,), (BATCH, value.width))
        return value.segments if is_row else None

    def _prologue(self) -> Callable[..., tuple[Tensor, ...]]:
        """The function of the weights that computes what the loop reads. Equal operations are shared."""
        graph = fx.Graph()
        copies = {node: graph.placeholder(node.name) for node in self.step.placeholders()[len(self.step.inputs) :]}
        made: dict[str, fx.Node] = {}
        nodes = [node for node in self.step.graph.nodes if node in self.meta and node not in copies]
        shared = all(_is_pure(node.target) for node in nodes)
        for node in nodes:
            copy = graph.node_copy(node, lambda n: copies.get(n, 1))  # pyrefly: ignore
            copies[node] = self._reuse(node, copy, made) if shared else copy
        graph.output([self._reshaped(copies[node], node, shape) for node, shape in self.used.values()])
        graph.eliminate_dead_code()
        return fx.GraphModule(torch.nn.Module(), graph).forward

    def _reuse(self, node: fx.Node, copy: fx.Node, made: dict[str, fx.Node]) -> fx.Node:
        """The copy, or an equal operation made before: one torch operation takes as long as a short loop."""
        if node.target is aten.mul.Tensor and type(copy.args[1]) is int and copy.args[1] == 1:  # from 1 / τ
            factor: Any = node.args[0]
            if self.meta[factor].dtype == self.meta[node].dtype:
                return copy.args[0]  # pyrefly: ignore
        return made.setdefault(f"{node.target} {copy.args} {copy.kwargs}", copy)

    def _reshaped(self, copied: fx.Node, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
        same = shape == tuple(self.meta[node].shape)
        return copied if same else copied.graph.call_function(aten.reshape.default, (copied, list(shape)))

    # ------------------------------------------------------------------------------------------ one operation

    def _call(self, node: fx.Node) -> None:
        parents = node.all_input_nodes
        constant = [parent for parent in parents if parent in self.meta]
        if len(constant) == len(parents) and not any(parent in self.repeated for parent in parents):
            self.meta[node] = self._evaluate(node)
            return
        sizes = [parent for parent in parents if self.values.get(parent) == BATCH]
        if constant and len(constant) + len(sizes) == len(parents):
            allowed = VIEW_OPERATIONS if sizes else ROWWISE_OPERATIONS
            if node.target in allowed and isinstance(node.meta.get("val"), Tensor):
                self._hoist_repeated(node)
                return
        given: Any = map_aggregate((node.args, node.kwargs), self._resolve)
        self.values[node] = self._read(node, *given)
        self._check(node, self.values[node])

    def _evaluate(self, node: fx.Node) -> Any:
        """Run an operation on stand-ins of the weights, with a batch of one."""
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: self.meta.get(n, 1))
        if "device" in kwargs:
            kwargs = kwargs | {"device": "cpu"}
        return node.target(*args, **kwargs)  # pyrefly: ignore

    def _hoist_repeated(self, node: fx.Node) -> None:
        """A weight that is repeated for every sequence: the prologue computes it once."""
        self.meta[node] = self._evaluate(node)
        once, repeated = tuple(self.meta[node].shape), tuple(node.meta["val"].shape)
        axes = [axis for axis, sizes in enumerate(zip(once, repeated, strict=False)) if sizes == (1, self.batch)]
        if len(axes) != 1 or repeated != (*once[: axes[0]], self.batch, *once[axes[0] + 1 :]):
            raise Unsupported(f"{node.target} of a weight repeated for every sequence")
        self.repeated[node] = axes[0]

    def _read(self, node: fx.Node, args: tuple, kwargs: dict) -> Any:
        """Look the operation up in the tables and lower it."""
        like = node.meta.get("val")  # None for a node that a modifier added
        if node.target is aten.sym_size.int:
            return BATCH
        if node.target is operator.getitem:
            return args[0][args[1]]
        if node.target in PRODUCTS:
            return PRODUCTS[node.target](self, *args, **kwargs)
        for table in (ROWS, VIEWS):
            if node.target in table:
                return table[node.target](self, *map(self._as_row, args), **kwargs)
        if node.target in BOOLEAN and isinstance(like, Tensor) and like.dtype is torch.bool:
            return self.elementwise(BOOLEAN[node.target], args, kwargs)
        if node.target in ELEMENTWISE:
            return self.elementwise(ELEMENTWISE[node.target], args, kwargs)
        raise Unsupported(f"{node.target}")

    def _check(self, node: fx.Node, value: Any) -> None:
        """Check that torch computed the same shape, in the precision of the cell."""
        like = node.meta.get("val")
        if not isinstance(value, Value) or not isinstance(like, Tensor):
            return
        if tuple(like.shape) != tuple(self.batch if size == BATCH else size for size in value.shape):
            raise Unsupported(f"{node.target} that gives shape {tuple(like.shape)}")
        if like.is_floating_point() and like.dtype != self.dtype and self.dtype not in REDUCED_PRECISION:
            raise Unsupported(f"{like.dtype} inside a cell of {self.dtype}")

    def _resolve(self, argument: Any) -> Any:
        return self._operand(argument) if isinstance(argument, fx.Node) else argument

    def _operand(self, node: fx.Node) -> Any:
        if node in self.values:
            return self.values[node]
        meta = self.meta[node]
        if not isinstance(meta, Tensor):
            return meta
        name = self.step.weights[self._weight_index(node)] if node.op == "placeholder" else f"={node.name}"
        self.known[name] = node
        axis = self.repeated.get(node)
        return LoopInvariant(name, tuple(BATCH if i == axis else n for i, n in enumerate(meta.shape)))

    def _weight_index(self, node: fx.Node) -> int:
        return self.step.placeholders().index(node) - len(self.step.inputs)

    def _as_row(self, argument: Any) -> Any:
        """A weight that is repeated for every sequence as a row; anything else unchanged."""
        is_row = isinstance(argument, LoopInvariant) and BATCH in argument.shape
        return self.value(argument) if is_row else argument

    def _use(self, weight: LoopInvariant, shape: tuple[int, ...]) -> str:
        """The name of the prologue's result that is this weight in this shape."""
        node = self.known[weight.name]
        own = tuple(self.meta[node].shape)
        name = weight.name if own == shape else f"={node.name}:{'x'.join(map(str, shape))}"
        self.used[name] = (node, shape)
        return name

    def matrix(self, weight: LoopInvariant) -> LoopInvariant:
        """A weight as the matrix of a product; leading axes have size 1."""
        *front, rows, cols = weight.shape
        if not isinstance(rows, int) or not isinstance(cols, int) or count(front) != 1:
            raise Unsupported(f"a matrix product with a weight of shape {format_shapes(weight.shape)}")
        return LoopInvariant(self._use(weight, (rows, cols)), (rows, cols))

    def value(self, argument: Any) -> Value:
        """An operand of an elementwise operation, a row, number or weight, as a row."""
        if isinstance(argument, Value):
            return argument
        if isinstance(argument, (int, float)):
            return Value((self.builder.const(argument),), ())
        if isinstance(argument, LoopInvariant):
            width = count(argument.shape)
            own = argument.shape if argument.shape in ((), (1, width)) else (width,)
            return Value((self.builder.weight(Vector(self._use(argument, own), (0, width))),), argument.shape)  # pyrefly: ignore
        raise Unsupported(f"{argument!r} as an operand")

    def elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value:
        """Apply an elementwise operation, segment by segment."""
        if BATCH in args:
            raise Unsupported("the batch size as a number")
        self._check_weights(args)
        values = [self.value(a) if isinstance(a, (Value, LoopInvariant)) else a for a in args]
        rows = [v for v in values if isinstance(v, Value)]
        shape = broadcast([v.shape for v in rows])
        if count(shape) > max(v.width for v in rows):
            raise Unsupported(f"an outer product of rows, of shape {format_shapes(shape)}")
        values = [self.broadcast_to(v, shape) if isinstance(v, Value) and v.width > 1 else v for v in values]
        made = []
        for piece in self.aligned([v for v in values if isinstance(v, Value)]):
            parts = iter(piece)
            made.append(op(self.builder, *(next(parts) if isinstance(v, Value) else v for v in values), **kwargs))
        return Value(tuple(made), shape)

    def _check_weights(self, args: tuple) -> None:
        """Refuse a weight matrix that would be broadcast to a row of its own size."""
        widest = max((a.width for a in args if isinstance(a, Value)), default=1)
        for a in args:
            matrix = isinstance(a, LoopInvariant) and len([n for n in a.shape if n not in (1, BATCH)]) > 1
            if matrix and count(a.shape) > widest:
                raise Unsupported(f"a weight of shape {format_shapes(a.shape)} outside a matrix product")

    def broadcast_to(self, value: Value, shape: Shape) -> Value:
        """Broadcast a row to a larger shape, as torch does."""
        if broadcast([value.shape, shape]) != shape:
            raise Unsupported(f"a row {format_shapes(value.shape)} expanded to {format_shapes(shape)}")
        if value.width == count(shape):
            return value.with_shape(shape)
        if value.width == 1:
            return Value((self.builder.expand(value.segments[0], count(shape)),), shape)
        runs = _runs(_source_indices(value.shape, shape))
        if len(runs) > MAX_PIECES:
            raise Unsupported(f"a row {format_shapes(value.shape)} expanded to {format_shapes(shape)}")
        return Value(tuple(s for run in runs for s in self._run(value, *run)), shape)

    def _run(self, value: Value, low: int, high: int, times: int) -> tuple[Node, ...]:
        """Numbers `low` to `high` of a row, or number `low` repeated."""
        segments = self.cut(value, low, high).segments
        return segments if times == 1 else (self.builder.expand(segments[0], times),)

    def at_each_step(self, node: Node) -> Node:
        """A mask drawn once per sequence as a value of this step. Products batch their operands over all steps."""
        if node.op != "load" or node.attr.buffer.role is not Role.MASK:
            return node
        mask = self.cell.masks[node.attr.buffer.name]
        return self.builder.make("stop", node) if mask.each == "sequence" else node

    def aligned(self, values: Sequence[Value]) -> list[list[Node]]:
        """Cut the values at each other's boundaries: one list of nodes per piece. Width 1 goes with every piece."""
        cuts = sorted({c for v in values if v.width > 1 for c in boundaries(v)})
        if not cuts:
            return [[v.segments[0] for v in values]]
        ends = {boundaries(v)[-1] for v in values if v.width > 1}
        if len(ends) > 1:
            raise Unsupported(f"an operation between widths {sorted(ends)}")
        return [[self.piece(v, low, high) for v in values] for low, high in pairwise(cuts)]

    def piece(self, value: Value, low: int, high: int) -> Node:
        """Columns `low` to `high`, which lie in one segment."""
        if value.width == 1:
            return value.segments[0]
        for (first, last), segment in zip(pairwise(boundaries(value)), value.segments, strict=True):
            if first <= low and high <= last:
                return self.builder.cut(segment, low - first, high - first)
        raise AssertionError("a piece lies within one segment")

    def cut(self, value: Value, low: int, high: int) -> Value:
        """Columns `low` to `high`, in as many segments as they span."""
        inner = [c for c in boundaries(value) if low < c < high]
        if value.width == 1:
            return value
        return row(*(self.piece(value, a, b) for a, b in pairwise([low, *inner, high])))


def _source_indices(shape: Shape, wide: Shape) -> list[int]:
    """For each number of the broadcast shape, the index of its source number."""
    own, target = ([1 if size == BATCH else int(size) for size in sizes] for sizes in (shape, wide))
    return torch.arange(count(shape)).reshape(own).expand(target).flatten().tolist()


def _runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """Run-length encode indices as `(low, high, times)`: consecutive ones, or one repeated."""
    runs: list[tuple[int, int, int]] = []
    for place, same in groupby(places):
        times = len(list(same))
        if times == 1 and runs and runs[-1][1:] == (place, 1):
            runs[-1] = (runs[-1][0], place + 1, 1)
        else:
            runs.append((place, place + 1, times))
    return runs


def _is_pure(target: Any) -> bool:
    """Whether an operation is deterministic and writes to none of its inputs."""
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
