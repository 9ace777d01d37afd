"""The cotangents of the input and of the initial states, from what the backward loop leaves."""

import torch
from torch import Tensor

from ..ir.buffers import D_X, BufferRef, X
from ..plan.program import Plan, Product
from . import allocator
from .arena import Buffers
from .layout import Layout


class Cotangents:
    """The loop's buffers, and what they still have to give."""

    def __init__(
        self, plan: Plan, runs: list[list[Product]], buffers: Buffers, given: dict[str, Tensor], layout: Layout
    ):
        """`given`: the weights."""
        self.plan, self.runs, self.buffers, self.given, self.layout = plan, runs, buffers, given, layout
        self.dtype = buffers.given(X).dtype

    def _delta(self, run: list[Product]) -> Tensor:
        first, last = run[0].delta, run[-1].delta
        return self.buffers[first.buffer][:, first.offset : last.offset + last.width]

    def input(self) -> Tensor | None:
        if not self.plan.needs_x:
            return None
        width, fresh = self.buffers.width(X), D_X not in self.buffers
        total = self._input_start(None if fresh else self.buffers[D_X], width)
        for run in self.runs:
            if run[0].operand.buffer == X:
                stacked = torch.cat([p.matrix.of(self.given) for p in run])
                low, high = run[0].operand.offset, run[0].operand.offset + run[0].matrix.deep
                if fresh and high - low == width:
                    torch.mm(self._delta(run), stacked, out=total)
                else:
                    total[:, low:high] += self._delta(run) @ stacked
                fresh = False
        return total

    def _input_start(self, given: Tensor | None, width: int) -> Tensor:
        """Zeros, or what the loop itself gave."""
        covered: set[int] = set()
        if given is not None:
            assert self.plan.backward is not None
            for out in self.plan.backward.outs:
                if out.buffer == D_X:
                    covered |= set(range(out.offset, out.offset + out.node.width))
            for column in set(range(width)) - covered:
                given[:, column] = 0
            return given
        whole = any(p.operand.buffer == X and p.matrix.deep == width for p in self.plan.products)
        shape = (self.layout.total, width)
        return allocator.empty(shape, self.dtype) if whole else allocator.zeros(shape, self.dtype)

    def initial(self, name: str, final: Tensor | None) -> Tensor:
        """The cotangent of a state's initial value."""
        state = next(s for s in self.plan.states if s.name == name)
        rows, steps = self.layout.rows, self.layout.steps
        total = torch.zeros(state.depth, rows, state.size, dtype=self.dtype)
        for lag in state.delays or (1,):
            for t in range(min(lag, steps)):
                place, at = total[lag - 1 - t], self.layout.rows_at(t)
                running = at.stop - at.start
                if (carry := BufferRef.carry(name, lag)) in self.plan.carries:
                    slot = (steps - 1 - t) % (lag + 1) * rows
                    place[:running] += self.buffers[carry][slot : slot + running]
                for product in self.plan.products:
                    if product.operand.buffer == BufferRef.past(name, lag):
                        low, delta = product.operand.offset, product.delta
                        here = self.buffers[delta.buffer][at, delta.offset : delta.offset + delta.width]
                        place[:running, low : low + product.matrix.deep] += here @ product.matrix.of(self.given)
        if final is not None:
            self._pass_through(total, final)
        return total.transpose(0, 1).contiguous() if state.delays else total[0]

    def _pass_through(self, total: Tensor, final: Tensor) -> None:
        """Of a sequence shorter than the state is deep, the last values are initial ones."""
        newest, row = self.layout.ends(), torch.arange(self.layout.rows)
        values = final if final.dim() == 3 else final[:, None]
        for j in range(values.shape[1]):
            slot = j - newest
            there = slot >= 0
            if there.any():
                total[slot[there], row[there]] += values[there, j]
