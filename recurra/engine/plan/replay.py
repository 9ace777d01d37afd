"""Runs a plan as torch operations, step by step: without a compiler, and for derivatives of derivatives."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ir.buffers import BufferRef, X
from ..ir.nodes import Node, subgraph
from ..ir.table import evaluate
from .program import Plan


def replay(
    plan: Plan,
    x: Tensor,
    states: Sequence[Tensor],
    masks: Sequence[Tensor],
    weights: Sequence[Tensor],
    lengths: Tensor | None,
) -> list[Tensor]:
    """[y (T, B, n), final states, named values (T, B, n)], as the compiled operation gives them."""
    step = _Step(plan, dict(zip(plan.equations.hoisted, weights, strict=True)))
    refs = [BufferRef.state(state.name) for state in plan.states]
    rings = {ref: list(v.unbind(1)) if s.delays else [v] for ref, s, v in zip(refs, plan.states, states, strict=True)}
    outs: dict[BufferRef, list[Tensor]] = {buffer: [] for buffer in (plan.output, *plan.named.values())}
    running = None if lengths is None else torch.arange(x.shape[0], device=x.device)[:, None] < lengths.to(x.device)
    if running is not None:  # an infinite number in the padding must not reach a gradient
        x = x.masked_fill(~running[..., None], 0.0)
    for t, row in enumerate(x.unbind(0)):
        kinds = plan.masks.items()
        drawn = {BufferRef.mask(n): m[t] if each == "step" else m for (n, each), m in zip(kinds, masks, strict=True)}
        results = step({X: row, **drawn}, rings)
        for state, ring in rings.items():
            new = results[state]
            if running is not None:
                new = torch.where(running[t][:, None], new, ring[0])
                older = [torch.where(running[t][:, None], a, b) for a, b in pairwise(ring)]
            else:
                older = ring[:-1]
            rings[state] = [new, *older]
        for buffer, rows in outs.items():
            value = results[buffer]
            rows.append(value if running is None else torch.where(running[t][:, None], value, torch.zeros_like(value)))
    finals = [
        torch.stack(rings[ref], 1) if s.delays else rings[ref][0] for ref, s in zip(refs, plan.states, strict=True)
    ]
    return [torch.stack(outs[plan.output]), *finals, *(torch.stack(outs[buffer]) for buffer in plan.named.values())]


class _Step:
    """One step: the results of the forward program."""

    def __init__(self, plan: Plan, weights: dict[str, Tensor]):
        wanted = {*(BufferRef.state(s.name) for s in plan.states), plan.output, *plan.named.values()}
        self.outs = [o for o in plan.forward.outs if o.buffer in wanted]
        self.evaluate = Evaluator([o.node for o in self.outs], weights)

    def __call__(
        self, inputs: dict[BufferRef, Tensor], rings: dict[BufferRef, list[Tensor]]
    ) -> dict[BufferRef, Tensor]:
        values, like = self.evaluate(inputs, rings), inputs[X]
        parts: dict[BufferRef, list[tuple[int, Tensor]]] = {}
        for out in self.outs:
            value = values[out.node].expand(like.shape[0], out.node.width)
            parts.setdefault(out.buffer, []).append((out.offset, value))
        return {
            buffer: torch.cat([v for _, v in sorted(found, key=lambda p: p[0])], 1) if len(found) > 1 else found[0][1]
            for buffer, found in parts.items()
        }


class Evaluator:
    """Computes nodes with torch, in order, from what a step reads: x and masks, and past states, newest first."""

    def __init__(self, roots: Iterable[Node], weights: dict[str, Tensor]):
        self.nodes = subgraph(roots)
        self.fixed: dict[Node, Tensor] = {n: n.attr.of(weights) for n in self.nodes if n.op == "weight"}
        self.matrices = {n: n.attr.of(weights) for n in self.nodes if n.op == "product"}

    def __call__(
        self,
        inputs: dict[BufferRef, Tensor],
        rings: dict[BufferRef, list[Tensor]],
        known: Mapping[Node, Tensor] | None = None,
    ) -> dict[Node, Tensor]:
        """The value of every node; `known` are those of some of them."""
        values = {**self.fixed, **(known or {})}
        for node in self.nodes:
            if node not in values:
                values[node] = self._value(node, values, inputs, rings, inputs[X])
        return values

    def _value(self, node: Node, values: dict, inputs: dict, rings: dict, like: Tensor) -> Tensor:
        if node.op == "const":
            return like.new_full((1, 1), node.attr)
        if node.op == "literal":
            return like.new_tensor([node.attr])
        if node.op == "load":
            at = node.attr
            source = rings[at.buffer][at.lag - 1] if at.lag else inputs[at.buffer]
            return source[:, at.offset : at.offset + node.width]
        args = [values[a] for a in node.args]
        if node.op == "product":
            return F.linear(args[0].expand(like.shape[0], -1), self.matrices[node])
        if node.op == "rowsum" and node.attr == "max":
            return args[0].amax(-1, keepdim=True)
        if node.op == "rowsum":
            return _as_wide(args[0], node.args[0].width).sum(-1, keepdim=True)
        if node.op == "expand":
            return _as_wide(args[0], node.width)
        if node.op == "concat":
            rows = [a.expand(like.shape[0], part.width) for a, part in zip(args, node.args, strict=True)]
            return torch.cat(rows, 1)
        if node.op == "gather":
            return node.attr.compute([_as_wide(a, part.width) for a, part in zip(args, node.args, strict=True)])
        if node.op == "stop":
            return args[0].detach()
        return evaluate(node.op, args, node.attr)


def _as_wide(value: Tensor, width: int) -> Tensor:
    """A row, of every sequence or, as a weight, of all of them, with one number for each place."""
    return value.expand(*value.shape[:-1], width)
