"""The epilogue of a plan on a GPU: padded rows, the buffers of the backward loop, products over all steps."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ..ir.buffers import LENGTHS, BufferRef, X
from ..plan.program import Plan, Product


class PaddedRows:
    """All sequences at all steps, (T, B), whatever their lengths."""

    def __init__(self, steps: int, batch: int, lengths: Tensor | None, device: torch.device):
        self.steps, self.rows, self.total = steps, batch, steps * batch
        self.lengths, self.device = lengths, device
        self._ends: Tensor | None = None

    def rows_at(self, step: int) -> slice:
        return slice(step * self.rows, (step + 1) * self.rows)

    def ends(self) -> Tensor:
        if self._ends is None:
            if self.lengths is None:
                self._ends = torch.full((self.rows,), self.steps, device=self.device)
            else:
                self._ends = self.lengths.long()
        return self._ends

    def row_index(self, times: Tensor) -> Tensor:
        return times.clamp(min=0) * self.rows + torch.arange(self.rows, device=self.device)

    def may_end_before(self, steps: int) -> bool:
        return self.lengths is not None or self.steps < steps


class GpuLoopMemory:
    """The buffers of a backward loop."""

    sum_dtype = torch.float32

    def __init__(self, plan: Plan, bound: Mapping[BufferRef, Tensor], steps: int, batch: int):
        self.bound, self.dtype, self.device = bound, bound[X].dtype, bound[X].device
        self.delayed = {state.name for state in plan.states if state.delays}
        self.rows = PaddedRows(steps, batch, bound.get(LENGTHS), self.device)

    def __contains__(self, buffer: BufferRef) -> bool:
        return buffer in self.bound

    def __getitem__(self, buffer: BufferRef) -> Tensor:
        return self.bound[buffer]

    def empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.sum_dtype, device=self.device)

    def carried(self, carry: BufferRef, step: int) -> Tensor:
        """Of a delayed state from all steps in memory; of another one what the loop wrote after its last step."""
        if carry.name in self.delayed:
            return self.bound[carry][self.rows.rows_at(step)]
        return self.bound[BufferRef.d_initial(carry.name)]

    def holds_final(self, carry: BufferRef) -> bool:
        return True

    # ------------------------------------------------------------------------------------------ weights

    def sum_over_time(self, run: list[Product]) -> Tensor:
        """The gradients of some matrices side by side: δᵀ times what they multiplied, over all steps."""
        first, last, load = run[0].delta, run[-1].delta, run[0].operand
        delta = self.bound[first.buffer][:, first.offset : last.offset + last.width]
        columns, batch = slice(load.offset, load.offset + run[0].matrix.deep), self.rows.rows
        operand = self.bound[load.buffer.memory][:, columns].to(delta.dtype)  # some are kept in 32 bits
        if not run[0].lag:
            return delta.t() @ operand
        lag = min(run[0].lag, self.rows.steps)
        total = delta[lag * batch :].t() @ operand[: (self.rows.steps - lag) * batch]
        for step in range(lag):
            initial = self._initial(load.buffer.name, run[0].lag - 1 - step)
            total.addmm_(delta[self.rows.rows_at(step)].t(), initial[:, columns])
        return total

    def _initial(self, state: str, slot: int) -> Tensor:
        initial = self.bound[BufferRef.initial(state)]
        return initial[slot] if initial.dim() == 3 else initial
