"""Lowers a traced step to nodes: rows of numbers in the few operations of nodes.py.

What depends on weights alone becomes the *prologue*, which torch runs, and differentiates, once per call.
Split, slice and cat disappear: a value is a tuple of segments. A product with a concatenation becomes a sum of products
with columns of the weight; a slice of a product becomes a product with rows of the weight.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.node import map_aggregate, map_arg

from ...cell import Cell
from ..custom_vjp import custom_vjp_of
from ..guards import constant_buffers
from ..record import LINE
from ..trace import Step, decompose
from .buffers import BufferRef, Role, X
from .diagonal_blocks import diagonal_blocks
from .index_map import MAX_ENTRIES, IndexMap
from .integers import IntegerRanges
from .nodes import Builder, Node, Vector
from .ops_custom import lower_custom_vjp
from .ops_elementwise import BOOLEAN, ELEMENTWISE
from .ops_matmul import PRODUCTS
from .ops_order import ORDER
from .ops_reduce import ROWS
from .ops_view import INDEXED, MOVES, VIEWS, check_fill, check_sizes, target_name
from .placement import SEQUENCES, move
from .values import (
    BATCH,
    Fold,
    LoopInvariant,
    Shape,
    Unsupported,
    Value,
    at_batch,
    boundaries,
    broadcast,
    count,
    format_shapes,
    has_batch,
    is_batch,
    row,
)

aten = torch.ops.aten

# Operations that treat each sequence alone. On a weight that is repeated for every sequence, they run once.
VIEW_OPERATIONS = {*VIEWS, aten.repeat.default}
ROWWISE_OPERATIONS = {*VIEW_OPERATIONS, *ELEMENTWISE}
# Computed in float32 and rounded at the end; casts inside the step are ignored.
REDUCED_PRECISION = (torch.bfloat16, torch.float16)
SEVERAL = (
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unbind.int,
)
# Pieces that a row is cut into instead of gathered: few, or long ones. A gather goes through memory.
FEW_PIECES, MAX_PIECES, LONG = 4, 16, 16
MAX_WIDTH = 1 << 16  # numbers of a row, beyond which the plain loop is as fast

__all__ = ["LoweredStep", "Unsupported", "lower_step"]


@dataclass(frozen=True)
class LoweredStep:
    """A step as nodes: the results by name, and the prologue that computes the weights they read."""

    builder: Builder
    outputs: dict[str, tuple[Node, ...]]  # OUTPUT, then the states
    named: dict[str, tuple[Node, ...]]
    shapes: dict[str, tuple[int, ...]]  # of named values that are more than a row of each sequence
    weights: tuple[str, ...]  # the cell's weights, in the order of the prologue's arguments
    hoisted: dict[str, tuple[int, ...]]  # the results of the prologue: name → shape
    prologue: Callable[..., tuple[Tensor, ...]]


def lower_step(cell: Cell, step: Step, derives: bool = False) -> LoweredStep:
    """Lower a traced step. Raises `Unsupported`, which names the operation, where the compiled engines cannot.

    `derives`: vectors that are made of learned ones, element by element, are computed in the step, not in the prologue:
    there they would have to be made anew whenever a weight has changed.
    """
    try:
        return _Reader(cell, step, derives).read()
    except Unsupported as first:
        simpler = decompose(step)  # tried second: it takes seconds
        if simpler is step:
            raise
        try:
            return _Reader(cell, simpler, derives).read()
        except Unsupported as second:
            raise Unsupported(_with_line(str(second), step, str(first))) from second


def _with_line(reason: str, step: Step, first: str) -> str:
    """A reason that names an operation of the decomposed step, with the user's line: that of the same operation before
    it was decomposed, or else that of the reason to decompose."""
    lines = [node.meta[LINE] for node in step.graph.nodes if node.meta.get(LINE) and str(node.target) in reason]
    if lines:
        return f"{reason} ({lines[0]})"
    return f"{reason}, part of {first}" if first.endswith(")") else reason


class _Reader:
    """Walks the graph of a step once and lowers every operation."""

    def __init__(self, cell: Cell, step: Step, derives: bool):
        self.cell, self.step, self.derives = cell, step, derives
        self.values: dict[fx.Node, Any] = {}
        self.meta: dict[fx.Node, Any] = {}  # the stand-in value of what depends on weights alone
        self.repeated: dict[fx.Node, int] = {}  # those of them with a row for every sequence: the axis
        self.sizes: dict[fx.Node, Any] = {}  # the batch size, and its multiples
        self.learned: set[fx.Node] = set()  # what depends on a weight that learns
        self.fixed: dict[fx.Node, Any] = {}  # what depends on no weight but indices, for SEQUENCES sequences
        self.known: dict[str, fx.Node] = {}  # the name of a LoopInvariant → its node
        self.used: dict[str, tuple[fx.Node, tuple[int, ...]]] = {}  # what the prologue returns, and in which shape
        like = step.node("x").meta["val"]
        self.batch, self.dtype = like.shape[0], like.dtype
        self.has_matrices = any(state.axes for state in cell.carried)
        self.blocks = diagonal_blocks(cell)
        self.builder, self.integers = Builder(self.dtype), IntegerRanges(self.dtype)

    def read(self) -> LoweredStep:
        placeholders = self.step.placeholders()
        for node, name in zip(placeholders, self.step.inputs, strict=False):
            self.values[node] = row(self._input(name, node))
        indices = constant_buffers(self.cell, self.step.weights)
        learned = {name for name, parameter in self.cell.named_parameters() if parameter.requires_grad}
        for node, name in zip(placeholders[len(self.step.inputs) :], self.step.weights, strict=True):
            like = node.meta["val"]  # zeros on the CPU: the "meta" device would import torch.compile
            self.meta[node] = torch.zeros(like.shape, dtype=like.dtype)
            if name in learned:
                self.learned.add(node)
            if name in indices:
                self.fixed[node] = indices[name].clone()
        for node in self.step.graph.nodes:
            if node.op == "call_function":
                self._call(node)
        names = (*self.step.outputs, *self.step.named)
        results = [(name, self._result(node)) for name, node in zip(names, self.step.results(), strict=True)]
        first = len(self.step.outputs)
        named = {name: value for name, value in results[first:] if value is not None}
        return LoweredStep(
            self.builder,
            {name: value.segments for name, value in results[:first] if value is not None},
            {name: value.segments for name, value in named.items()},
            {name: at_batch(value.shape[1:], 1) for name, value in named.items() if len(value.shape) > 2},
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

    def _result(self, node: fx.Node) -> Value | None:
        value = self._as_row(self._operand(node))
        if not isinstance(value, Value) or value.shape[:1] != (BATCH,) or count(value.shape[1:]) != value.width:
            return None
        return value

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
        if all(parent in self.fixed for parent in parents) and _is_pure(node.target):
            self.fixed[node] = self._run(node, self.fixed)
        constant = [parent for parent in parents if parent in self.meta]
        if len(constant) == len(parents) and not any(parent in self.repeated for parent in parents):
            self.meta[node] = self._evaluate(node)
            if not parents or all(parent in self.integers.known for parent in parents):
                self.integers.add_constant(node, self.meta[node])
            if self._is_derived_here(node):
                self._lower(node)
            return
        sizes = [parent for parent in parents if parent in self.sizes]
        if constant and len(constant) + len(sizes) == len(parents):
            allowed = VIEW_OPERATIONS if sizes else ROWWISE_OPERATIONS
            if node.target in allowed and isinstance(node.meta.get("val"), Tensor):
                self._hoist_repeated(node)
                return
        if node.target in (aten.sym_size.int, operator.mul):
            self._size(node)
            return
        self._lower(node)

    def _lower(self, node: fx.Node) -> None:
        self.integers.check(node)
        given: Any = map_aggregate((node.args, node.kwargs), self._resolve)
        try:
            self.values[node] = self._read(node, *given)
            self._check(node, self.values[node])
        except Unsupported as reason:
            raise Unsupported(f"{reason} ({node.meta[LINE]})" if node.meta.get(LINE) else f"{reason}") from reason

    def _is_derived_here(self, node: fx.Node) -> bool:
        """Whether a value that depends on weights alone is computed in the step."""
        if not self.learned.isdisjoint(node.all_input_nodes):
            self.learned.add(node)
        value = self.meta[node]
        is_vector = isinstance(value, Tensor) and value.dim() < 2 and value.dtype == self.dtype
        return self.derives and node in self.learned and is_vector and node.target in ELEMENTWISE

    def _size(self, node: fx.Node) -> None:
        """The batch size, or a multiple of it."""
        times = node.args[1] if node.target is operator.mul else 1
        self.sizes[node] = self.values[node] = BATCH if times == 1 else Fold(1, times)  # pyrefly: ignore
        self.fixed[node] = times * SEQUENCES  # pyrefly: ignore

    def _evaluate(self, node: fx.Node) -> Any:
        """Run an operation on stand-ins of the weights, with a batch of one."""
        return self._run(node, self.meta | {n: count([size]) for n, size in self.sizes.items()})

    def _run(self, node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: values[n])
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
        if node.target is operator.getitem:
            return args[0][args[1]]
        if (custom := custom_vjp_of(node)) is not None:
            shapes = [tuple(parent.meta["val"].shape) for parent in node.args]  # pyrefly: ignore
            return lower_custom_vjp(self, custom, args, shapes)
        if node.target in PRODUCTS:
            return PRODUCTS[node.target](self, *args, **kwargs)
        if node.target in MOVES:
            return self._move(node, args, kwargs)
        for table in (ROWS, ORDER):
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
        if tuple(like.shape) != at_batch(value.shape, self.batch):
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
        is_row = isinstance(argument, LoopInvariant) and has_batch(argument.shape)
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

    def diagonal_block(self, weight: LoopInvariant) -> tuple[int, int] | None:
        """Rows and columns of the blocks of a block-diagonal weight of the cell."""
        return self.blocks.get(weight.name)

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
        if any(map(is_batch, args)):
            raise Unsupported("the batch size as a number")
        values = [self.value(a) if isinstance(a, (Value, LoopInvariant)) else a for a in args]
        rows = [v for v in values if isinstance(v, Value)]
        shape = broadcast([v.shape for v in rows])
        if count(shape) > max([MAX_WIDTH, *(v.width for v in rows)]):
            raise Unsupported(f"a row of shape {format_shapes(shape)}")
        values = [self.broadcast_to(v, shape) if isinstance(v, Value) and v.width > 1 else v for v in values]
        made = []
        for piece in self.aligned([v for v in values if isinstance(v, Value)]):
            parts = iter(piece)
            made.append(op(self.builder, *(next(parts) if isinstance(v, Value) else v for v in values), **kwargs))
        return Value(tuple(made), shape)

    def broadcast_to(self, value: Value, shape: Shape) -> Value:
        """Broadcast a row to a larger shape, as torch does."""
        if broadcast([value.shape, shape]) != shape:
            raise Unsupported(f"a row {format_shapes(value.shape)} expanded to {format_shapes(shape)}")
        if value.width == count(shape):
            return value.with_shape(shape)
        sizes = at_batch(shape, 1)
        places = torch.arange(value.width).reshape(at_batch(value.shape, 1)).expand(sizes)
        return self.take(value.segments, places.flatten(), shape)

    def _move(self, node: fx.Node, args: tuple, kwargs: dict) -> Any:
        """An operation that moves numbers: what it does to their places."""
        check_fill(node.target, args)
        operands: list[Value] = []

        def collect(argument: Any) -> Any:
            argument = self._as_row(argument)
            if isinstance(argument, LoopInvariant):
                raise Unsupported(f"{target_name(node.target)} by a weight")
            if isinstance(argument, Value):
                operands.append(argument)
                return len(operands) - 1, Value
            return argument

        places: dict[int, Tensor] = {}

        def fill(argument: Any) -> Any:
            if isinstance(argument, tuple) and argument[-1:] == (Value,):
                return places[argument[0]]
            if isinstance(argument, (tuple, list)) and not isinstance(argument, Fold):
                return [fill(a) for a in argument]
            return at_batch([argument], SEQUENCES)[0] if is_batch(argument) else argument

        marked = _map(collect, self._indices(node, args)), {k: _map(collect, v) for k, v in kwargs.items()}

        def run(*given: Tensor) -> Any:
            places.update(enumerate(given))
            return node.target(*fill(marked[0]), **{k: fill(v) for k, v in marked[1].items()})  # pyrefly: ignore

        try:
            values = self.move(run, *operands, what=target_name(node.target))
        except (IndexError, RuntimeError) as error:  # such as an index out of range, which the plain loop raises
            raise Unsupported(f"{target_name(node.target)} ({str(error).splitlines()[0]})") from error
        several = isinstance(node.meta.get("val"), (tuple, list)) or node.target in SEVERAL
        for value in values:
            check_sizes(node.target, args, value)
        return values if several else values[0]

    def move(self, function: Callable, *operands: Value, what: str = "an operation") -> list[Value]:
        """The results of a function that moves numbers of these values, from what it does to their places."""
        segments = [s for value in operands for s in value.segments]
        found = move(function, [value.shape for value in operands], what)
        return [self.take(segments, places, shape) for places, shape in found]

    def _indices(self, node: fx.Node, args: tuple) -> list:
        """The arguments, with tensors for constant indices."""
        given = list(args)
        if node.target in INDEXED:
            at = INDEXED[node.target]
            given[at] = map_aggregate(node.args[at], lambda a: self._index(node, a) if isinstance(a, fx.Node) else a)
        return given

    def _index(self, node: fx.Node, index: fx.Node) -> Tensor:
        if index not in self.fixed:
            raise Unsupported(f"{target_name(node.target)} by indices that are not constants of the step")
        return self.fixed[index]

    def take(self, segments: Sequence[Node], places: Tensor, shape: Shape) -> Value:
        """The numbers at these places of a row, -1 for zero: as pieces of it if they are few, else as one gather."""
        if not len(places):
            raise Unsupported("a slice of nothing")
        value = row(*segments)
        if len(places) > MAX_WIDTH:
            raise Unsupported(f"a row of shape {format_shapes(shape)}")
        runs = _runs(places.tolist())
        if len(runs) > 1 and self.has_matrices and (len(shape) > 2 or any(times > 1 for _, _, times in runs)):
            return Value((self.gather(segments, IndexMap.of(places)),), shape)  # heads stay together
        if len(runs) <= FEW_PIECES or (len(runs) <= MAX_PIECES and len(places) >= LONG * len(runs)):
            return Value(tuple(s for run in runs for s in self._piece_of(value, *run)), shape)
        return Value((self.gather(segments, IndexMap.of(places)),), shape)

    def gather(self, segments: Sequence[Node], index: IndexMap, kind: str = "sum") -> Node:
        if index.terms * index.width > MAX_ENTRIES:
            raise Unsupported(f"an index map of {index.terms} × {index.width} places")
        return self.builder.gather(self.builder.concat(segments), index, kind)

    def _piece_of(self, value: Value, low: int, high: int, times: int) -> tuple[Node, ...]:
        """Numbers `low` to `high` of a row, or number `low` repeated; zeros if it is negative."""
        if low < 0:
            return (self.builder.expand(self.builder.const(0.0), times),)
        segments = self.cut(value, low, high).segments
        return segments if times == 1 else (self.builder.expand(segments[0], times),)

    def at_each_step(self, node: Node) -> Node:
        """A mask drawn once per sequence as a value of this step. Products batch their operands over all steps."""
        if node.op != "load" or node.attr.buffer.role is not Role.MASK:
            return node
        mask = self.cell.drawn_inputs()[node.attr.buffer.name]
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


def _map(function: Callable[[Any], Any], argument: Any) -> Any:
    """Apply a function to an argument, or to all in its lists."""
    if isinstance(argument, (list, tuple)) and not isinstance(argument, Fold):
        return [_map(function, a) for a in argument]
    return function(argument)


def _runs(places: Sequence[int]) -> list[tuple[int, int, int]]:
    """Run-length encode indices as `(low, high, times)`: consecutive ones, or one repeated."""
    runs: list[tuple[int, int, int]] = []
    for place, same in groupby(places):
        times = len(list(same))
        if times == 1 and place >= 0 and runs and runs[-1][0] >= 0 and runs[-1][1:] == (place, 1):
            runs[-1] = (runs[-1][0], place + 1, 1)
        else:
            runs.append((place, place + 1, times))
    return runs


def _is_pure(target: Any) -> bool:
    """Whether an operation is deterministic and writes to none of its inputs."""
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags
