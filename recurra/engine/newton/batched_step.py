"""All steps of a sequence as rows of one batch: the new states, outputs and the Jacobian from guessed old states.

States are one tensor (T, B, n), those of all names side by side. Where a sequence starts again, the old state is the
cell's own start; past the end of a sequence, the state stays what it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ir.buffers import BufferRef, X
from ..ir.nodes import Node
from ..plan.program import Plan
from ..plan.replay import Evaluator
from .jacobian import Block, Jacobian, Term, jacobian_of, live_nodes

CHUNK = 1 << 20  # numbers of a value that one pass over the operations holds on a CPU: what fits in its cache


class BatchedStep:
    """What a plan tells of its step: where states lie in a row, its outputs, its Jacobian."""

    def __init__(self, plan: Plan):
        self.plan, self.jacobian = plan, jacobian_of(plan)
        self.offsets: dict[BufferRef, tuple[int, int]] = {}
        self.size = 0
        for state in plan.states:
            self.offsets[BufferRef.state(state.name)] = self.size, self.size + state.size
            self.size += state.size
        self.results = [plan.output, *plan.named.values()]  # y first
        wanted = {*self.offsets, *self.results}
        self.outs = [out for out in plan.forward.outs if out.buffer in wanted]
        self.state_outs = [out for out in self.outs if out.buffer in self.offsets]

    def columns(self, block: Block) -> list[tuple[int, int]]:
        """Where the pieces of a block lie in a row of all states."""
        starts = [self.offsets[BufferRef.state(piece.state)][0] + piece.offset for piece in block.pieces]
        return [(start, start + block.width) for start in starts]


@dataclass(frozen=True)
class Given:
    """The inputs of a call."""

    x: Tensor  # (T, B, D), zeros past the end of a sequence
    start: Tensor  # (B, n)
    fresh: Tensor | None  # (B, n), the state where a sequence starts again
    masks: Sequence[Tensor]  # (B, size) or (T, B, size)
    weights: Sequence[Tensor]
    valid: Tensor | None  # (T, B)
    resets: Tensor | None  # (T, B)


class Evaluation:
    """Computes the step on all rows. What reads no state is computed once."""

    def __init__(self, step: BatchedStep, given: Given):
        self.step, self.given = step, given
        steps, batch = given.x.shape[:2]
        self.shape, self.rows = (steps, batch), steps * batch
        plan = step.plan
        self.weights = dict(zip(plan.equations.hoisted, given.weights, strict=True))
        self.inputs = {X: given.x.reshape(self.rows, -1)}
        for (name, each), mask in zip(plan.masks.items(), given.masks, strict=True):
            spread = mask if each == "step" else mask.expand(steps, *mask.shape)
            self.inputs[BufferRef.mask(name)] = spread.reshape(self.rows, -1)

    # ------------------------------------------------------------------------------------------ with a graph

    def run(self, old: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(new states (T, B, n), [y, named values]) from the states before each step; autograd records it."""
        before = self._restarted(old)
        outs = self.step.outs
        values = Evaluator([out.node for out in outs], self.weights)(self.inputs, self._rings(before))
        parts: dict[BufferRef, list[tuple[int, Tensor]]] = {}
        for out in outs:
            parts.setdefault(out.buffer, []).append((out.offset, values[out.node].expand(self.rows, out.node.width)))
        whole = {ref: torch.cat([v for _, v in sorted(found, key=_first)], 1) for ref, found in parts.items()}
        new = torch.cat([whole[ref] for ref in self.step.offsets], 1).view(*self.shape, -1)
        results = [whole[ref].view(*self.shape, -1) for ref in self.step.results]
        if self.given.valid is not None:
            running = self.given.valid[..., None]
            new = torch.where(running, new, old)
            results = [torch.where(running, value, value.new_zeros(())) for value in results]
        return new, results

    # ------------------------------------------------------------------------------------------ for iterations

    def prepare(self) -> None:
        """Compute what reads no state, for all rows."""
        step = self.step
        roots = [out.node for out in step.state_outs] + step.jacobian.nodes()
        live = live_nodes(roots)
        self.evaluator = Evaluator(roots, self.weights)
        nodes = [node for node in self.evaluator.nodes if node in live]
        ends = {a for node in nodes for a in node.args if a not in live}
        ends |= {node for node in roots if node not in live}
        self.ahead = Evaluator(ends, self.weights)(self.inputs, {})
        self.ahead = {node: self.ahead[node] for node in ends}
        self.evaluator.nodes = nodes
        widest = max((node.width for node in nodes), default=1)
        self.chunk = max(1, CHUNK // widest) if self.given.x.device.type == "cpu" else self.rows

    def linearise(self, old: Tensor) -> tuple[Tensor, list[Tensor]]:
        """(new states (T, B, n), a Jacobian (T, B, k, k, w) for each block)."""
        before = self._restarted(old).reshape(self.rows, -1)
        new = torch.empty_like(before)
        blocks = self.step.jacobian.blocks
        found = [new.new_zeros(self.rows, len(b.pieces), len(b.pieces), b.width) for b in blocks]
        for low in range(0, self.rows, self.chunk):
            high = min(low + self.chunk, self.rows)
            values = self._values(before, low, high)
            for out in self.step.state_outs:
                at = self.step.offsets[out.buffer][0] + out.offset
                new[low:high, at : at + out.node.width] = values[out.node]
            for block, jacobian in zip(blocks, found, strict=True):
                for (i, j), terms in block.entries.items():
                    for term in terms:
                        jacobian[low:high, i, j] += self._term(term, values)
        new = new.view(*self.shape, -1)
        found = [jacobian.view(*self.shape, *jacobian.shape[1:]) for jacobian in found]
        return self._masked(old, new, found)

    def _values(self, before: Tensor, low: int, high: int) -> dict[Node, Tensor]:
        known = {n: v[low:high] if v.dim() == 2 and v.shape[0] == self.rows > 1 else v for n, v in self.ahead.items()}
        inputs = {ref: value[low:high] for ref, value in self.inputs.items()}
        return self.evaluator(inputs, self._rings(before[low:high]), known)

    def _term(self, term: Term, values: dict[Node, Tensor]) -> Tensor:
        value = values[term.outer]
        if term.matrix is not None and term.inner is not None:
            value = value * term.matrix.of(self.weights).diagonal() * values[term.inner]
        return value

    def _masked(self, old: Tensor, new: Tensor, found: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        given = self.given
        if given.resets is not None:
            found = [a.masked_fill(given.resets[..., None, None, None], 0.0) for a in found]
        if given.valid is not None:
            running = given.valid[..., None]
            new = torch.where(running, new, old)
            found = [torch.where(running[..., None, None], a, _identity(a)) for a in found]
        return new, found

    def _restarted(self, old: Tensor) -> Tensor:
        if self.given.resets is None or self.given.fresh is None:
            return old
        return torch.where(self.given.resets[..., None], self.given.fresh, old)

    def _rings(self, before: Tensor) -> dict[BufferRef, list[Tensor]]:
        rows = before.reshape(-1, self.step.size)
        return {ref: [rows[:, low:high]] for ref, (low, high) in self.step.offsets.items()}


def _first(part: tuple[int, Tensor]) -> int:
    return part[0]


def _identity(a: Tensor) -> Tensor:
    return torch.eye(a.shape[-2], dtype=a.dtype, device=a.device)[..., None]


__all__ = ["BatchedStep", "Evaluation", "Given", "Jacobian"]
