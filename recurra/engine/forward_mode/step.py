"""One step of some sequences with its derivatives at hand: products with ∂s'/∂s, ∂s'/∂w and their transposes.

Algorithms that carry less than the influence are written with these: `push` takes tangents forward through the step,
`pull` cotangents back to the weights. Weights are one flat vector, in the order of the blocks.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import words
from .influence import CompiledInfluence, InfluencePlan
from .pattern import Block
from .row_program import INPUT, NEW, POOL, SCRATCH, STATE
from .structure import Root, Use

OFFSET = (1 << words.REGION) - 1


@dataclass(eq=False)
class UseNow:
    """A use of a weight at the current step: δ for each root, as a row or a matrix, and the row of the product."""

    block: Block
    rows: list[tuple[Root, Any]]  # (B, units), as `now` gives them
    matrix: Tensor | None  # (B, rows, units)
    low: int  # the first root row of the matrix
    operand: Any  # (B, deep), as `now` gives it
    place: tuple[int, int, int]  # equal for uses that read the same row


class CompiledStep:
    """The compiled step of `batch` sequences, without influence."""

    def __init__(self, plan: InfluencePlan, batch: int):
        self.run = CompiledInfluence(plan, batch, whole=True)
        self.plan, self.batch, self.structure = plan, batch, plan.structure
        self.offsets, at = {}, 0
        for block in plan.blocks:
            self.offsets[block] = at
            at += block.size
        self.weight_count = at
        self.uses = [self._use(block, use) for block in plan.blocks for use in block.uses]

    # ------------------------------------------------------------------------------------------ views

    def _row(self, place: tuple[int, int], width: int) -> Any:
        """A row of a program as a view, (B, width)."""
        address, step = place
        region, at = address >> words.REGION, address & OFFSET
        run = self.run
        if region == SCRATCH:
            return run.scratch.as_strided((self.batch, width), (run.scratch.shape[1], step), at)
        if region == POOL:
            return run.pool.as_strided((1, width), (0, step), at).expand(self.batch, width)
        return _Late(self, region, at, width, step)

    def _use(self, block: Block, use: Use) -> UseNow:
        programs, u = self.run.programs, use.cotangent
        rows = [(root, self._row(programs.row(root.cell, node), u.width)) for root, node in u.rows.items()]
        found, matrix, low = programs.matrices.get(u), None, 0
        if found is not None:
            at, low, high = found
            shape, strides = (self.batch, high - low, u.width), (self.run.scratch.shape[1], u.width, 1)
            matrix = self.run.scratch.as_strided(shape, strides, at & OFFSET)
        place = programs.operand(use)
        return UseNow(block, rows, matrix, low, self._row(place, block.deep), (*place, block.deep))

    def layout(self, block: Block, flat: Tensor) -> Tensor:
        """The weights of a block in a flat vector (…, P) as (…, units, deep)."""
        part = flat[..., self.offsets[block] : self.offsets[block] + block.size]
        if block.along_units:
            return part.unflatten(-1, (block.deep, block.units)).transpose(-1, -2)
        return part.unflatten(-1, (block.units, block.deep))

    # ------------------------------------------------------------------------------------------ running

    @property
    def state(self) -> Tensor:
        return self.run.state

    @property
    def jacobian(self) -> Tensor:
        """∂(roots)/∂s, (B, rows, n)."""
        return self.run.jacobian[:, self.run.readouts :]

    def reset(self, state: Tensor) -> None:
        self.run.reset(state)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, q) of the step that reads x (B, D); the state moves with `commit`."""
        return self.run.forward(x)

    def commit(self) -> None:
        self.run.state, self.run.new = self.run.new, self.run.state

    def roots_of(self, by_output: Tensor) -> Tensor:
        """Cotangents of the outputs (B, q) as cotangents of the roots (B, rows)."""
        cotangent = by_output.new_zeros(self.batch, self.structure.row_count)
        for column, root in self.structure.readouts:
            cotangent[:, root.at : root.at + root.width] += by_output[:, column : column + root.width]
        return cotangent

    def delta(self, use: UseNow, cotangent: Tensor) -> Tensor:
        """Cotangents of the roots (B, rows) as that of a product (B, units)."""
        total = cotangent.new_zeros(self.batch, use.block.units)
        for root, row in use.rows:
            total += cotangent[:, root.at : root.at + root.width] * now(row)
        if use.matrix is not None:
            part = cotangent[:, use.low : use.low + use.matrix.shape[1]]
            total += torch.einsum("br,bru->bu", part, use.matrix)
        return total

    def pull(self, cotangent: Tensor) -> tuple[Tensor, Tensor]:
        """Cotangents of the roots (B, rows) → of the weights (B, P) and of the old state (B, n)."""
        weights = cotangent.new_zeros(self.batch, self.weight_count)
        for use in self.uses:
            outer = self.delta(use, cotangent)[:, :, None] * now(use.operand)[:, None, :]
            self.layout(use.block, weights).add_(outer)
        return weights, torch.einsum("br,brn->bn", cotangent, self.jacobian)

    def push(self, state: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
        """Tangents of the old state (B, n) and of the weights (B, P) → of the outputs (B, q) and the new state."""
        rows = torch.einsum("brn,bn->br", self.jacobian, state)
        for use in self.uses:
            if weights is None:
                break
            change = torch.einsum("bud,bd->bu", self.layout(use.block, weights), now(use.operand))
            for root, row in use.rows:
                rows[:, root.at : root.at + root.width] += change * now(row)
            if use.matrix is not None:
                rows[:, use.low : use.low + use.matrix.shape[1]] += torch.einsum("bru,bu->br", use.matrix, change)
        outputs = rows.new_zeros(self.batch, self.structure.output_size)
        for column, root in self.structure.readouts:
            outputs[:, column : column + root.width] += rows[:, root.at : root.at + root.width]
        return outputs, rows[:, : self.structure.state_size]

    def start_push(self, weights: Tensor) -> Tensor:
        """The tangent of the first state (B, n) for a tangent of the weights: that of learned starts."""
        state = weights.new_zeros(self.batch, self.structure.state_size)
        for block in self.plan.blocks:
            for root in block.first:
                state[:, root.at : root.at + root.width] += self.layout(block, weights)[..., 0]
        return state

    def start_pull(self, state: Tensor) -> Tensor:
        """The cotangent of the weights (B, P) for one of the first state (B, n)."""
        weights = state.new_zeros(self.batch, self.weight_count)
        for block in self.plan.blocks:
            for root in block.first:
                self.layout(block, weights)[..., 0] += state[:, root.at : root.at + root.width]
        return weights

    def by_tensor(self, flat: Tensor) -> dict[tuple[int, str], Tensor]:
        """A flat gradient (P,) by the tensors that the cells read."""
        found: dict[tuple[int, str], Tensor] = {}
        for block in self.plan.blocks:
            key = block.cell, block.weight
            shape = self.plan.shapes.get(key, (block.size,))
            to = found.setdefault(key, flat.new_zeros(shape))
            part = flat[self.offsets[block] : self.offsets[block] + block.size]
            view = block.of(to)
            view.add_(part.view(view.shape))
        return found

    def state_dict(self) -> dict[str, Any]:
        return {"state": self.run.state.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.plan.weights.refresh()
        self.run.state.copy_(state["state"])


class _Late:
    """A row in a region whose memory changes from step to step: x, the state, a weight."""

    def __init__(self, step: CompiledStep, region: int, at: int, width: int, stride: int):
        self.step, self.region, self.at, self.shape, self.stride = step, region, at, (step.batch, width), stride

    def now(self) -> Tensor:
        run, (batch, width) = self.step.run, self.shape
        regions = {STATE: run.state, INPUT: run.input, NEW: run.new}
        if self.region in regions:
            memory = regions[self.region]
            return memory.as_strided((batch, width), (memory.shape[1], self.stride), self.at + memory.storage_offset())
        key = next(key for key, region in run.programs.weight_region.items() if region == self.region)
        memory = run.plan.weights.tensor(*key).detach()
        return memory.as_strided((batch, width), (0, self.stride), self.at + memory.storage_offset())


def now(row: Any) -> Tensor:
    """A row of the current step."""
    return row.now() if isinstance(row, _Late) else row
