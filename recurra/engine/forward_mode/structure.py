"""The derivatives of one step of a stack of cells, by their structure: ∂s'/∂s and ∂s'/∂w, not written out in full.

A *root* is a piece of the new state, or of the output where that is no state. A *cotangent* is the derivative of all
roots by one value of the step: for some roots a row (unit j of the root by unit j of the value), for the others a
matrix. A product `W v` with cotangent δ gives the immediate influence `δ ⊗ v` of its weights, and `δ W` as a part of
the cotangent of v. Which root has a row and which a matrix follows from the graph alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cell import TIME, Cell
from ..batch_check import require_any_batch
from ..ir.buffers import CLOCK, Role, X
from ..ir.lowering import LoweredStep, lower_step
from ..ir.nodes import Matrix, Node, Vector, subgraph
from ..ir.values import Unsupported
from ..plan.planner import _Planner, offsets
from ..trace import OUTPUT
from ..traced_step import trace_in_clean_context
from .partials import is_end, partials


@dataclass(eq=False)
class Root:
    """A piece of the new state (`carried`) or of an output; `at` is its first row among all roots."""

    cell: int
    label: str
    node: Node | None = field(repr=False)  # None for a delayed state that moves up by one place
    at: int
    width: int
    carried: bool = True
    moved_from: int = -1  # the first place in the old state that it is a copy of


@dataclass(eq=False)
class Cotangent:
    """∂(all roots)/∂(a value of `width` numbers)."""

    node: Node | None
    width: int
    diagonal: dict[Root, Node] = field(default_factory=dict)
    columns: dict[Root, Node] = field(default_factory=dict)  # by a value of one number, for a wide root
    sources: list[tuple] = field(default_factory=list)  # (kind, cotangent it comes from, …)
    whole: bool = False  # its rows are written out as a matrix, too

    @property
    def matrix_roots(self) -> list[Root]:
        """The roots for which it is a matrix."""
        found = dict.fromkeys(self.columns)
        for _, source, *_ in self.sources:
            found |= dict.fromkeys(source.roots)
        if self.whole:
            found |= dict.fromkeys(self.diagonal)
        return list(found)

    @property
    def roots(self) -> list[Root]:
        return list(dict.fromkeys([*self.diagonal, *self.matrix_roots]))

    @property
    def rows(self) -> dict[Root, Node]:
        """The roots for which it is a row: unit j by unit j."""
        mixed = set(self.matrix_roots)
        return {root: node for root, node in self.diagonal.items() if root not in mixed}


@dataclass(eq=False)
class Use:
    """One place where the step reads a weight: in a product with a row, or in an elementwise operation."""

    cell: int
    block: Matrix | Vector
    cotangent: Cotangent
    operand: Node | None  # None: the derivative of the value by the weight is 1


@dataclass(eq=False)
class StateRead:
    """A piece of the old state that the step reads: columns `at` to `at + width` of ∂s'/∂s."""

    at: int
    cotangent: Cotangent


class StackStructure:
    """The structure of a stack of cells. Raises `Unsupported`, which names the operation, for what is not covered.

    `local`: derivatives through products are left out, and only what a unit does to itself remains: eligibility traces.
    """

    def __init__(
        self, cells: Sequence[Cell], depth: str | None, learned: Callable[[int, str], bool], local: bool = False
    ):
        self.cells, self.depth, self.learned, self.local = cells, depth, learned, local
        for cell in cells:
            require_any_batch(cell)
        self.steps: list[LoweredStep] = [lower_step(cell, trace_in_clean_context(cell), derives=True) for cell in cells]
        self.state_at: dict[tuple[int, str], int] = {}
        self.state_size = 0
        for k, cell in enumerate(cells):
            for state in cell.carried:
                self.state_at[k, state.name] = self.state_size
                self.state_size += state.size * max(state.delays or (1,))
        self.new = [_Planner(cell, step, False).new for cell, step in zip(cells, self.steps, strict=True)]
        self.output_at, self.output_size = self._outputs()
        self.uses: list[Use] = []
        self.reads: list[StateRead] = []
        self.inputs: dict[tuple[int, Node], Cotangent] = {}  # what cells above the first read from below
        self.roots = self._roots()
        ends = (root.at + root.width for root in self.roots)
        self.row_count = max(self.state_size, *ends)  # the time index is a state without a root
        self.live = [self._live(k) for k in range(len(cells))]
        for k in reversed(range(len(cells))):
            self._pull(k)

    # ------------------------------------------------------------------------------------------ roots

    def _outputs(self) -> tuple[list[int], int]:
        """Where the output of each cell begins in that of the stack (-1: not a part of it), and its size."""
        sizes = [cell.output_size for cell in self.cells]
        if self.depth == "graves":
            return [sum(sizes[:k]) for k in range(len(sizes))], sum(sizes)
        last = len(sizes) - 1
        return [0 if k == last or self.depth == "residual" else -1 for k in range(len(sizes))], sizes[-1]

    def _roots(self) -> list[Root]:
        roots: list[Root] = []
        for k, cell in enumerate(self.cells):
            for state in cell.carried:
                if state.name == TIME:
                    continue
                first = self.state_at[k, state.name]
                for slot in range(max(state.delays or (1,))):
                    for at, node in offsets(self.new[k][state.name]):
                        place = first + slot * state.size + at
                        moved = place - state.size if slot else -1
                        made = None if slot else node
                        roots.append(Root(k, f"{k}.{state.name}", made, place, node.width, moved_from=moved))
        self.readouts: list[tuple[int, Root]] = []  # column of the stack's output → the root that it is
        at_row = self.state_size
        for k, start in enumerate(self.output_at):
            for at, node in offsets(self.steps[k].outputs[OUTPUT]) if start >= 0 else []:
                same = next((r for r in roots if r.cell == k and r.node is node), None)
                if same is None:
                    same = Root(k, f"{k}.output", node, at_row, node.width, carried=False)
                    roots.append(same)
                    at_row += node.width
                self.readouts.append((start + at, same))
        return roots

    def nodes(self, k: int) -> list[Node]:
        outputs = [node for segments in (*self.new[k].values(), self.steps[k].outputs[OUTPUT]) for node in segments]
        return subgraph(outputs)

    def _live(self, k: int) -> set[Node]:
        """The values of a step that depend on a weight to learn or on the state."""
        live: set[Node] = set()
        for node in self.nodes(k):
            if node.op == "load":
                state = node.attr.buffer.role is Role.STATE and node.attr.buffer != CLOCK
                alive = state or (node.attr.buffer == X and k > 0)
            elif node.op == "weight":
                alive = self.learned(k, node.attr.weight)
            else:
                alive = node.op == "product" and self.learned(k, node.attr.weight)
                alive = alive or any(argument in live for argument in node.args)
            if alive:
                live.add(node)
        return live

    # ------------------------------------------------------------------------------------------ reverse mode

    def _pull(self, k: int) -> None:
        """Cotangents of all values of cell k, from the roots and from the cells above."""
        ends: dict[Node, Cotangent] = {}
        inner: dict[Node, Cotangent] = {}
        for root in self.roots:
            if root.cell == k and root.node is not None:
                self._seed(root, ends, k)
        for at, node in offsets(self.steps[k].outputs[OUTPUT]):
            for source, first, low, high in self._read_above(k, at, node.width):
                _at(inner, node).sources.append(("columns", source, first, low, high - low))
        for node in reversed(self.nodes(k)):
            if node in inner:
                for end, row in partials(node, self.live[k]).items():
                    _at(ends, end).sources.append(("scaled", inner[node], row))
            if node in ends:
                self._end(k, node, ends, inner)

    def _seed(self, root: Root, ends: dict[Node, Cotangent], k: int) -> None:
        assert root.node is not None
        for end, row in partials(root.node, self.live[k]).items():
            cotangent = _at(ends, end)
            (cotangent.diagonal if end.width == root.width else cotangent.columns)[root] = row

    def _read_above(self, k: int, at: int, width: int) -> list[tuple[Cotangent, int, int, int]]:
        """What cells above read of columns `at` to `at + width` of this output: (cotangent, its column, low, high)."""
        found = []
        for (reader, node), cotangent in self.inputs.items():
            direct = reader == k + 1 or (self.depth == "residual" and reader > k)
            shift = self.cells[0].input_size if self.depth == "graves" else 0
            low = max(node.attr.offset - shift, at)
            high = min(node.attr.offset - shift + node.width, at + width)
            if direct and low < high:
                found.append((cotangent, low + shift - node.attr.offset, low - at, high - at))
        return found

    def _end(self, k: int, node: Node, ends: dict[Node, Cotangent], inner: dict[Node, Cotangent]) -> None:
        cotangent = ends[node]
        if node.op == "weight":
            self.uses.append(Use(k, node.attr, cotangent, None))
        elif node.op == "load":
            self._load(k, node, cotangent)
        elif node.op == "product":
            operand = node.args[0]
            if self.learned(k, node.attr.weight):
                self.uses.append(Use(k, node.attr, cotangent, operand))
            if operand in self.live[k] and not self.local:
                below = ends if operand.op == "load" else inner
                _at(below, operand).sources.append(("product", cotangent, k, node.attr))
        else:
            self._mix(node, cotangent, inner, k)

    def _mix(self, node: Node, cotangent: Cotangent, inner: dict[Node, Cotangent], k: int) -> None:
        """What adds up or moves columns: its cotangent is written out."""
        cotangent.whole = True
        if node.op == "concat":
            for at, part in offsets(node.args):
                if part in self.live[k]:
                    _at(inner, part).sources.append(("columns", cotangent, at, 0, part.width))
        elif node.op == "rowsum" and node.attr != "max":
            _at(inner, node.args[0]).sources.append(("spread", cotangent))
        elif node.op == "gather" and node.attr.kind == "sum":
            maps = node.attr.maps
            pairs: list[tuple[Any, ...]] = [(node.args[0], maps[0], None, None)]
            if len(node.args) == 2:
                pairs = [(*p, *q) for p, q in zip(zip(node.args, maps, strict=True), _others(node), strict=True)]
            for argument, own, other, its in pairs:
                if argument in self.live[k]:
                    _at(inner, argument).sources.append(("gather", cotangent, own, other, its))
        else:
            raise Unsupported("the derivative of a maximum over columns")

    def _load(self, k: int, node: Node, cotangent: Cotangent) -> None:
        load = node.attr
        if load.buffer == X:
            cotangent.whole = True
            self.inputs[k, node] = cotangent
            return
        self.reads.append(StateRead(self.column(k, node), cotangent))

    def column(self, k: int, node: Node) -> int:
        """The first place in the state vector that a load reads."""
        state = next(s for s in self.cells[k].carried if s.name == node.attr.buffer.name)
        slot = (node.attr.lag - 1) * state.size if state.delays else 0
        return self.state_at[k, state.name] + slot + node.attr.offset


def _at(table: dict[Node, Cotangent], node: Node) -> Cotangent:
    return table.setdefault(node, Cotangent(node, node.width))


def _others(node: Node) -> list[tuple]:
    return list(zip(node.args[::-1], node.attr.maps[::-1], strict=True))


__all__ = ["Cotangent", "Root", "StackStructure", "StateRead", "Use", "is_end"]
