"""Split a program into what runs before the loop for all steps, the loop, and what follows it for all steps.

In the loop stay the states that need one and all that is as wide as a matrix. What lies between is narrow: vectors and
numbers of every head.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...ir.buffers import CLOCK, BufferKind, BufferRef, BufferSpec, Role
from ...ir.nodes import Node, Vector, subgraph
from ...ir.values import Unsupported
from ...plan.program import Out, Plan, Program

CARRIED = (Role.STATE, Role.CARRY, Role.DELTA)  # what a later step reads
Place = tuple[BufferRef, int, int]  # buffer, first column, width


@dataclass
class Phases:
    """A program in three parts. `inputs` are computed before the loop, `results` are what the loop leaves."""

    program: Program
    inputs: dict[BufferRef, Node]  # buffer that the loop reads → the node of the program that it holds
    results: dict[BufferRef, Node]  # buffer that the loop writes at every step → the node of the program
    carried: dict[Place, Node]  # what the loop hands to the next step → its new value, a node of the loop
    stores: dict[BufferRef, Node]  # buffer of `results` → the node of the loop
    totals: list[tuple[int, Vector, Node]]  # (number of the sum, weight, node of the loop), summed in the loop
    updates: dict[str, Node]  # matrix → its new value, from those of the step before, for the backward loop
    matrix: int  # numbers of a matrix
    buffers: dict[BufferRef, BufferSpec] = field(default_factory=dict)
    kernels: dict[tuple, Any] = field(default_factory=dict)  # of `elementwise.py`, by what they compute from what

    @property
    def loop_nodes(self) -> list[Node]:
        totals = (node for _, _, node in self.totals)
        return [*self.carried.values(), *self.stores.values(), *totals, *self.updates.values()]


def matrix_size(plan: Plan) -> int:
    """Numbers of the largest state with axes of its own: what is as wide stays in the loop."""
    sizes = [state.size for state in plan.states if state.axes and not state.delays]
    if not sizes:
        raise Unsupported("numbers of a row read in another order on the GPU")
    return max(sizes)


def available(plan: Plan) -> dict[Node, Node]:
    """Forward values that are stored, and the loads by which the backward program reads them."""
    found: dict[Node, Node] = {}
    builder = plan.forward.builder
    for out in plan.forward.outs:
        if not out.node.is_leaf and out.buffer != CLOCK:
            buffer = BufferRef.past(out.buffer.name, 0) if out.buffer.role is Role.STATE else out.buffer
            found.setdefault(out.node, builder.load(buffer, out.node.width, offset=out.offset))
    return found


def split(program: Program, plan: Plan, updates: Mapping[str, Node] | None = None) -> Phases:
    """The phases of a program; `updates`: the new values of matrices, which its loop computes as well."""
    return _Splitter(program, matrix_size(plan), dict(updates or {})).run()


class _Splitter:
    def __init__(self, program: Program, matrix: int, updates: dict[str, Node]):
        self.program, self.builder, self.matrix, self.updates = program, program.builder, matrix, updates
        roots = [out.node for out in program.outs] + [node for _, node in program.sums]
        self.nodes = subgraph([*roots, *updates.values()])
        self.looping = self._find_looping()
        self.depends = self._depending(self._is_looping)
        self.feeds = {*subgraph([*(out.node for out in self.looping), *updates.values()])}

    # ------------------------------------------------------------------------------------------ what loops

    def _find_looping(self) -> list[Out]:
        """The outs that a later step reads and that depend on themselves."""
        carried = [out for out in self.program.outs if out.buffer.role in CARRIED and out.buffer != CLOCK]
        reads = {out: self._read_outs(out.node, carried) for out in carried}
        return [out for out in carried if out in _reachable(out, reads)]

    def _read_outs(self, node: Node, carried: list[Out]) -> set[Out]:
        loads = [n.attr for n in subgraph([node]) if _reads_another_step(n)]
        widths = [n.width for n in subgraph([node]) if _reads_another_step(n)]
        return {
            out
            for out in carried
            for at, width in zip(loads, widths, strict=True)
            if at.buffer == out.buffer and at.offset < out.offset + out.node.width and out.offset < at.offset + width
        }

    def _is_looping(self, node: Node) -> bool:
        """Whether it reads what the loop hands on, or a matrix of an earlier step."""
        if node.op != "load":
            return False
        if node.attr.buffer.role is Role.PAST:
            return self._is_wide(node)
        return _reads_another_step(node) and any(out.buffer == node.attr.buffer for out in self.looping)

    def _depending(self, is_source: Callable[[Node], bool]) -> set[Node]:
        found: set[Node] = set()
        for node in self.nodes:
            if is_source(node) or any(arg in found for arg in node.args):
                found.add(node)
        return found

    def _is_wide(self, node: Node) -> bool:
        return node.width >= self.matrix

    # ------------------------------------------------------------------------------------------ three parts

    def _in_loop(self, node: Node) -> bool:
        if self._is_wide(node) or any(self._is_wide(arg) for arg in node.args):
            return True
        return node in self.depends and node in self.feeds

    def _own(self) -> set[Node]:
        """What the loop computes, with all that lies between two of its passes over a matrix."""
        found: set[Node] = set()
        for node in reversed(self.nodes):
            if node in found or self._in_loop(node):
                found |= {node, *(arg for arg in node.args if arg in self.depends)}
        return found

    def run(self) -> Phases:
        own = self._own()
        frontier: dict[Node, None] = {}
        for node in self.nodes:
            if node in own and not node.is_leaf:
                for arg in node.args:
                    if arg not in own and not self._is_direct(arg):
                        frontier[arg] = None
        inputs: dict[BufferRef, Node] = {}
        buffers = dict(self.program.buffers)
        places: dict[Node, Node] = {}
        for node in frontier:
            buffer = BufferRef.input_product(len(inputs))
            inputs[buffer], buffers[buffer] = node, BufferSpec(node.width, BufferKind.PER_STEP)
            places[node] = self.builder.load(buffer, node.width)
        looped = {(o.buffer, o.offset, o.node.width): o.node for o in self.looping}
        results = self._results(own, buffers)
        totals = [(i, v, n) for i, (v, n) in enumerate(self.program.sums) if n in own]
        roots = [*looped.values(), *results.values(), *(n for _, _, n in totals), *self.updates.values()]
        made = self.builder.substitute(roots, places.get)
        return Phases(
            self.program,
            inputs,
            results,
            {place: made[node] for place, node in looped.items()},
            {buffer: made[node] for buffer, node in results.items()},
            [(i, v, made[n]) for i, v, n in totals],
            {name: made[node] for name, node in self.updates.items()},
            self.matrix,
            buffers,
        )

    def _is_direct(self, node: Node) -> bool:
        """Whether the loop reads it where it is: a weight, or a row of the same step."""
        if node.op != "load":
            return node.op in ("weight", "const")
        if self._is_looping(node):
            return True
        other = node.attr.lag or node.attr.start or node.attr.buffer.role in (Role.STATE, Role.PAST, Role.CARRY)
        return not other and self.program.buffers[node.attr.buffer].kind is BufferKind.PER_STEP

    def _results(self, own: set[Node], buffers: dict[BufferRef, BufferSpec]) -> dict[BufferRef, Node]:
        """What the loop stores at every step: narrow values that something after it reads."""
        looped = {out.node for out in self.looping}
        wanted: dict[Node, None] = {}
        for out in self.program.outs:
            if out.node in own and not out.node.is_leaf and not (self._is_wide(out.node) and out.node in looped):
                wanted[out.node] = None
        for node in self.nodes:
            if node not in own:
                wanted |= {arg: None for arg in node.args if arg in own and not arg.is_leaf}
        results: dict[BufferRef, Node] = {}
        for node in wanted:
            if self._is_wide(node):
                raise Unsupported("a matrix stored at every step")
            buffer = BufferRef.scratch(len(results))
            results[buffer], buffers[buffer] = node, BufferSpec(node.width, BufferKind.PER_STEP)
        return results


def _reads_another_step(node: Node) -> bool:
    """Whether it loads what this program stored at another step."""
    return node.op == "load" and node.attr.buffer.role in CARRIED and node.attr.lag > 0


def _reachable(start: Out, edges: dict[Out, set[Out]]) -> set[Out]:
    found: set[Out] = set()
    todo: list[Out] = list(edges[start])
    while todo:
        out = todo.pop()
        if out not in found:
            found.add(out)
            todo += edges[out]
    return found
