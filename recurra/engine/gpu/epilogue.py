"""What is left when the loop is done: products over all steps at once."""

from collections.abc import Mapping

import torch
from torch import Tensor

from ...cell import TIME
from ..cpu.weight_grads import runs
from ..ir.buffers import D_X, LENGTHS, BufferRef, X
from ..plan.program import Plan, Product


def ends_of(bound: Mapping[BufferRef, Tensor], steps: int, batch: int) -> Tensor:
    return bound[LENGTHS].long() if LENGTHS in bound else torch.full((batch,), steps, device=bound[X].device)


class After:
    """The gradients of matrices, of x and of initial states, from the δ of all steps."""

    def __init__(self, plan: Plan, bound: dict[BufferRef, Tensor], given: dict[str, Tensor], steps: int, batch: int):
        self.plan, self.bound, self.given, self.steps, self.batch = plan, bound, given, steps, batch

    def delta(self, run: list[Product]) -> Tensor:
        first, last = run[0].delta, run[-1].delta
        return self.bound[first.buffer][:, first.offset : last.offset + last.width]

    def over_time(self, run: list[Product]) -> Tensor:
        """The gradients of some matrices: δᵀ times what they multiplied."""
        delta, load = self.delta(run), run[0].operand
        columns = slice(load.offset, load.offset + run[0].matrix.deep)
        operand = self.bound[load.buffer.memory][:, columns]
        if not run[0].lag:
            return delta.t() @ operand
        lag = min(run[0].lag, self.steps)
        total = delta[lag * self.batch :].t() @ operand[: (self.steps - lag) * self.batch]
        for t in range(lag):
            early = delta[t * self.batch : (t + 1) * self.batch]
            total.addmm_(early.t(), self._start(load.buffer.name, run[0].lag - 1 - t)[:, columns])
        return total

    def _start(self, state: str, slot: int) -> Tensor:
        start = self.bound[BufferRef.initial(state)]
        return start[slot] if start.dim() == 3 else start

    def input(self) -> Tensor:
        width = self.bound[X].shape[1]
        total: Tensor | None = None
        if D_X in self.bound:
            total = self.bound[D_X]
            self._clear_untouched(total)
        for run in runs(self.plan):
            if run[0].operand.buffer != X:
                continue
            low, high = run[0].operand.offset, run[0].operand.offset + run[0].matrix.deep
            part = self.delta(run) @ torch.cat([p.matrix.of(self.given) for p in run])
            if total is None and high - low == width:
                total = part
            else:
                total = torch.zeros_like(self.bound[X]) if total is None else total
                total[:, low:high] += part
        return torch.zeros_like(self.bound[X]) if total is None else total

    def _clear_untouched(self, dx: Tensor) -> None:
        assert self.plan.backward is not None
        written: set[int] = set()
        for out in self.plan.backward.outs:
            if out.buffer == D_X:
                written |= set(range(out.offset, out.offset + out.node.width))
        for column in set(range(dx.shape[1])) - written:
            dx[:, column] = 0

    def initial(self, name: str, final: Tensor | None) -> Tensor:
        """The cotangent of a state's initial value."""
        state = next(s for s in self.plan.states if s.name == name)
        total = torch.zeros(state.depth, self.batch, state.size, dtype=torch.float32, device=self.bound[X].device)
        for lag in state.delays or (1,):
            for t in range(min(lag, self.steps)):
                total[lag - 1 - t] += self._received(name, lag, t, bool(state.delays))
        carried = BufferRef.carry(name, 1) in self.plan.carries and not state.delays
        if final is not None and not carried and name != TIME:
            self._pass_through(total, final)
        total = total.to(self.bound[X].dtype)
        return total.transpose(0, 1).contiguous() if state.delays else total[0]

    def _received(self, name: str, lag: int, t: int, delayed: bool) -> Tensor:
        """What a value before the first step gets from step `t`, which saw it `lag` steps back."""
        rows = slice(t * self.batch, (t + 1) * self.batch)
        state = next(s for s in self.plan.states if s.name == name)
        total = torch.zeros(self.batch, state.size, dtype=torch.float32, device=self.bound[X].device)
        if (carry := BufferRef.carry(name, lag)) in self.plan.carries:
            total += self.bound[carry][rows] if delayed else self.bound[BufferRef.d_initial(name)]
        for product in self.plan.products:
            if product.operand.buffer == BufferRef.past(name, lag):
                low, delta = product.operand.offset, product.delta
                here = self.bound[delta.buffer][rows, delta.offset : delta.offset + delta.width]
                total[:, low : low + product.matrix.deep] += here @ product.matrix.of(self.given)
        return total

    def _pass_through(self, total: Tensor, final: Tensor) -> None:
        """Of a sequence shorter than the state is deep, the last values are initial ones."""
        ends, row = ends_of(self.bound, self.steps, self.batch), torch.arange(self.batch, device=final.device)
        values = final if final.dim() == 3 else final[:, None]
        for j in range(values.shape[1]):
            slot = j - ends
            total[slot.clamp(min=0), row] += torch.where((slot >= 0)[:, None], values[:, j], 0.0)
