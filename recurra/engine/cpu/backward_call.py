"""A backward call, prepared once for a layout: the loop, then the sums over all steps. Only pointers are patched."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..ir.buffers import D_X, BufferRef, Role, X
from ..plan.program import Plan
from . import allocator
from .arena import Arena, Place
from .call import Ran, RowCall
from .call_template import WEIGHTS, ZEROS, Copy, LoopCall, addresses
from .kernel import Kernel
from .launch_plan import LaunchPlan, plan_rows
from .layout import Layout
from .weight_grads import MatrixGradientCall, MatrixGradients

_ADDRESS = Tensor.data_ptr


class BackwardResult(NamedTuple):
    """What a backward call leaves."""

    block: Tensor  # the memory of its arena
    dx: Tensor  # (rows, inputs): complete, or only what the loop itself stored
    pieces: list[Tensor]  # of the weights' gradients, for `WeightGradients`


class CpuLoopMemory:
    """The buffers of a backward loop, for the epilogue of the plan."""

    def __init__(self, launch: LaunchPlan, done: BackwardResult, layout: Layout):
        self.arena, self.block, self.rows = launch.arena, done.block, layout
        self.dx = done.dx if D_X in launch.widths else None
        self.dtype = self.sum_dtype = done.block.dtype

    def __contains__(self, buffer: BufferRef) -> bool:
        return buffer in self.arena.places or (buffer == D_X and self.dx is not None)

    def __getitem__(self, buffer: BufferRef) -> Tensor:
        if buffer == D_X and self.dx is not None:
            return self.dx
        return self.arena.view(self.block, buffer)

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


class BackwardCall:
    """Runs the backward kernel of a plan over one layout, then the sums over all steps and the gradient of x."""

    def __init__(
        self,
        plan: Plan,
        launch: LaunchPlan,
        kept: Arena,
        layout: Layout,
        sums: MatrixGradients,
        missing: Sequence[BufferRef],
        weights: Mapping[str, Tensor],
        ahead: Kernel | None,
        of_x: Kernel | None,
    ):
        """`kept`: the arena of what the forward call kept. `missing`: cotangents that are None, and read as zeros.
        `ahead`: runs before the loop on the rows of all steps; `of_x`: makes the gradient of x after it."""
        self.launch, self.dtype, self.gives_dx = launch, launch.kernel.dtype, of_x is not None
        self.dx = (layout.total, plan.forward.buffers[X].width) if D_X in launch.widths or self.gives_dx else (0,)
        # Addresses of a call: the packed weights, x, masks, initial states, results of the forward call (y, named
        # values, the kept arena), the cotangents that are not None, the call's own arena, dx.
        initial = [BufferRef.initial(state.name) for state in plan.states]
        inputs = [X, *map(BufferRef.mask, plan.masks), *initial, plan.output, *plan.named.values()]
        cotangents = [buffer for buffer in plan.cotangents() if buffer not in missing]
        kept_at = len(WEIGHTS) + len(inputs)
        arena_at = kept_at + 1 + len(cotangents)
        place = {buffer: i for i, buffer in enumerate(inputs, len(WEIGHTS))}
        place |= {buffer: i for i, buffer in enumerate(cotangents, kept_at + 1)} | {D_X: arena_at + 1}
        where = {buffer: (i, 0) for buffer, i in place.items()} | kept.at(kept_at) | launch.arena.at(arena_at)
        assert plan.backward is not None
        past = [buffer for buffer in plan.backward.buffers if buffer.role is Role.PAST]
        where |= {buffer: where[buffer.memory] for buffer in past}
        early = {buffer: place[BufferRef.initial(buffer.name)] for buffer in past}
        packed = launch.kernel.pack(weights, launch.split)
        relocations = [*WEIGHTS, *addresses(launch.binding, where, early)]
        carries = [*self._carries(plan, layout, where, place)]
        count = arena_at + 2
        self.loop = LoopCall(launch.kernel, packed, layout, launch.binding, count, relocations, before=carries)
        self.sums = MatrixGradientCall(sums, layout, where, early, count)
        self.ahead = None if ahead is None else RowCall(plan_rows(ahead, layout.total), count, where, weights)
        self.of_x = None if of_x is None else RowCall(plan_rows(of_x, layout.total), count, where, weights)
        shapes = [(launch.arena.numbers,), self.dx, *self.sums.shapes, (self.sums.scratch_numbers,)]
        self.allocate = allocator.Allocation(shapes, self.dtype)

    def _carries(
        self, plan: Plan, layout: Layout, where: Mapping[BufferRef, Place], place: Mapping[BufferRef, int]
    ) -> Iterator[Copy]:
        """A carry starts as the cotangent of the final state; of a delayed state as zeros, since the loop adds it."""
        states = {state.name: state for state in plan.states}
        for carry in plan.carries:
            state, (arena, start) = states[carry.name], where[carry]
            size = layout.rows * state.size * self.dtype.itemsize
            final = place.get(BufferRef.d_final(state.name))
            if final is None or state.delays:
                yield Copy(arena, start, ZEROS, 0, (carry.lag + 1) * size)
                continue
            for slot in range(carry.lag + 1):
                yield Copy(arena, start + slot * size, final, 0, size)

    def __call__(
        self,
        x: Tensor,
        masks: Sequence[Tensor],
        initial: Sequence[Tensor],
        ran: Ran,
        cotangents: Sequence[Tensor | None],
        weights: Mapping[str, Tensor],
    ) -> BackwardResult:
        assert ran.kept is not None
        block, dx, *results = self.allocate()
        present = [d for d in cotangents if d is not None]
        given = x, *masks, *initial, ran.y, *ran.named, ran.kept, *present, block, dx
        # Python work comes before the loop: after it, what Python reads is no longer in the cache.
        scratch = [*map(torch.zeros_like, self.loop.scratch)]
        packed = self.launch.kernel.pack(weights, self.launch.split)
        places = *packed.addresses, *map(_ADDRESS, given)
        first, then = self.loop.pack(*places, *map(_ADDRESS, scratch)), self.sums.pack(*places, *map(_ADDRESS, results))
        if self.ahead is not None:
            self._run_rows(self.ahead, weights, given)
        self.loop.run(first)
        if len(results) > 1:
            self.sums.run(then)
        if self.of_x is not None:
            self._run_rows(self.of_x, weights, given)
        totals = self.launch.kernel.totals(scratch[0] if self.launch.kernel.sums_stride else None)
        return BackwardResult(block, dx, [*results[:-1], totals])

    def _run_rows(self, call: RowCall, weights: Mapping[str, Tensor], tensors: tuple[Tensor, ...]) -> None:
        call(call.launch.kernel.pack(weights, call.launch.split), tensors)
