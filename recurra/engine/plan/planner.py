"""Plans a cell: a forward and a backward program for one step, and the products that remain for after the loop.

A program lists what to store where, as nodes over buffers; threads, tiles and devices are no part of it. The backward
program is the program of a recurrent cell too, run from the last step to the first. It carries the cotangents of the
pre-activations (δ), whose products with the weights begin the next step, and whatever else flows back to a state.
Gradients of matrices and of x leave the loop: each is one product over all steps.
"""

from collections.abc import Iterable
from itertools import pairwise

from ...cell import TIME, Cell
from ..ir.buffers import CLOCK, BufferKind, BufferRef, BufferSpec, X, Y
from ..ir.lowering import LoweredStep, lower_step
from ..ir.nodes import Node, subgraph
from ..ir.values import Unsupported
from ..trace import OUTPUT, Step
from .autodiff import BackwardPlanner
from .program import Delta, Out, Plan, Product, Program

__all__ = ["Delta", "Out", "Plan", "Product", "Program", "plan"]


def plan(cell: Cell, traced: Step, *, train: bool, needs_x: bool, named: bool = False) -> Plan:
    """Plan a cell's loop; raises `Unsupported` naming the operation that forces the reference engine."""
    step = lower_step(cell, traced)
    missing = [name for name in (s.name for s in cell.carried) if name != TIME and name not in step.outputs]
    if missing or OUTPUT not in step.outputs:
        raise Unsupported(f"a new {(missing or ['output'])[0]} that depends on neither the input nor a state")
    if named and len(step.named) < len(traced.named):
        raise Unsupported("a named value that is no row of numbers of each sequence")
    return _Planner(cell, step, named).plan(train, needs_x)


def offsets(segments: Iterable[Node]) -> list[tuple[int, Node]]:
    """The segments of a row, each with its first column."""
    found, at = [], 0
    for segment in segments:
        found.append((at, segment))
        at += segment.width
    return found


class _Planner:
    def __init__(self, cell: Cell, step: LoweredStep, named: bool):
        self.cell, self.step, self.builder = cell, step, step.builder
        self.states = {state.name: state for state in cell.carried}
        self.masks = {name: mask.each for name, mask in cell.drawn_inputs().items()}
        self.new = {name: step.outputs[name] for name in self.states if name != TIME}
        if TIME in self.states:
            self.new[TIME] = (self.builder.load(CLOCK, 1, lag=1) + 1.0,)
        self._cut_states()
        self.named = dict(step.named) | self.new if named else {}

    def _cut_states(self) -> None:
        """Cut every new state where pieces of the old one begin and end, so that reads and writes have the same pieces.
        A product with the whole state cuts nothing."""
        for _ in range(8):
            previous = self.new
            self.new = {name: self._cut(name, segments) for name, segments in previous.items()}
            if previous == self.new:
                return
        raise Unsupported("states read in too many overlapping pieces")

    def _cut(self, state: str, segments: tuple[Node, ...]) -> tuple[Node, ...]:
        loads = [n for n in self._forward_nodes() if n.op == "load" and n.attr.buffer == BufferRef.state(state)]
        reads = [n for n in loads if n.width < self.states[state].size or self._read_elementwise(n)]
        edges = {e for n in reads for e in (n.attr.offset, n.attr.offset + n.width)}
        made: list[Node] = []
        for first, node in offsets(segments):
            inner = sorted({e - first for e in edges if first < e < first + node.width})
            made += [self.builder.cut(node, a, b) for a, b in pairwise([0, *inner, node.width])]
        return tuple(made)

    def _forward_nodes(self) -> list[Node]:
        roots = [n for segments in (*self.new.values(), self.step.outputs[OUTPUT]) for n in segments]
        return subgraph(roots)

    def _read_elementwise(self, node: Node) -> bool:
        """Whether anything but a product or a gather, which read whole rows from memory, reads this."""
        return any(node in user.args for user in self._forward_nodes() if user.op not in ("product", "gather"))

    # ------------------------------------------------------------------------------------------ forward

    def plan(self, train: bool, needs_x: bool) -> Plan:
        buffers, outs = self._input_buffers(), []
        for name, segments in self.new.items():
            outs += _stores(BufferRef.state(name), segments)
        y = self.step.outputs[OUTPUT]
        output = next(
            (BufferRef.state(n) for n, s in self.new.items() if _are_same(s, y) and not self.states[n].delays), Y
        )
        named = {name: BufferRef.named(name) for name in self.named}
        results = {named[name]: segments for name, segments in self.named.items()}
        for buffer, segments in (({Y: y} if output == Y else {}) | results).items():
            outs += _stores(buffer, segments)
            buffers[buffer] = BufferSpec(sum(n.width for n in segments), BufferKind.PER_STEP)
        forward = Program(self.builder, outs, buffers=buffers)
        for node in subgraph([o.node for o in outs]):
            if node.op == "product" and node.args[0].op in ("weight", "const", "literal"):
                raise Unsupported("a matrix product of a weight with a weight inside the loop")
        result = Plan(
            self.step, tuple(self.states.values()), self.masks, forward, None, output, named, (), [], (), needs_x
        )
        return BackwardPlanner(self, result).run() if train else result

    def _input_buffers(self) -> dict[BufferRef, BufferSpec]:
        buffers = {X: BufferSpec(self.cell.input_size, BufferKind.PER_STEP)}
        for name, each in self.masks.items():
            kind = BufferKind.PER_STEP if each == "step" else BufferKind.PER_SEQUENCE
            buffers[BufferRef.mask(name)] = BufferSpec(self.cell.drawn_inputs()[name].size, kind)
        for state in self.states.values():
            buffers[BufferRef.state(state.name)] = BufferSpec(state.size, BufferKind.STATE)
        return buffers


def _stores(buffer: BufferRef, segments: Iterable[Node]) -> list[Out]:
    return [Out(buffer, at, node) for at, node in offsets(segments)]


def _are_same(a: tuple[Node, ...], b: tuple[Node, ...]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))
