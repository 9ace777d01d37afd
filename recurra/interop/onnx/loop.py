"""A cell over time as ONNX's Scan, whose body is the planned step.

Nodes that depend on no state are hoisted: they are computed for all steps at once, and the body reads one row per step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...cell import Cell, State
from ...engine.batch_check import require_any_batch
from ...engine.ir.buffers import BufferRef, Role, X
from ...engine.ir.lowering import Unsupported
from ...engine.ir.nodes import Node, subgraph
from ...engine.plan.planner import Plan, plan
from ...engine.trace import trace
from ...engine.traced_step import clean_context
from ...errors import TraceError
from .export_errors import ExportError
from .graph import Graph
from .real import real_form
from .render import Renderer


@dataclass(frozen=True)
class Ragged:
    """Names shared by the loops of a file: batch size, `running`, the mask of valid steps (T, B, 1), lengths (B,)."""

    batch: str
    running: str
    lengths: str


@dataclass(frozen=True)
class _StepOutput:
    """An output of the step: `width` columns of a buffer."""

    buffer: BufferRef
    offset: int
    width: int
    node: Node


@dataclass(frozen=True)
class _ScanInput:
    """A scan input, of which the body reads one row per step: its names inside and outside, and its width."""

    inside: str
    outside: str
    width: int
    dtype: torch.dtype


def scan(
    graph: Graph, cell: Cell, x: str, states: Sequence[str], ragged: Ragged, noise: Mapping[str, str]
) -> tuple[str, list[str]]:
    """Add the scan of a cell over x (T, B, D): names of y (T, B, n), zero past each end, and of the final states.

    `noise` has the names of the cell's noise, (T, B, size) each.
    """
    cell = real_form(cell)
    planned, weights = _plan_cell(cell)
    sequences = {X: x} | {BufferRef.mask(name): value for name, value in noise.items()}
    return _ScanBuilder(graph, planned, weights, ragged, sequences).write(states)


def _plan_cell(cell: Cell) -> tuple[Plan, dict[str, Tensor]]:
    """The plan of a step, and the weights it reads."""
    try:
        require_any_batch(cell)
        with clean_context():
            planned = plan(cell, trace(cell), train=False, needs_x=False)
    except TraceError as reason:
        raise ExportError(f"{type(cell).__name__} cannot be written as ONNX: {reason}") from reason
    except Unsupported as reason:
        raise ExportError(f"{type(cell).__name__} cannot be written as ONNX: no rule for {reason}") from reason
    step, given = planned.equations, cell.weights()
    with torch.no_grad():
        hoisted = step.prologue(*(given[name] for name in step.weights))
    return planned, dict(zip(step.hoisted, hoisted, strict=True))


class _ScanBuilder:
    def __init__(
        self, graph: Graph, planned: Plan, weights: dict[str, Tensor], ragged: Ragged, sequences: dict[BufferRef, str]
    ):
        self.graph, self.plan, self.weights, self.ragged = graph, planned, weights, ragged
        self.sequences = sequences  # x and noise, (T, B, n) each
        self.body = Graph(graph.dtype, outer=graph)
        self.outs = self._outputs_with_mean_masks()
        self.nodes = subgraph([out.node for out in self.outs])
        self.varying = self._nodes_reached_from(*self._sizes())  # nodes that differ between sequences
        self.recurrent = self._nodes_reached_from(*self._states())

    def _outputs_with_mean_masks(self) -> list[_StepOutput]:
        """The outputs of a step with every dropout mask replaced by 1, its mean."""
        builder = self.plan.forward.builder

        def mean(node: Node) -> Node | None:
            is_mask = node.op == "load" and node.attr.buffer.role is Role.MASK
            return builder.const(1.0) if is_mask and node.attr.buffer not in self.sequences else None

        outputs = [out for out in self.plan.forward.outs if out.buffer in {self.plan.output, *self._states()}]
        replaced = builder.substitute([out.node for out in outputs], mean)
        plain = builder.expand_composites(replaced.values())
        return [_StepOutput(out.buffer, out.offset, out.node.width, plain[replaced[out.node]]) for out in outputs]

    def _states(self) -> dict[BufferRef, State]:
        return {BufferRef.state(state.name): state for state in self.plan.states}

    def _sizes(self) -> dict[BufferRef, int]:
        return {buffer: self.plan.forward.buffers[buffer].width for buffer in (*self.sequences, *self._states())}

    def _nodes_reached_from(self, *buffers: BufferRef) -> set[Node]:
        """The nodes that depend on one of these buffers."""
        found: set[Node] = set()
        for node in self.nodes:
            if (node.op == "load" and node.attr.buffer in buffers) or any(a in found for a in node.args):
                found.add(node)
        return found

    # ------------------------------------------------------------------------------------------ around the body

    def write(self, states: Sequence[str]) -> tuple[str, list[str]]:
        running = _ScanInput(self.body.name("running"), self.ragged.running, 1, torch.bool)
        values, early = self._write_hoisted()
        scanned = [running, *early]
        olds = {buffer: self.body.name(f"{state.name}_old") for buffer, state in self._states().items()}
        results = self._step(values, olds)
        carried = [
            self._next_state(state, olds[buffer], results[buffer], running.inside)
            for buffer, state in self._states().items()
        ]
        output = self.body.add("Identity", results[self.plan.output])
        body = self._body(list(olds.values()), scanned, carried, output)
        finals = [self.graph.name(f"{state.name}_last") for state in self.plan.states]
        y = self.graph.name("outputs")
        inputs = [*states, *(each.outside for each in scanned)]
        self.graph.nodes.append(
            self.graph.helper.make_node("Scan", inputs, [*finals, y], body=body, num_scan_inputs=len(scanned))
        )
        return self.graph.add("Where", self.ragged.running, y, self.graph.number(0.0)), finals

    def _write_hoisted(self) -> tuple[dict[Node, str], list[_ScanInput]]:
        """Write the hoisted nodes outside; returns their names in the body, and the scan inputs for those that vary."""
        needed = {a for node in self.recurrent for a in node.args} | {out.node for out in self.outs}
        roots = [node for node in self.nodes if node in needed and node not in self.recurrent]
        outside = Renderer(self.graph, self.weights, self._load_sequence)
        outside.write(subgraph(roots))
        values = {root: outside.values[root] for root in roots}
        scanned = []
        for root in roots:
            if root in self.varying:
                scanned.append(_ScanInput(self.body.name("early"), values[root], root.width, self.graph.dtype))
                values[root] = scanned[-1].inside
        return values, scanned

    def _body(self, olds: list[str], scanned: list[_ScanInput], carried: list[str], output: str) -> object:
        info, shapes = self.body.value_info, [("batch", *state.shape(1)[1:]) for state in self.plan.states]
        given = [info(name, shape) for name, shape in zip(olds, shapes, strict=True)]
        given += [info(each.inside, ("batch", each.width), each.dtype) for each in scanned]
        made = [info(name, shape) for name, shape in zip(carried, shapes, strict=True)]
        made.append(info(output, ("batch", sum(o.width for o in self.outs if o.buffer == self.plan.output))))
        return self.graph.helper.make_graph(self.body.nodes, self.graph.name("step"), given, made)

    # ------------------------------------------------------------------------------------------ the body

    def _step(self, values: dict[Node, str], olds: dict[BufferRef, str]) -> dict[BufferRef, str]:
        """Write the body's nodes; the names of its outputs by buffer."""
        inside = Renderer(self.body, self.weights, lambda node: self._load(node, olds))
        inside.values.update(values)
        inside.write(node for node in self.nodes if node in self.recurrent)
        parts: dict[BufferRef, list[tuple[int, str]]] = {}
        for out in self.outs:
            parts.setdefault(out.buffer, []).append((out.offset, self._broadcast_output(out, inside.values[out.node])))
        return {buffer: self.body.join([v for _, v in sorted(found)], axis=1) for buffer, found in parts.items()}

    def _broadcast_output(self, out: _StepOutput, value: str) -> str:
        """A value expanded to (B, width), if the equations left that to broadcasting."""
        if out.node.width == out.width and out.node in self.varying:
            return value
        shape = self.graph.add("Concat", self.ragged.batch, self.graph.integers(out.width), axis=0)
        return self.body.add("Expand", value, shape)

    def _load_sequence(self, node: Node) -> str:
        return self._columns(self.graph, node, self.sequences[node.attr.buffer])

    def _load(self, node: Node, olds: dict[BufferRef, str]) -> str:
        value = olds[node.attr.buffer]
        if self._states()[node.attr.buffer].delays:
            lag = self.body.constant(torch.tensor(node.attr.lag - 1), "lag")
            value = self.body.add("Gather", value, lag, axis=1)
        return self._columns(self.body, node, value)

    def _columns(self, graph: Graph, node: Node, value: str) -> str:
        """The columns that a node loads from a buffer."""
        low, high = node.attr.offset, node.attr.offset + node.width
        return value if node.width == self._sizes()[node.attr.buffer] else graph.cut(value, low, high, axis=-1)

    def _next_state(self, state: State, old: str, new: str, running: str) -> str:
        """The state after the step, its delay line shifted; past the end of a sequence the state stays."""
        body = self.body
        if not state.delays:
            return body.add("Where", running, new, old)
        newest = body.add("Unsqueeze", new, body.integers(1))
        older = [body.cut(old, 0, state.depth - 1, axis=1)] if state.depth > 1 else []
        ring = body.join([newest, *older], axis=1)  # (B, depth, size)
        return body.add("Where", body.add("Unsqueeze", running, body.integers(2)), ring, old)
