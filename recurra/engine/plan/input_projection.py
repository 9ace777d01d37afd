"""Moves the products with x out of the loop, into a program that makes those of all steps before it.

This pays where the weights exceed the cache, since a step then reads fewer of them. Elsewhere x is multiplied together
with the recurrent state, which saves the memory between the two programs.
"""

from dataclasses import dataclass

from ..ir.buffers import BufferKind, BufferRef, BufferSpec, X
from ..ir.nodes import Node, subgraph
from .program import Out, Program


@dataclass(frozen=True)
class SplitProgram:
    """A program in two: the products with x, each into a buffer of its own, and the loop that reads them."""

    ahead: Program
    loop: Program

    @property
    def numbers(self) -> int:
        """Weights that leave the loop."""
        return sum(out.node.attr.wide * out.node.attr.deep for out in self.ahead.outs)

    @property
    def width(self) -> int:
        """Numbers a row between the two programs."""
        return sum(out.node.width for out in self.ahead.outs)


def split_input_projection(program: Program) -> SplitProgram:
    roots = [o.node for o in program.outs] + [n for _, n in program.sums]
    builder, found = program.builder, [node for node in subgraph(roots) if _reads_x(node)]
    products = {node: BufferRef.input_product(i) for i, node in enumerate(found)}
    made = builder.substitute(roots, lambda n: builder.load(products[n], n.width) if n in products else None)
    between = {buffer: BufferSpec(node.width, BufferKind.PER_STEP) for node, buffer in products.items()}
    outs = [Out(o.buffer, o.offset, made[o.node]) for o in program.outs]
    sums = [(vector, made[node]) for vector, node in program.sums]
    return SplitProgram(
        Program(builder, [Out(buffer, 0, node) for node, buffer in products.items()], [], program.buffers | between),
        Program(builder, outs, sums, program.buffers | between),
    )


def _reads_x(node: Node) -> bool:
    return node.op == "product" and node.args[0].op == "load" and node.args[0].attr.buffer == X
