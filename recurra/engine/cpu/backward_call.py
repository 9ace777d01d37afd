"""A backward pass over a whole batch, prepared once for a layout: the loop, then the sums over all steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..ir.buffers import D_X, BufferRef, Role, X
from ..plan.program import Plan
from . import allocator
from .arena import Place, Shelf
from .call import Ran
from .call_template import WEIGHTS, ZEROS, Copy, LoopCall, addresses
from .launch_plan import Way
from .layout import Layout
from .weight_grads import OverTime, Summing

_ADDRESS = Tensor.data_ptr


class RanBackward(NamedTuple):
    """What a backward pass leaves behind."""

    shelf: Tensor
    dx: Tensor  # (rows, inputs), what the loop gave of it
    pieces: list[Tensor]  # of the weights' gradients


class CpuLoopMemory:
    """The buffers of a backward loop, for the epilogue of the plan."""

    def __init__(self, way: Way, done: RanBackward, layout: Layout):
        self.places, self.memory, self.rows = way.shelf.places, done.shelf, layout
        self.dx = done.dx if D_X in way.widths else None
        self.dtype = self.sum_dtype = done.shelf.dtype

    def __contains__(self, buffer: BufferRef) -> bool:
        return buffer in self.places or (buffer == D_X and self.dx is not None)

    def __getitem__(self, buffer: BufferRef) -> Tensor:
        if buffer == D_X and self.dx is not None:
            return self.dx
        first, rows, width = self.places[buffer]
        return self.memory.as_strided((rows, width), (width, 1), self.memory.storage_offset() + first)

    def empty(self, *shape: int) -> Tensor:
        return allocator.empty(shape, self.dtype)

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype)

    def carried(self, carry: BufferRef, step: int) -> Tensor:
        """A carry is a ring of `lag + 1` steps, counted from the last."""
        at = self.rows.rows_at(step)
        slot = (self.rows.steps - 1 - step) % (carry.lag + 1) * self.rows.rows
        return self[carry][slot : slot + at.stop - at.start]

    def holds_final(self, carry: BufferRef) -> bool:
        return False


class PreparedBackward:
    def __init__(
        self,
        plan: Plan,
        way: Way,
        kept: Shelf,
        layout: Layout,
        sums: OverTime,
        missing: Sequence[BufferRef],
        weights: Mapping[str, Tensor],
    ):
        """`missing`: cotangents that are not there, and so are zero."""
        self.way, self.dtype = way, way.kernel.dtype
        self.dx = (layout.total, way.widths[D_X]) if D_X in way.widths else (0,)
        # Given are the lists of packed weights, x, the masks, the initial states, what the forward pass left (y, named
        # values, the kept arena), the cotangents that are there, the call's own arena, and dx.
        initial = [BufferRef.initial(state.name) for state in plan.states]
        inputs = [X, *map(BufferRef.mask, plan.masks), *initial, plan.output, *plan.named.values()]
        cotangents = [buffer for buffer in plan.cotangents() if buffer not in missing]
        kept_at = len(WEIGHTS) + len(inputs)
        shelf_at = kept_at + 1 + len(cotangents)
        place = {buffer: i for i, buffer in enumerate(inputs, len(WEIGHTS))}
        place |= {buffer: i for i, buffer in enumerate(cotangents, kept_at + 1)} | {D_X: shelf_at + 1}
        where = {buffer: (i, 0) for buffer, i in place.items()} | kept.at(kept_at) | way.shelf.at(shelf_at)
        assert plan.backward is not None
        past = [buffer for buffer in plan.backward.buffers if buffer.role is Role.PAST]
        where |= {buffer: where[buffer.memory] for buffer in past}
        early = {buffer: place[BufferRef.initial(buffer.name)] for buffer in past}
        packed, relocations = way.kernel.pack(weights, way.split), [*WEIGHTS, *addresses(way.binding, where, early)]
        carries = [*self._carries(plan, layout, where, place)]
        count = shelf_at + 2
        self.loop = LoopCall(way.kernel, packed, layout, way.binding, count, relocations, before=carries)
        self.sums = Summing(sums, layout, where, early, count)

    def _carries(
        self, plan: Plan, layout: Layout, where: Mapping[BufferRef, Place], place: Mapping[BufferRef, int]
    ) -> Iterator[Copy]:
        """A carry starts from the cotangent of the final state; that of a delayed one meets it on the way."""
        states = {state.name: state for state in plan.states}
        for carry in plan.carries:
            state, (shelf, start) = states[carry.name], where[carry]
            size = layout.rows * state.size * self.dtype.itemsize
            final = place.get(BufferRef.d_final(state.name))
            if final is None or state.delays:
                yield Copy(shelf, start, ZEROS, 0, (carry.lag + 1) * size)
                continue
            for slot in range(carry.lag + 1):
                yield Copy(shelf, start + slot * size, final, 0, size)

    def __call__(
        self,
        x: Tensor,
        masks: Sequence[Tensor],
        before: Sequence[Tensor],
        ran: Ran,
        cotangents: Sequence[Tensor | None],
        weights: Mapping[str, Tensor],
    ) -> RanBackward:
        assert ran.kept is not None
        shelf, dx = allocator.empty((self.way.shelf.numbers,), self.dtype), allocator.empty(self.dx, self.dtype)
        there = [d for d in cotangents if d is not None]
        given = x, *masks, *before, ran.y, *ran.named, ran.kept, *there, shelf, dx
        # All that can be done before the loop runs: when it has, what Python needs is no longer in the cache.
        scratch, results = [*map(torch.zeros_like, self.loop.scratch)], self.sums.results()
        packed = self.way.kernel.pack(weights, self.way.split)
        given = packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, given)
        first, then = self.loop.pack(*given, *map(_ADDRESS, scratch)), self.sums.pack(*given, *map(_ADDRESS, results))
        self.loop.run(first)
        if len(results) > 1:
            self.sums.run(then)
        totals = self.way.kernel.totals(scratch[0] if self.way.kernel.sums_stride else None)
        return RanBackward(shelf, dx, [*results[:-1], totals])
