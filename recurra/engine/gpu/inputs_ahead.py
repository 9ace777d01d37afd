"""Operands of products that read no state and yet are not x itself, such as a masked x.

Torch computes them for all steps, so that their products run before the loop, as those of x do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..ir.buffers import BufferKind, BufferRef, BufferSpec, Role, X
from ..ir.nodes import Node, subgraph
from ..plan.program import Out, Plan, Program
from .epilogue import PaddedRows
from .matrix.rows import Rows


@dataclass(frozen=True)
class InputsAhead:
    """A forward program that loads such operands."""

    program: Program
    made: dict[BufferRef, Node] = field(default_factory=dict)  # where it loads them → how they are computed
    kept: dict[BufferRef, BufferRef] = field(default_factory=dict)  # where backward expects one → where it is loaded

    def compute(
        self, plan: Plan, bound: Mapping[BufferRef, Tensor], weights: Mapping[str, Tensor], rows: PaddedRows
    ) -> dict[BufferRef, Tensor]:
        """The operands at all steps."""
        if not self.made:
            return {}
        like = torch.empty(0, dtype=bound[X].dtype, device=rows.device)
        values = Rows(plan, self, bound, weights, rows, like)  # pyrefly: ignore  (reads the program alone)
        found = {buffer: values.full(node).to(like.dtype).contiguous() for buffer, node in self.made.items()}
        return found | {buffer: found[source] for buffer, source in self.kept.items()}


def take_out(program: Program) -> InputsAhead:
    """Replace such operands by loads."""
    builder, nodes = program.builder, subgraph(program.roots())
    operands = dict.fromkeys(arg for node in nodes if node.op == "product" for arg in node.args)
    ahead = [node for node in operands if not node.is_leaf and all(map(_is_input, subgraph([node])))]
    if not ahead:
        return InputsAhead(program)
    refs = {node: BufferRef(Role.INPUT, number=number) for number, node in enumerate(ahead)}
    loads = {node: builder.load(ref, node.width) for node, ref in refs.items()}
    buffers = program.buffers | {ref: BufferSpec(node.width, BufferKind.PER_STEP) for node, ref in refs.items()}
    kept = {out.buffer: refs[out.node] for out in program.outs if _is_whole(out, program) and out.node in refs}
    rest = [out for out in program.outs if out.buffer not in kept]
    new = builder.substitute([*(o.node for o in rest), *(node for _, node in program.sums)], loads.get)
    outs = [Out(out.buffer, out.offset, new[out.node]) for out in rest]
    sums = [(vector, new[node]) for vector, node in program.sums]
    return InputsAhead(Program(builder, outs, sums, buffers), {ref: node for node, ref in refs.items()}, kept)


def _is_input(node: Node) -> bool:
    """Whether a value is x, a mask or a number, or is computed from those unit by unit."""
    if node.op == "load":
        return node.attr.buffer.role in (Role.X, Role.MASK) and not node.attr.lag
    return node.is_leaf or node.is_elementwise or node.op == "expand"


def _is_whole(out: Out, program: Program) -> bool:
    return out.buffer.role is Role.KEPT and out.node.width == program.buffers[out.buffer].width
