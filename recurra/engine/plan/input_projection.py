"""Moves work out of the loop, into a program over the rows of all steps that runs before it.

Of most cells that is the products with x. This pays where the weights exceed the cache, since a step then reads fewer
of them, and where rows are few. Elsewhere x is multiplied together with the recurrent state, which saves the memory
between the two programs. Of a cell whose states are affine in themselves it is all that reads no state: the gates of
every step. What remains in the loop is the scan.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ..ir.buffers import BufferKind, BufferRef, BufferSpec, Role, X
from ..ir.nodes import TABLE, Node, subgraph
from .program import Out, Program


@dataclass(frozen=True)
class SplitProgram:
    """A program in two: one over rows that do not depend on each other, and the loop that reads what it stores."""

    ahead: Program
    loop: Program

    @property
    def numbers(self) -> int:
        """Weights that leave the loop."""
        nodes = subgraph([out.node for out in self.ahead.outs])
        return sum(node.attr.multiplications for node in nodes if node.op == "product")

    @property
    def mixes_units(self) -> bool:
        """Whether what leaves the loop reads whole rows: with it the loop had several stages."""
        return any(_mixes_units(out.node) for out in self.ahead.outs)

    @property
    def width(self) -> int:
        """Numbers a row between the two programs."""
        return sum(out.node.width for out in self.ahead.outs)


def split_input_projection(program: Program) -> SplitProgram:
    """The products with x, and the rest."""
    return _split(program, [node for node in subgraph(_roots(program)) if _reads_x(node)])


def split_gates(program: Program) -> SplitProgram:
    """All costly values that read no state, and the rest."""
    free = _free_of_states(program)
    nodes = subgraph(_roots(program), stop=lambda node: node in free)
    values = [node for node in nodes if node in free and not node.is_leaf]
    stored = {out.node for out in program.outs}
    sources = [*dict.fromkeys(source for node in values for source in _costly_sources(node, stored))]

    def new_numbers(nodes: Iterable[Node]) -> int:
        return sum(node.width for node in nodes if node not in stored)

    chosen = values if new_numbers(values) < new_numbers(sources) else sources
    return _split(program, [node for node in chosen if node.width > 1 or node.op == "product"])


def split_readout(program: Program) -> tuple[Program, Program | None]:
    """The loop, and what mixes the units of its new states but feeds none: a program over the rows of all steps."""
    builder = program.builder
    states = {out.node: out for out in program.outs if out.buffer.role is Role.STATE}
    stored = {node: builder.load(out.buffer, node.width, offset=out.offset) for node, out in states.items()}
    after: dict[Out, Out] = {}
    for out in program.outs:
        if out.buffer.role is not Role.STATE and not out.node.is_leaf:
            read = builder.substitute([out.node], stored.get)[out.node]
            if _mixes_units(read) and all(_is_in_memory(node, program) for node in subgraph([read])):
                after[out] = Out(out.buffer, out.offset, read)
    if not after:
        return program, None
    outs = [out for out in program.outs if out not in after]
    return Program(builder, outs, program.sums, program.buffers), Program(
        builder, list(after.values()), [], program.buffers
    )


def _mixes_units(node: Node) -> bool:
    return any(part.op in ("product", "rowsum", "gather") for part in subgraph([node]))


def _is_in_memory(node: Node, program: Program) -> bool:
    """Whether a row of all steps can read it: a new state, or what the row itself holds."""
    is_new_state = node.op == "load" and node.attr.buffer.role is Role.STATE and not node.attr.lag
    return node.op != "load" or is_new_state or _is_of_the_row(node, program)


def _split(program: Program, found: list[Node]) -> SplitProgram:
    """The program with some of its nodes computed ahead: in buffers where it stores them anyway, or in new ones."""
    builder, roots = program.builder, _roots(program)
    ahead = [out for out in program.outs if out.node in found and out.buffer.role not in (Role.STATE, Role.CARRY)]
    places = {out.node: builder.load(out.buffer, out.node.width, offset=out.offset) for out in ahead}
    between: dict[BufferRef, BufferSpec] = {}
    for node in found:
        if node not in places:
            buffer = BufferRef.input_product(len(between))
            between[buffer] = BufferSpec(node.width, BufferKind.PER_STEP)
            places[node] = builder.load(buffer, node.width)
            ahead.append(Out(buffer, 0, node))
    made = builder.substitute(roots, places.get)
    moved = set(ahead)
    outs = [Out(o.buffer, o.offset, made[o.node]) for o in program.outs if o not in moved]
    sums = [(vector, made[node]) for vector, node in program.sums]
    buffers = program.buffers | between
    return SplitProgram(Program(builder, ahead, [], buffers), Program(builder, outs, sums, buffers))


def _roots(program: Program) -> list[Node]:
    return [o.node for o in program.outs] + [n for _, n in program.sums]


def _reads_x(node: Node) -> bool:
    return node.op == "product" and node.args[0].op == "load" and node.args[0].attr.buffer == X


def _free_of_states(program: Program) -> set[Node]:
    """Nodes that read nothing but numbers of the same row: no earlier step, and no number of a whole sequence."""
    free: set[Node] = set()
    for node in subgraph(_roots(program)):
        same_row = node.op != "load" or _is_of_the_row(node, program)
        if same_row and all(arg in free for arg in node.args):
            free.add(node)
    return free


def _is_of_the_row(node: Node, program: Program) -> bool:
    at = node.attr
    return not (at.lag or at.start or at.buffer.lag) and program.buffers[at.buffer].kind is BufferKind.PER_STEP


def _costly_sources(node: Node, stored: set[Node]) -> list[Node]:
    """What a cheap value is made of, down to products, costly operations and what is stored anyway."""
    if node.is_leaf:
        return []
    cheap = node.op == "expand" or _spreads(node) or (node.is_elementwise and not TABLE[node.op].costly)
    if node in stored or not cheap:
        return [node]
    return [source for arg in node.args for source in _costly_sources(arg, stored)]


def _spreads(node: Node) -> bool:
    """Whether it is a row, or the products of two, spread over a wider one: the loop reads what it is made of."""
    return node.op == "gather" and node.attr.terms == 1 and node.width > sum(arg.width for arg in node.args)
