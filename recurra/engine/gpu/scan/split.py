"""Split a program whose recurrences are affine: what torch computes for all steps, what kernels over time compute.

In the kernels is all that is elementwise, gates included. Products and what else mixes units are computed for all steps
by torch: before the kernels if they read no state, after them otherwise.
"""

import functools
from dataclasses import dataclass, field
from typing import Any

from ...ir.buffers import CLOCK, BufferKind, BufferRef, BufferSpec, Role
from ...ir.nodes import Node, subgraph
from ...ir.values import Unsupported
from ...plan.affine import ScanBlock, find_blocks, find_carry_blocks
from ...plan.program import Out, Plan, Program
from ..matrix.phases import CARRIED, Place, _reachable, _reads_another_step

MOST_STATES = 32  # of a unit: with more, a program needs far more registers than there are
MOST_NUMBERS = 48  # registers for states and factors of the blocks whose effects a kernel finds

MOST_JOINED = 2  # states of a unit, of which each has a kernel of its own that joins chunks


@dataclass
class Carried:
    """A block of states that each step hands to the next: `new_i = Σ_j a[i][j] ⊙ old_j + …`, as nodes of a kernel."""

    places: tuple[Place, ...]
    a: tuple[tuple[Node | None, ...], ...]
    new: tuple[Node, ...]
    level: int = 1  # blocks of lower levels are solved before


@dataclass
class ScanSplit:
    """A program in three parts. The nodes of `stores`, `totals` and `blocks` are those of the kernels."""

    program: Program
    width: int  # units
    inputs: dict[BufferRef, Node]  # what the kernels read → the node of the program, computed before for all steps
    stores: list[tuple[Out, Node]]  # what the kernels store at every step: where, as what node of the program; theirs
    totals: list[tuple[int, Node]]  # (number of the sum, node), summed over all steps
    blocks: list[Carried]  # in order of level
    others: list[Out]  # what torch computes, before or after the kernels
    buffers: dict[BufferRef, BufferSpec]
    wide: set[BufferRef] = field(default_factory=set)  # in 32 bits
    kernels: dict[tuple, Any] = field(default_factory=dict)  # of what precedes and follows: see `matrix/elementwise.py`

    @property
    def levels(self) -> int:
        return max(block.level for block in self.blocks)

    @property
    def states(self) -> int:
        """Of a unit."""
        return sum(len(block.places) for block in self.blocks)

    @property
    def joins(self) -> bool:
        """Whether one kernel can find the states before many chunks at once: a few states read themselves alone."""
        return len(self.blocks) <= MOST_JOINED and all(len(block.places) == 1 for block in self.blocks)

    def groups(self, level: int) -> list[list[Carried]]:
        """The blocks of a level, as many together as one kernel finds the effects of."""
        found, numbers = list[list[Carried]](), MOST_NUMBERS
        for block in self.blocks:
            if block.level == level:
                added = len(block.places) * (1 + 2 * len(block.places))  # a factor has 64 bits
                fits = numbers + added <= MOST_NUMBERS
                numbers = numbers + added if fits else added
                found = [*found[:-1], [*found[-1], block]] if fits else [*found, [block]]
        return found


def split(plan: Plan, backward: bool) -> ScanSplit:
    """The parts of one of a plan's programs. Raises `Unsupported` if its recurrences are no scans."""
    return _Splitter(plan, backward).run()


class _Splitter:
    def __init__(self, plan: Plan, backward: bool):
        program = plan.backward if backward else plan.forward
        assert program is not None
        self.plan, self.backward, self.program, self.builder = plan, backward, program, program.builder
        self.role = Role.CARRY if backward else Role.STATE
        self.outs = [out for out in program.outs if out.buffer != CLOCK]
        self.nodes = subgraph([*(out.node for out in self.outs), *(node for _, node in program.sums)])
        self.loaded = [node for node in self.nodes if _reads_another_step(node) and node.attr.buffer != CLOCK]
        self.tainted = self._find_tainted()
        self.delayed = {state.name for state in plan.states if state.delays}
        if any(out.buffer.name in self.delayed for out in self.looping):
            raise Unsupported("a state that is read several steps later, in a scan")
        self.kinds: dict[Node, str] = {}

    # ------------------------------------------------------------------------------------------ kinds of values

    def _find_tainted(self) -> list[Out]:
        """The outs that a later step reads and that depend, over any number of steps, on themselves."""
        handed_on = [out for out in self.outs if out.buffer.role in CARRIED]
        reads = {
            out: {other for other in handed_on for load in subgraph([out.node]) if _overlaps(load, other)}
            for out in handed_on
        }
        reached = {out: _reachable(out, reads) for out in handed_on}
        self.looping = {out for out in handed_on if out in reached[out]}
        return [out for out in handed_on if out in self.looping or reached[out] & self.looping]

    def kind(self, node: Node) -> str:
        """Who computes a value: "torch before" or "torch after" the kernels; a "kernel"; "both", if it is elementwise
        and depends on no recurrence; it is "given" if it lies in memory, and "handed on" by the step before."""
        for part in subgraph([node], stop=self.kinds.__contains__):
            if part not in self.kinds:
                self.kinds[part] = self._kind(part)
        return self.kinds[node]

    def _kind(self, node: Node) -> str:
        if node.op == "load":
            return self._kind_of_load(node)
        if node.is_leaf:
            return "torch before" if node.op == "literal" else "given"
        args = {self.kinds[arg] for arg in node.args}
        if "torch after" in args:
            return "torch after"
        recurs = bool(args & {"kernel", "handed on"})
        if node.is_elementwise or node.op == "expand":
            return "kernel" if recurs else "both"
        return "torch after" if recurs else "torch before"

    def _kind_of_load(self, node: Node) -> str:
        at = node.attr
        if any(_overlaps(node, out) for out in self.tainted):
            return "torch after" if at.buffer.name in self.delayed else "handed on"
        is_past = at.buffer.role is Role.PAST and at.buffer.lag <= 1 and at.buffer.name != CLOCK.name
        if is_past or (at.start and at.buffer.role is Role.D_FINAL):
            return "given"
        if at.lag or at.start or at.buffer.role in (*CARRIED, Role.PAST):
            if any(out.buffer == at.buffer for out in self.tainted):
                if at.buffer.role is Role.DELTA:
                    return "torch after"
                raise Unsupported("a state that recurs in a part of its units, in a scan")
            return "torch before"
        return "given"

    def _in_kernel(self, node: Node) -> bool:
        kind = self.kind(node)
        if kind in ("kernel", "handed on") and node.width not in (1, self.width):
            raise Unsupported("values of several widths in one scan")
        return kind in ("kernel", "both", "handed on") and node.width in (1, self.width)

    # ------------------------------------------------------------------------------------------ the parts

    def run(self) -> ScanSplit:
        carried = [out for out in self.outs if self._is_carried(out)]
        if len(carried) > MOST_STATES:
            raise Unsupported(f"{len(carried)} states at once, in a scan")
        widths = {out.node.width for out in carried}
        if len(widths) != 1:
            raise Unsupported("states of several widths in one scan" if widths else "no recurrence")
        (self.width,) = widths
        stored = [out for out in self.outs if self._in_kernel(out.node) and out.buffer.role is not Role.CARRY]
        self.buffers, self.wide = dict(self.program.buffers), set[BufferRef]()
        stored += self._scratch({out.node for out in stored})
        totals = [(number, node) for number, (_, node) in enumerate(self.program.sums) if self._in_kernel(node)]
        others = [out for out in self.outs if out not in stored and not (self.backward and out in carried)]
        blocks = self._blocks(carried)
        coefficients = [a for block in blocks for row in block.a for a in row if a is not None]
        new = {piece: piece.new for block in blocks for piece in block.pieces}
        roots = [*(out.node for out in stored), *(node for _, node in totals), *new.values(), *coefficients]
        inputs, made = self._inputs(roots)
        return ScanSplit(
            self.program,
            self.width,
            inputs,
            [(out, made[out.node]) for out in stored],
            [(number, made[node]) for number, node in totals],
            self._carried(blocks, made),
            others,
            self.buffers,
            self.wide,
        )

    def _is_carried(self, out: Out) -> bool:
        """Whether a later step reads it, or what flows back to the initial state is its last value."""
        if out.buffer.role is not self.role or self.kind(out.node) not in ("kernel", "handed on"):
            if out in self.looping:
                raise Unsupported("a scan of what a product of another state feeds")
            return False
        return self.backward or any(_overlaps(load, out) for load in self.loaded)

    def _scratch(self, stored: set[Node]) -> list[Out]:
        """What the kernels store for torch: in 32 bits, unless only products read it."""
        readers: dict[Node, list[Node]] = {}
        for node in self.nodes:
            if self.kind(node) == "torch after":
                for arg in node.args:
                    if self.kind(arg) == "handed on" and arg.attr.buffer.role is Role.CARRY:
                        raise Unsupported("a product with what flows back from a later step, in a scan")
                    if self.kind(arg) == "kernel" and arg not in stored:
                        readers.setdefault(arg, []).append(node)
        found = []
        for node, users in readers.items():
            self._in_kernel(node)
            buffer = BufferRef.scratch(len(found))
            self.buffers[buffer] = BufferSpec(node.width, BufferKind.PER_STEP)
            if any(user.op != "product" for user in users):
                self.wide.add(buffer)
            found.append(Out(buffer, 0, node))
        return found

    def _blocks(self, carried: list[Out]) -> list[ScanBlock]:
        places = {(out.buffer.name, out.offset) for out in carried}
        found = []
        for block in find_carry_blocks(self.plan) if self.backward else find_blocks(self.plan):
            if any((piece.state, piece.offset) in places for piece in block.pieces):
                if not isinstance(block, ScanBlock):
                    raise Unsupported(f"a scan of {block.pieces[0].state}, as {block.why}")
                found.append(block)
        return found

    def _inputs(self, roots: list[Node]) -> tuple[dict[BufferRef, Node], dict[Node, Node]]:
        """What torch computes before, by the buffer in which the kernels read it, and the nodes of the kernels."""
        inputs: dict[BufferRef, Node] = {}
        places: dict[Node, Node] = {}
        for node in subgraph(roots, stop=lambda node: self.kind(node) == "torch before"):
            kind = self.kind(node)
            if kind == "torch after":
                raise Unsupported("a scan of what a product of another state feeds")
            if node.width not in (1, self.width):
                raise Unsupported("values of several widths in one scan")
            if kind == "torch before":
                buffer = BufferRef.input_product(len(inputs))
                inputs[buffer], self.buffers[buffer] = node, BufferSpec(node.width, BufferKind.PER_STEP)
                places[node] = self.builder.load(buffer, node.width)
        made = self.builder.substitute(roots, places.get)
        plain = self.builder.expand_composites([made[root] for root in roots])
        return inputs, {root: plain[made[root]] for root in roots}

    def _carried(self, blocks: list[ScanBlock], made: dict[Node, Node]) -> list[Carried]:
        def ref(state: str) -> BufferRef:
            return BufferRef.carry(state, 1) if self.backward else BufferRef.state(state)

        def reads(block: ScanBlock, other: ScanBlock) -> bool:
            loads = [n for n in subgraph([piece.new for piece in block.pieces]) if self.kind(n) == "handed on"]
            return block is not other and any(piece.overlaps(load) for piece in other.pieces for load in loads)

        @functools.cache
        def level(number: int) -> int:
            below = [level(i) for i, other in enumerate(blocks) if reads(blocks[number], other)]
            return 1 + max(below, default=0)

        found = [
            Carried(
                tuple((ref(piece.state), piece.offset, piece.width) for piece in block.pieces),
                tuple(tuple(None if a is None else made[a] for a in row) for row in block.a),
                tuple(made[piece.new] for piece in block.pieces),
                level(number),
            )
            for number, block in enumerate(blocks)
        ]
        return sorted(found, key=lambda block: block.level)


def _overlaps(load: Node, out: Out) -> bool:
    """Whether a load reads, at another step, what an out stores."""
    if not _reads_another_step(load) or load.attr.buffer != out.buffer:
        return False
    at = load.attr
    return at.offset < out.offset + out.node.width and out.offset < at.offset + load.width
