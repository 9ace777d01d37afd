"""A forward call, prepared once for a layout: dense or ragged batches and single steps, with masks and named values.

Per call only addresses are patched. Weights are packed again if they hold other numbers than before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ...cell import State
from ..ir.buffers import BufferRef, X
from ..plan.program import Plan
from . import allocator
from .arena import Arena, Place
from .call_template import WEIGHTS, Copy, LoopCall, addresses
from .launch_plan import LaunchPlan
from .layout import Layout
from .packing import Packed

_ADDRESS, _EMPTY_LIKE = Tensor.data_ptr, torch.empty_like


class Ran(NamedTuple):
    """The results of a forward call."""

    y: Tensor  # (T, B, size) for a dense layout, else (rows of all steps, size)
    finals: tuple[Tensor, ...]
    named: Sequence[Tensor]  # in the layout of y
    kept: Tensor | None  # in training: one arena of the state histories other than y, and of what the plan keeps


class RowCall:
    """A kernel over the rows of all steps, with the arguments of a forward or backward call."""

    def __init__(self, launch: LaunchPlan, count: int, where: Mapping[BufferRef, Place], weights: Mapping[str, Tensor]):
        """`count`: how many arguments the call has; the kernel's own memory is one more."""
        self.launch, kernel = launch, launch.kernel
        self.allocate = allocator.Allocation([(max(1, launch.arena.numbers),)], kernel.dtype)
        relocations = [*WEIGHTS, *addresses(launch.binding, {**where, **launch.arena.at(count)})]
        packed = kernel.pack(weights, launch.split)
        self.loop = LoopCall(kernel, packed, launch.layout, launch.binding, count + 1, relocations)

    def __call__(self, packed: Packed, tensors: tuple[Tensor, ...]) -> None:
        run_loop(self.loop, packed, (*tensors, *self.allocate()))


class ForwardCall:
    """Runs the forward kernels of a plan over one layout."""

    def __init__(
        self,
        plan: Plan,
        launch: LaunchPlan,
        kept: Arena | None,
        layout: Layout,
        weights: Mapping[str, Tensor],
        single_step: bool = False,
    ):
        """`kept`: the arena of what backward reads. `single_step`: y is (B, size) instead of (1, B, size)."""
        self.launch, self.kept, self.dtype = launch, kept, launch.kernel.dtype
        self.has_delays = any(state.delays for state in plan.states)
        self.shapes = [(layout.rows, width) if single_step else layout.shape(width) for width in launch.widths.values()]
        self.shapes += [(launch.arena.numbers,)] if launch.arena.numbers else []
        self.shapes += [] if kept is None else [(kept.numbers,)]
        self.allocate = allocator.Allocation(self.shapes, self.dtype)
        # Addresses of a call: the packed weights, x, masks, initial states, outputs, arenas, final states.
        initial = [BufferRef.initial(state.name) for state in plan.states]
        buffers = [X, *map(BufferRef.mask, plan.masks), *initial, *launch.widths]
        place = {buffer: i for i, buffer in enumerate(buffers, len(WEIGHTS))}
        where = {buffer: (i, 0) for buffer, i in place.items()}
        arena = kept_arena = finals = len(WEIGHTS) + len(buffers)
        if launch.arena.numbers:
            where |= launch.arena.at(arena)
            kept_arena = finals = arena + 1
        if kept is not None:
            where |= kept.at(kept_arena)
            finals = kept_arena + 1
        early = {BufferRef.state(name): place[BufferRef.initial(name)] for name in (s.name for s in plan.states)}
        if has_only_finals(plan, layout):
            copies = self._write_finals(plan, layout, where, finals)
        else:
            copies = self._gather_finals(plan, layout, where, early, finals)
        count = finals + len(plan.states)
        self.loop, self.ahead = self._loop(launch, count, where, early, weights, copies), None
        if launch.ahead is not None:
            self.ahead = RowCall(launch.ahead, count, where, weights)
        self.after = None if launch.after is None else RowCall(launch.after, count, where, weights)
        launches = {"loop": launch, "ahead": launch.ahead, "after": launch.after}
        self.packs = [(each.kernel.pack, each.split) for each in launches.values() if each is not None]

    def _write_finals(self, plan: Plan, layout: Layout, where: dict[BufferRef, Place], finals: int) -> list[Copy]:
        """Let the kernel write new states where the caller reads them. If y is one of them, it is a copy: writing to y
        must not change the state."""
        copies = []
        for i, state in enumerate(plan.states):
            buffer, size = BufferRef.state(state.name), layout.rows * state.size * self.dtype.itemsize
            if buffer == plan.output:
                copies.append(Copy(where[buffer][0], 0, finals + i, 0, size))
            where[buffer] = finals + i, 0
        return copies

    def _gather_finals(
        self,
        plan: Plan,
        layout: Layout,
        where: Mapping[BufferRef, Place],
        early: Mapping[BufferRef, int],
        finals: int,
    ) -> list[Copy]:
        copies = []
        for i, state in enumerate(plan.states):
            buffer = BufferRef.state(state.name)
            is_ring = buffer in self.launch.rings
            rows = _StateRows(state, layout, where[buffer], is_ring, (early[buffer], 0), self.dtype)
            copies += rows.final_copies(finals + i)
        return copies

    def _loop(
        self,
        launch: LaunchPlan,
        count: int,
        where: Mapping[BufferRef, Place],
        early: Mapping[BufferRef, int],
        weights: Mapping[str, Tensor],
        copies: Sequence[Copy] = (),
    ) -> LoopCall:
        relocations = [*WEIGHTS, *addresses(launch.binding, where, early)]
        packed = launch.kernel.pack(weights, launch.split)
        return LoopCall(launch.kernel, packed, launch.layout, launch.binding, count, relocations, after=copies)

    @property
    def reads_in_place(self) -> bool:
        """Whether the kernel reads all weights where they are: nothing is packed."""
        return self.launch.split.in_place and not self.launch.kernel.pack.copied

    def pack(self, weights: Mapping[str, Tensor]) -> list[Packed]:
        """The packed weights of each kernel, made again only if they hold other numbers than before."""
        return [pack(weights, split) for pack, split in self.packs]

    def __call__(
        self,
        x: Tensor,
        masks: Sequence[Tensor],
        states: Sequence[Tensor],
        packed: Sequence[Packed],
        padded_numbers: int | None = None,
    ) -> Ran:
        """Final states have the shapes of `states`. `padded_numbers`: the size of the kept arena, if it must not depend
        on the layout."""
        initial = map(by_slot, states) if self.has_delays else states
        outputs, finals = self.run((x, *masks, *initial), states, packed, padded_numbers)
        named = outputs[1 : len(self.launch.widths)]
        if self.kept is None:
            return Ran(outputs[0], finals, named, None)
        if padded_numbers is not None:
            self.kept.clear_gaps(outputs[-1])
        return Ran(outputs[0], finals, named, outputs[-1])

    def run(
        self,
        inputs: tuple[Tensor, ...],
        states: Sequence[Tensor],
        packed: Sequence[Packed],
        padded_numbers: int | None = None,
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """(y, named values, arenas) and the final states. `inputs`: x, masks, initial states."""
        outputs = self.allocate()
        if padded_numbers is not None:
            outputs = (*outputs[:-1], allocator.empty((padded_numbers,), self.dtype))
        finals = (*map(_EMPTY_LIKE, states),)
        tensors = inputs + outputs + finals
        if self.ahead is not None:
            self.ahead(packed[1], tensors)
        run_loop(self.loop, packed[0], tensors)
        if self.after is not None:
            self.after(packed[-1], tensors)
        return outputs, finals


def has_only_finals(plan: Plan, layout: Layout) -> bool:
    """Whether the new states of a call are its final ones: the kernel writes them where the caller reads them."""
    one_step = layout.steps == 1 and layout.active is None
    return one_step and plan.backward is None and not any(state.delays for state in plan.states)


def run_loop(loop: LoopCall, packed: Packed, tensors: tuple[Tensor, ...]) -> None:
    if loop.scratch:
        tensors += (*map(torch.zeros_like, loop.scratch),)  # alive until the loop is done
    loop.run(loop.pack(*packed.addresses, *map(_ADDRESS, tensors)))


def by_slot(initial: Tensor) -> Tensor:
    """A delayed state (B, depth, size), newest first → (depth, B, size); others as they are."""
    return initial.transpose(0, 1).contiguous() if initial.dim() == 3 else initial


@dataclass(frozen=True)
class _StateRows:
    """Where the values of a state lie during a call: those of the steps, and those before the first."""

    state: State
    layout: Layout
    steps: Place
    is_ring: bool  # the last few steps alone
    initial: Place  # (depth, B, size), newest first
    dtype: torch.dtype

    def final_copies(self, target: int) -> list[Copy]:
        """Copies that gather each sequence's last values, newest first, into (B, size) or (B, depth, size)."""
        state, layout = self.state, self.layout
        size, depth = state.size * self.dtype.itemsize, state.depth
        if layout.active is None and not state.delays:
            return [self._copy(target, 0, layout.steps - 1, 0, layout.rows, size)]
        ends = layout.ends().tolist()
        copies = []
        for first, count in _runs(ends) if depth == 1 else ((row, 1) for row in range(layout.rows)):
            for slot in range(depth):
                to = (first * depth + slot) * size
                copies.append(self._copy(target, to, ends[first] - 1 - slot, first, count, size))
        return copies

    def _copy(self, target: int, to: int, step: int, row: int, count: int, size: int) -> Copy:
        """Of `count` rows at a step, which may lie before the first one."""
        rows = self.layout.rows
        if step < 0:
            source, offset = self.initial
            return Copy(target, to, source, offset + ((-1 - step) * rows + row) * size, count * size)
        source, offset = self.steps
        first = step % (self.state.depth + 1) * rows if self.is_ring else int(self.layout.starts[step])
        return Copy(target, to, source, offset + (first + row) * size, count * size)


def _runs(values: list[int]) -> Iterator[tuple[int, int]]:
    """(first index, count) of each stretch of equal values."""
    first = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[first]:
            yield first, index - first
            first = index
