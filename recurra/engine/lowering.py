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
from .elementwise import ELEMENTWISE, OF_TRUTHS
from .nodes import Builder, Node, Vector
from .rows import READERS
from .trace import Step, lower
from .values import Hoisted, Unsupported, Value, boundaries

aten = torch.ops.aten

NARROW = (torch.bfloat16, torch.float16)  # computed in float32 and rounded at the end: casts on the way are none

__all__ = ["Equations", "Unsupported", "equations"]


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
        self.dtype = step.node("x").meta["val"].dtype

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
        self.values[node] = self._read(node, *given)
        self._check(node, self.values[node])

    def _read(self, node: fx.Node, args: tuple, kwargs: dict) -> Any:
        like = node.meta.get("val")  # none where a modifier wrote the node
        if node.target is aten.sym_size.int:
            return "batch"
        if node.target is operator.getitem:
            return args[0][args[1]]
        if node.target in READERS:
            return READERS[node.target](self, *args, **kwargs)
        if node.target in OF_TRUTHS and isinstance(like, Tensor) and like.dtype is torch.bool:
            return self.elementwise(OF_TRUTHS[node.target], args, kwargs)
        if node.target in ELEMENTWISE:
            return self.elementwise(ELEMENTWISE[node.target], args, kwargs)
        raise Unsupported(f"{node.target}")

    def _check(self, node: fx.Node, value: Any) -> None:
        """That torch saw the same row, and in the precision everything is computed in."""
        like = node.meta.get("val")
        if not isinstance(value, Value) or not isinstance(like, Tensor):
            return
        if tuple(like.shape[1:]) != (() if value.flat else (value.width,)):
            raise Unsupported(f"{node.target} that gives {tuple(like.shape[1:])} numbers a sequence")
        if like.is_floating_point() and like.dtype != self.dtype and self.dtype not in NARROW:
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

    def elementwise(self, op: Callable, args: tuple, kwargs: dict) -> Value:
        rows = [a for a in args if isinstance(a, Value) and not a.is_number]
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

    def of_each_step(self, node: Node) -> Node:
        """A mask drawn once a sequence as a value of this step: products are taken of rows of all steps."""
        mask = self.cell.masks.get(node.attr.buffer) if node.op == "load" else None
        return self.builder.make("stop", node) if mask is not None and mask.each == "sequence" else node

    def aligned(self, values: Sequence[Value]) -> list[list[Node]]:
        """Cut the values at each other's boundaries: one list of nodes a piece. Width 1 goes with every piece."""
        cuts = sorted({c for v in values if v.width > 1 for c in boundaries(v)})
        if not cuts:
            return [[v.segments[0] for v in values]]
        ends = {boundaries(v)[-1] for v in values if v.width > 1}
        if len(ends) > 1:
            raise Unsupported(f"an operation between widths {sorted(ends)}")
        return [[self.piece(v, low, high) for v in values] for low, high in pairwise(cuts)]

    def piece(self, value: Value, low: int, high: int) -> Node:
        if value.width == 1:
            return value.segments[0]
        for (first, last), segment in zip(pairwise(boundaries(value)), value.segments, strict=True):
            if first <= low and high <= last:
                return self.builder.cut(segment, low - first, high - first)
        raise AssertionError("a piece lies within one segment")

    def cut(self, value: Value, low: int, high: int) -> Value:
        inner = [c for c in boundaries(value) if low < c < high]
        if value.width == 1:
            return value
        return Value(tuple(self.piece(value, a, b) for a, b in pairwise([low, *inner, high])))
