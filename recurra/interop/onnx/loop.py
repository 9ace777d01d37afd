"""One cell over time as ONNX's Scan: the planned nodes of its step are the body.

The products with x alone leave the loop as one product for all steps; products of the same operand are one inside it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...cell import Cell, State
from ...engine.lowering import Unsupported
from ...engine.nodes import Matrix, Node, Vector, below
from ...engine.plan import Plan, plan
from ...engine.trace import trace
from ...engine.traced import apart
from ...errors import TraceError
from .errors import ExportError
from .graph import Graph
from .operations import ONNX
from .real import real_form

BEFORE = "products with x"  # the buffer filled before the loop


@dataclass(frozen=True)
class Ragged:
    """What the loops of a file share: names of the batch size, of `running` (T, B, 1) and of the lengths (B,)."""

    batch: str
    running: str
    lengths: str


@dataclass(frozen=True)
class _Out:
    buffer: str
    offset: int
    width: int
    node: Node


def scan(graph: Graph, cell: Cell, x: str, states: Sequence[str], ragged: Ragged) -> tuple[str, list[str]]:
    """Run the cell over x (T, B, D): the names of y (T, B, n), zero past each end, and of the last states."""
    cell = real_form(cell)
    planned, weights = _planned(cell)
    loop = _Loop(graph, planned, weights, ragged)
    return loop.write(x, states)


def _planned(cell: Cell) -> tuple[Plan, dict[str, Tensor]]:
    try:
        with apart():
            planned = plan(cell, trace(cell), train=False, needs_x=False)
    except (TraceError, Unsupported) as reason:
        raise ExportError(f"{type(cell).__name__} cannot be written as ONNX: no rule for {reason}") from reason
    step, given = planned.equations, cell.weights()
    with torch.no_grad():
        hoisted = step.prologue(*(given[name] for name in step.weights))
    return planned, dict(zip(step.hoisted, hoisted, strict=True))


class _Loop:
    def __init__(self, graph: Graph, planned: Plan, weights: dict[str, Tensor], ragged: Ragged):
        self.graph, self.plan, self.weights, self.ragged = graph, planned, weights, ragged
        self.body = Graph(graph.dtype, outer=graph)
        self.hoisted: list[Node] = []
        self.outs = self._without_masks_and_x()
        self.nodes = below([out.node for out in self.outs])
        self.values: dict[Node, str] = {}
        self.read = {n.attr.buffer for n in self.nodes if n.op == "load"}

    def _without_masks_and_x(self) -> list[_Out]:
        """The step with 1 for every mask, its mean, and with the products of x loaded rather than computed."""
        builder = self.plan.forward.builder
        columns: dict[Node, int] = {}

        def change(node: Node) -> Node | None:
            if node.op == "load" and node.attr.buffer in self.plan.masks:
                return builder.const(1.0)
            return None

        def hoist(node: Node) -> Node | None:
            if node.op == "product" and self._reads_whole_x(node):
                at = columns.setdefault(node, sum(n.width for n in columns))
                return builder.load(BEFORE, node.width, offset=at)
            return None

        wanted = [o for o in self.plan.forward.outs if o.buffer in {self.plan.output, *self._state_names()}]
        certain = builder.substitute([o.node for o in wanted], change)
        ready = builder.substitute(certain.values(), hoist)
        self.hoisted = list(columns)
        return [_Out(o.buffer, o.offset, o.node.width, ready[certain[o.node]]) for o in wanted]

    def _reads_whole_x(self, node: Node) -> bool:
        operand = node.args[0]
        return operand.op == "load" and operand.attr.buffer == "x" and operand.width == self._input_size()

    def _input_size(self) -> int:
        return self.plan.forward.buffers["x"].width

    def _hoisted_width(self) -> int:
        return sum(node.width for node in self.hoisted)

    def _state_names(self) -> tuple[str, ...]:
        return tuple(state.name for state in self.plan.states)

    # ------------------------------------------------------------------------------------------ around the body

    def write(self, x: str, states: Sequence[str]) -> tuple[str, list[str]]:
        running = self.body.name("running")
        scanned = [(running, self.ragged.running, 1, torch.bool)]
        sources: dict[str, str] = {}
        if BEFORE in self.read:
            sources[BEFORE] = self.body.name("from_x")
            scanned.append((sources[BEFORE], self._products_with_x(x), self._hoisted_width(), self.graph.dtype))
        if "x" in self.read:
            sources["x"] = self.body.name("x")
            scanned.append((sources["x"], x, self._input_size(), self.graph.dtype))
        olds = [self.body.name(f"{state.name}_old") for state in self.plan.states]
        sources |= dict(zip(self._state_names(), olds, strict=True))
        results = self._step(sources)
        carried = [
            self._carried(state, old, results[state.name], running)
            for state, old in zip(self.plan.states, olds, strict=True)
        ]
        output = self.body.add("Identity", results[self.plan.output])
        body = self._body(olds, scanned, carried, output)
        finals = [self.graph.name(f"{state.name}_last") for state in self.plan.states]
        y = self.graph.name("outputs")
        inputs = [*states, *(outside for _, outside, _, _ in scanned)]
        self.graph.nodes.append(
            self.graph.helper.make_node("Scan", inputs, [*finals, y], body=body, num_scan_inputs=len(scanned))
        )
        zero = self.graph.number(0.0)
        return self.graph.add("Where", self.ragged.running, y, zero), finals

    def _products_with_x(self, x: str) -> str:
        stacked = torch.cat([self._matrix(node.attr) for node in self.hoisted])  # (N, D)
        return self.graph.add("MatMul", x, self.graph.constant(stacked.t(), "U"))

    def _body(self, olds: list[str], scanned: list[tuple], carried: list[str], output: str) -> object:
        info, states = self.body.value_info, self.plan.states
        given = [info(name, state.shape("batch")) for name, state in zip(olds, states, strict=True)]  # pyrefly: ignore
        given += [info(name, ("batch", width), dtype) for name, _, width, dtype in scanned]
        made = [info(name, state.shape("batch")) for name, state in zip(carried, states, strict=True)]  # pyrefly: ignore
        made.append(info(output, ("batch", sum(o.width for o in self.outs if o.buffer == self.plan.output))))
        return self.graph.helper.make_graph(self.body.nodes, self.graph.name("step"), given, made)

    def _carried(self, state: State, old: str, new: str, running: str) -> str:
        """What is carried on: the new state, its older values behind it; past its end a sequence keeps what it had."""
        if not state.delays:
            return self.body.add("Where", running, new, old)
        newest = self.body.add("Unsqueeze", new, self.body.integers(1))
        older = [self.body.cut(old, 0, state.depth - 1, axis=1)] if state.depth > 1 else []
        ring = self.body.join([newest, *older], axis=1)  # (B, depth, size)
        return self.body.add("Where", self.body.add("Unsqueeze", running, self.body.integers(2)), ring, old)

    # ------------------------------------------------------------------------------------------ the body

    def _step(self, sources: dict[str, str]) -> dict[str, str]:
        for node in self.nodes:
            if node not in self.values:
                self._render(node, sources)
        parts: dict[str, list[tuple[int, str]]] = {}
        for out in self.outs:
            parts.setdefault(out.buffer, []).append((out.offset, self._full(out)))
        return {name: self.body.join([v for _, v in sorted(found)], axis=1) for name, found in parts.items()}

    def _full(self, out: _Out) -> str:
        """A value with a row a sequence and all its columns, where the equations left that to broadcasting."""
        value = self.values[out.node]
        if out.node.width == out.width and any(n.op == "load" for n in below([out.node])):
            return value
        shape = self.graph.add("Concat", self.ragged.batch, self.graph.integers(out.width), axis=0)
        return self.body.add("Expand", value, shape)

    def _render(self, node: Node, sources: dict[str, str]) -> None:
        args = [self.values[a] for a in node.args]
        if node.op == "const":
            self.values[node] = self.body.number(node.attr)
        elif node.op == "weight":
            self.values[node] = self.body.constant(self._vector(node.attr)[None], "vector")
        elif node.op == "load":
            self.values[node] = self._load(node, sources)
        elif node.op == "product":
            self._products(node.args[0])
        elif node.op == "rowsum":
            op = "ReduceMax" if node.attr == "max" else "ReduceSum"
            self.values[node] = self.body.add(op, args[0], self.body.integers(1), keepdims=1)
        elif node.op == "expand":
            self.values[node] = self.body.add("Expand", args[0], self.body.integers(1, node.width))
        else:
            self.values[node] = ONNX[node.op](self.body, args, node.attr)

    def _load(self, node: Node, sources: dict[str, str]) -> str:
        at, value = node.attr, sources[node.attr.buffer]
        state = next((s for s in self.plan.states if s.name == at.buffer), None)
        if state is not None and state.delays:
            value = self.body.add("Gather", value, self.body.constant(torch.tensor(at.lag - 1), "lag"), axis=1)
        width = self._hoisted_width() if at.buffer == BEFORE else self.plan.forward.buffers[at.buffer].width
        return value if node.width == width else self.body.cut(value, at.offset, at.offset + node.width, axis=1)

    def _products(self, operand: Node) -> None:
        """All products of one operand at once."""
        group = [node for node in self.nodes if node.op == "product" and node.args[0] is operand]
        stacked = torch.cat([self._matrix(node.attr) for node in group])
        product = self.body.add("MatMul", self.values[operand], self.body.constant(stacked.t(), "W"))
        parts = self.body.split(product, [node.width for node in group], axis=1)
        self.values.update(zip(group, parts, strict=True))

    def _vector(self, vector: Vector) -> Tensor:
        low, high = vector.rows
        weight = self.weights[vector.weight]
        return weight[low:high, vector.col] if vector.col is not None else weight.reshape(-1)[low:high]

    def _matrix(self, matrix: Matrix) -> Tensor:
        """As rows of outputs: a product is `v Mᵀ`."""
        weight = self.weights[matrix.weight][slice(*matrix.rows), slice(*matrix.cols)]
        return weight.t() if matrix.flipped else weight
