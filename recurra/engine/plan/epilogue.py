"""What follows the backward loop on every device: cotangents of x and of initial states, gradients of weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...cell import State
from ..ir.buffers import D_X, BufferRef, X
from ..ir.nodes import Matrix, Vector
from .program import Plan, Product
from .rows import StepRows, add_passed_through

# ---------------------------------------------------------------------------------------------------- cotangents


class LoopMemory(Protocol):
    """What a device's backward loop leaves: its buffers as (rows, width), and how it stores carries."""

    dtype: torch.dtype  # of cotangents
    sum_dtype: torch.dtype  # in which those of initial states add up

    @property
    def rows(self) -> StepRows: ...

    def __contains__(self, buffer: BufferRef) -> bool: ...

    def __getitem__(self, buffer: BufferRef) -> Tensor: ...

    def empty(self, *shape: int) -> Tensor:
        """Of `dtype`."""
        ...

    def zeros(self, *shape: int) -> Tensor:
        """Of `sum_dtype`."""
        ...

    def carried(self, carry: BufferRef, step: int) -> Tensor:
        """What a carry holds after a step, (sequences that run at the step, size)."""
        ...

    def holds_final(self, carry: BufferRef) -> bool:
        """Whether the carry of a sequence without steps is the cotangent of its final state."""
        ...


class Cotangents:
    """The cotangents of x and of initial states, from the δ of all steps."""

    def __init__(self, plan: Plan, memory: LoopMemory, weights: Mapping[str, Tensor]):
        self.plan, self.memory, self.weights = plan, memory, weights

    def of_x(self) -> Tensor:
        """(rows, inputs)."""
        width = self.plan.forward.buffers[X].width
        total = self._from_loop() if D_X in self.memory else None
        for run in self.plan.runs:
            if run[0].operand.buffer != X:
                continue
            first, last = run[0].delta, run[-1].delta
            delta = self.memory[first.buffer][:, first.offset : last.offset + last.width]
            matrix = torch.cat([product.matrix.of(self.weights) for product in run])
            low, high = run[0].operand.offset, run[0].operand.offset + run[0].matrix.deep
            if total is None and high - low == width:
                total = torch.mm(delta, matrix, out=self.memory.empty(self.memory.rows.total, width))
                continue
            if total is None:
                total = self.memory.empty(self.memory.rows.total, width).zero_()
            total[:, low:high] += delta @ matrix
        return self.memory.empty(self.memory.rows.total, width).zero_() if total is None else total

    def _from_loop(self) -> Tensor:
        """What the loop stored of it, with zeros in the columns that it did not write."""
        assert self.plan.backward is not None
        total = self.memory[D_X]
        stored = [out for out in self.plan.backward.outs if out.buffer == D_X]
        written = {column for out in stored for column in range(out.offset, out.offset + out.node.width)}
        for column in set(range(total.shape[1])) - written:
            total[:, column] = 0
        return total

    def of_initial(self, state: State, final: Tensor | None) -> Tensor:
        """(B, size), or (B, depth, size) of a delayed state; `final`: the cotangent of the final state."""
        memory, rows = self.memory, self.memory.rows
        total = memory.zeros(state.depth, rows.rows, state.size)
        for lag in state.delays or (1,):
            carry = BufferRef.carry(state.name, lag)
            for step in range(min(lag, rows.steps)):
                at = rows.rows_at(step)
                place = total[lag - 1 - step, : at.stop - at.start]
                if carry in self.plan.carries:
                    place += memory.carried(carry, step)
                for product in self._products(BufferRef.past(state.name, lag)):
                    self._add_product(place, product, at)
        carry = BufferRef.carry(state.name, 1)
        included = not state.delays and carry in self.plan.carries and memory.holds_final(carry)
        if final is not None and not included and rows.may_end_before(state.depth):
            add_passed_through(total, final if state.delays else final[:, None], rows)
        total = total.to(memory.dtype)
        return total.transpose(0, 1).contiguous() if state.delays else total[0]

    def _products(self, operand: BufferRef) -> list[Product]:
        return [product for product in self.plan.products if product.operand.buffer == operand]

    def _add_product(self, place: Tensor, product: Product, rows: slice) -> None:
        low, delta = product.operand.offset, product.delta
        values = self.memory[delta.buffer][rows, delta.offset : delta.offset + delta.width]
        place[:, low : low + product.matrix.deep] += values @ product.matrix.of(self.weights)


# ---------------------------------------------------------------------------------------------------- weights


@dataclass(frozen=True)
class _Part:
    """Some of a weight's gradient: one part of one piece."""

    piece: int
    part: int
    of: Matrix | Vector


class WeightGradients:
    """The gradient of each weight, put together from pieces: of each run of products its sum over time, and the sums
    of the loop side by side. Which parts of the pieces belong to which weight is the same at every call."""

    def __init__(self, plan: Plan):
        assert plan.backward is not None
        self.widths = [[product.delta.width for product in run] for run in plan.runs]
        self.widths.append([node.width for _, node in plan.backward.sums])
        self.parts: dict[str, list[_Part]] = {name: [] for name in plan.weight_names}
        for i, run in enumerate(plan.runs):
            for j, product in enumerate(run):
                self.parts[product.matrix.weight].append(_Part(i, j, product.matrix))
        for j, (vector, _) in enumerate(plan.backward.sums):
            self.parts[vector.weight].append(_Part(len(plan.runs), j, vector))

    def __call__(self, pieces: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        split = [
            piece.split_with_sizes(widths) if len(widths) > 1 else (piece,)
            for piece, widths in zip(pieces, self.widths, strict=True)
        ]
        return [_assemble(parts, split, weight) for parts, weight in zip(self.parts.values(), weights, strict=True)]


def _assemble(parts: list[_Part], split: Sequence[Sequence[Tensor]], weight: Tensor) -> Tensor:
    if len(parts) == 1:
        found = _oriented(split[parts[0].piece][parts[0].part], parts[0].of)
        if found.shape == weight.shape:
            return found
        if found.dim() == 1 and found.numel() == weight.numel():
            return found.reshape(weight.shape)
    total = split[-1][0].new_zeros(weight.shape)
    for part in parts:
        _section(total, part.of).add_(_oriented(split[part.piece][part.part], part.of))
    return total


def _oriented(part: Tensor, of: Matrix | Vector) -> Tensor:
    """As the weight has it: transposed, or summed where one number was used in all columns."""
    if isinstance(of, Matrix):
        return part.t() if of.flipped else part
    low, high = of.rows
    return part if part.numel() == high - low else part.sum().reshape(1)


def _section(total: Tensor, of: Matrix | Vector) -> Tensor:
    """The numbers of a weight that a part belongs to."""
    if isinstance(of, Matrix):
        return total[slice(*of.rows), slice(*of.cols)]
    return total[slice(*of.rows), of.col] if of.col is not None else total.view(-1)[slice(*of.rows)]
