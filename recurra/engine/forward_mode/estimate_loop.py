"""Many steps of an algorithm that carries an estimate of the influence, in one compiled loop (estimates.h).

UORO carries a product of two vectors, a forward gradient the tangent of the state along a direction. Weights change
after every step, or gradients add up over a call.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .influence import CompiledInfluence
from .online_loop import LOSSES, LinearHead, OnlineLoop, structure
from .pattern import Block
from .sweeps import SweepPrograms

Use = structure("Use", "delta tangent operand operand_step")
Weights = structure("Weights", "units deep along_units at first_use use_count")
Estimate = structure(
    "Estimate",
    "kind states roots weights root_cotangents state_cotangents state_tangent root_tangents tangent_rows tangent_size",
    "readout_count *readout_column *readout_root *readout_width *blocks block_count *uses",
    "*signs *state_part *weight_part *gradient",
)
KINDS = ("rank one", "direction")
PIECE = 256  # steps for which random numbers are drawn at once
Draw = Callable[[int], tuple[int, Tensor | None]]  # most steps → so many of them, and their random signs (steps, B, n)


class EstimateLoop(OnlineLoop):
    """The loop of a run with `SweepPrograms`. `kind`: what is carried, see `KINDS`."""

    def __init__(
        self, run: CompiledInfluence, parameters: Mapping[tuple[int, str], Tensor], head: LinearHead, kind: str
    ):
        self.places, size = dict[Block, int](), 0
        for block in run.plan.blocks:
            self.places[block], size = size, size + block.size
        self.block_gradient = torch.zeros(1, size, dtype=run.dtype)
        self.kind = kind
        super().__init__(run, parameters, head)
        self._describe(size)

    def gradient_places(self) -> tuple[Tensor, dict[Block, int]]:
        return self.block_gradient, self.places

    def _describe(self, size: int) -> None:
        run, s, table = self.run, self.run.plan.structure, Estimate()
        programs = run.programs
        assert isinstance(programs, SweepPrograms)
        uses, blocks = [], []
        for block in run.plan.blocks:
            layout = block.units, block.deep, block.along_units, self.places[block], len(uses), len(block.uses)
            blocks.append(Weights(*layout))
            for use in block.uses:
                at = programs.matrices[use.cotangent][0], programs.tangents[use.cotangent]
                uses.append(Use(*at, *programs.operand(use)))
        self.arrays = (Weights * len(blocks))(*blocks), (Use * max(len(uses), 1))(*uses)
        table.blocks, table.uses = map(ctypes.addressof, self.arrays)
        table.kind, table.block_count = KINDS.index(self.kind), len(blocks)
        table.states, table.roots, table.weights = s.state_size, s.row_count, size
        for name in ("root_cotangents", "state_cotangents", "state_tangent", "root_tangents", "tangent_rows"):
            setattr(table, name, getattr(programs, name))
        table.tangent_size, table.gradient = programs.tangent_size, self.block_gradient.data_ptr()
        self._describe_readouts(table)
        self.estimate, self.loop.estimate = table, ctypes.addressof(table)

    def _describe_readouts(self, table: Any) -> None:
        readouts = self.run.plan.structure.readouts
        self.readouts = [
            torch.tensor(column, dtype=torch.int64)
            for column in zip(*((column, root.at, root.width) for column, root in readouts), strict=True)
        ]
        table.readout_column, table.readout_root, table.readout_width = (t.data_ptr() for t in self.readouts)
        table.readout_count = len(readouts)

    # ------------------------------------------------------------------------------------------ running

    def carry(self, state_part: Tensor, weight_part: Tensor, draw: Draw) -> None:
        """What the next steps read and write, (B, n) and (B, weights), and their source of random numbers."""
        self.draw = draw
        self.estimate.state_part, self.estimate.weight_part = state_part.data_ptr(), weight_part.data_ptr()

    def take(self, x: Tensor, targets: Tensor, counts: Tensor) -> float:
        total, done, updates, factors = 0.0, 0, 0, self.loop.factors or 0  # none where no target counts
        while done < len(x):
            count, signs = self.draw(min(PIECE, len(x) - done))
            piece = slice(done, done + count)
            self.estimate.signs = None if signs is None else signs.data_ptr()
            self.loop.factors = factors + 16 * updates  # two doubles each
            total += super().take(x[piece], targets[piece], counts[piece])
            done, updates = done + count, updates + int(counts[piece].any(1).sum())
        return total

    def gather(self, x: Tensor, targets: Tensor, counts: Tensor, loss: str) -> tuple[float, list[Tensor]]:
        """The sum of the losses of x, and its gradient by the parameters of the loop; nothing is updated."""
        loop, head = self.loop, self.head
        loop.loss, loop.adds_up = LOSSES.index(loss), 1
        loop.weight, loop.bias, loop.feedback = (None if t is None else t.data_ptr() for t in _tensors(head))
        for gradient in (self.block_gradient, *self.gradients):
            gradient.zero_()
        try:
            total = self.take(x, targets, counts)
            self.run.library.collect(ctypes.byref(loop))
        finally:
            loop.adds_up = 0
        return total, [g.view(p.shape).clone() for g, p in zip(self.gradients, self.parameters, strict=True)]


def _tensors(head: LinearHead) -> tuple[Any, ...]:
    return head.weight, head.bias, head.feedback
