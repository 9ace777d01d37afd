"""Products with x, taken out of the loop: a program of their own makes those of all steps at once, before it begins.

That is worth it where the weights outgrow the cache: a step then reads fewer of them. Elsewhere x joins the recurrent
product, which spares the memory between the two.
"""

from dataclasses import dataclass

from ..ir.buffers import BufferKind, BufferRef, BufferSpec, X
from ..ir.nodes import Node, subgraph
from .program import Out, Program


@dataclass(frozen=True)
class Hoisted:
    """A program cut in two: the products with x, each into a buffer, and what finds them there."""

    ahead: Program
    loop: Program

    @property
    def numbers(self) -> int:
        """Weights that leave the loop."""
        return sum(out.node.attr.wide * out.node.attr.deep for out in self.ahead.outs)

    @property
    def width(self) -> int:
        return sum(out.node.width for out in self.ahead.outs)


def hoisted(program: Program) -> Hoisted:
    roots = [o.node for o in program.outs] + [n for _, n in program.sums]
    builder, found = program.builder, [node for node in subgraph(roots) if _reads_x(node)]
    products = {node: BufferRef.input_product(i) for i, node in enumerate(found)}
    made = builder.substitute(roots, lambda n: builder.load(products[n], n.width) if n in products else None)
    between = {buffer: BufferSpec(node.width, BufferKind.PER_STEP) for node, buffer in products.items()}
    outs = [Out(o.buffer, o.offset, made[o.node]) for o in program.outs]
    sums = [(vector, made[node]) for vector, node in program.sums]
    return Hoisted(
        Program(builder, [Out(buffer, 0, node) for node, buffer in products.items()], [], program.buffers | between),
        Program(builder, outs, sums, program.buffers | between),
    )


def _reads_x(node: Node) -> bool:
    return node.op == "product" and node.args[0].op == "load" and node.args[0].attr.buffer == X
