"""Operands of products that read no state and yet are not x itself, such as a masked x.

Torch computes them for all steps, so that their products run before the loop, as those of x do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..ir.buffers import BufferKind, BufferRef, BufferSpec, Role, X
from ..ir.nodes import Node, subgraph
from ..ir.table import evaluate
from ..plan.program import Out, Program
from .epilogue import PaddedRows


@dataclass(frozen=True)
class InputsAhead:
    """A forward program that loads such operands."""

    program: Program
    made: dict[BufferRef, Node] = field(default_factory=dict)  # where it loads them → how they are computed
    kept: dict[BufferRef, BufferRef] = field(default_factory=dict)  # where backward expects one → where it is loaded

    def compute(
        self, bound: Mapping[BufferRef, Tensor], weights: Mapping[str, Tensor], rows: PaddedRows
    ) -> dict[BufferRef, Tensor]:
        """The operands at all steps."""
        values: dict[Node, Tensor] = {}
        for node in subgraph(self.made.values()):
            values[node] = self._value(node, [values[arg] for arg in node.args], bound, weights, rows)
        found = {buffer: _of_all_rows(values[node], rows, bound[X].dtype) for buffer, node in self.made.items()}
        return found | {buffer: found[source] for buffer, source in self.kept.items()}

    def _value(
        self,
        node: Node,
        args: list[Tensor],
        bound: Mapping[BufferRef, Tensor],
        weights: Mapping[str, Tensor],
        rows: PaddedRows,
    ) -> Tensor:
        """(T, B, n); 1 for axes along which it is the same."""
        if node.op == "const":
            return torch.full((1, 1, 1), node.attr, device=rows.device)
        if node.op == "literal":
            return torch.tensor([[node.attr]], device=rows.device)
        if node.op == "weight":
            return node.attr.of(weights).float()[None, None]
        if node.op == "load":
            is_steady = self.program.buffers[node.attr.buffer].kind is BufferKind.PER_SEQUENCE
            value = bound[node.attr.buffer][:, node.attr.offset : node.attr.offset + node.width]
            return value.view(1 if is_steady else rows.steps, rows.rows, node.width)
        if node.op == "expand":
            return args[0]
        if node.op == "mul" and all(arg.op == "load" for arg in node.args):  # rounded once, as in single precision
            return args[0] * args[1]
        return evaluate(node.op, [arg.float() for arg in args], node.attr)


def _of_all_rows(value: Tensor, rows: PaddedRows, dtype: torch.dtype) -> Tensor:
    """(T · B, n)."""
    return value.to(dtype).expand(rows.steps, rows.rows, -1).reshape(rows.total, -1)


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
