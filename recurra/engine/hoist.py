"""Products with x, taken out of the loop: one product over all steps each, before it begins.

That is worth it where the weights outgrow the cache: a step then reads fewer of them. Elsewhere x joins the recurrent
product, which spares the memory between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .memory import Buffers
from .nodes import Load, Matrix, Node, below
from .plan import Buffer, Out, Program


@dataclass(frozen=True)
class Hoisted:
    """A program that finds its products with x in buffers, and what goes into those."""

    program: Program
    products: dict[str, tuple[Load, Matrix]]  # buffer → operand and matrix

    @property
    def numbers(self) -> int:
        """Weights that leave the loop."""
        return sum(matrix.wide * matrix.deep for _, matrix in self.products.values())

    @property
    def width(self) -> int:
        return sum(matrix.wide for _, matrix in self.products.values())

    def fill(self, buffers: Buffers, weights: Mapping[str, Tensor]) -> None:
        """Fill the buffers, (rows of all steps, width)."""
        x = buffers["x"]
        for name, (load, matrix) in self.products.items():
            columns = x if matrix.deep == x.shape[1] else x[:, load.offset : load.offset + matrix.deep]
            torch.mm(columns, matrix.of(weights).t(), out=buffers[name])


def hoisted(program: Program) -> Hoisted:
    roots = [o.node for o in program.outs] + [n for _, n in program.sums]
    products = {n: f"of x:{i}" for i, n in enumerate(n for n in below(roots) if _reads_x(n))}
    made = program.builder.substitute(
        roots, lambda n: program.builder.load(products[n], n.width) if n in products else None
    )
    buffers = dict(program.buffers) | {name: Buffer(node.width, "time") for node, name in products.items()}
    outs = [Out(o.buffer, o.offset, made[o.node]) for o in program.outs]
    sums = [(vector, made[node]) for vector, node in program.sums]
    return Hoisted(
        Program(program.builder, outs, sums, buffers),
        {name: (node.args[0].attr, node.attr) for node, name in products.items()},
    )


def _reads_x(node: Node) -> bool:
    return node.op == "product" and node.args[0].op == "load" and node.args[0].attr.buffer == "x"
