"""A forward call, prepared once for a layout: dense or ragged batches and single steps, with masks and named values.

Per call only addresses are patched. Weights are packed again if they hold other numbers than before.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
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
from .layout import Layout, dense
from .packing import Packed

_ADDRESS = Tensor.data_ptr


class Ran(NamedTuple):
    """The results of a forward call."""

    y: Tensor  # (T, B, size) for a dense layout, else (rows of all steps, size)
    finals: tuple[Tensor, ...]
    named: Sequence[Tensor]  # in the layout of y
    kept: Tensor | None  # in training: one arena of the state histories other than y, and of what the plan keeps


class ForwardCall:
    """Runs the forward kernels of a plan over one layout."""

    def __init__(
        self,
        plan: Plan,
        way: LaunchPlan,
        kept: Arena | None,
        layout: Layout,
        weights: Mapping[str, Tensor],
        single_step: bool = False,
    ):
        """`kept`: the arena of what backward reads. `single_step`: y is (B, size) instead of (1, B, size)."""
        self.way, self.kept, self.dtype = way, kept, way.kernel.dtype
        self.has_delays = any(state.delays for state in plan.states)
        self.shapes = [(layout.rows, width) if single_step else layout.shape(width) for width in way.widths.values()]
        self.like = self._templates()
        # Addresses of a call: the packed weights, x, masks, initial states, outputs, the two arenas, final states.
        initial = [BufferRef.initial(state.name) for state in plan.states]
        buffers = [X, *map(BufferRef.mask, plan.masks), *initial, *way.widths]
        place = {buffer: i for i, buffer in enumerate(buffers, len(WEIGHTS))}
        arena = len(WEIGHTS) + len(buffers)
        where = {buffer: (i, 0) for buffer, i in place.items()} | way.arena.at(arena)
        where |= {} if kept is None else kept.at(arena + 1)
        early = {BufferRef.state(name): place[BufferRef.initial(name)] for name in (s.name for s in plan.states)}
        finals = arena + 2
        copies = []
        for i, state in enumerate(plan.states):
            buffer = BufferRef.state(state.name)
            source = _StateRows(state, layout, where[buffer], where[buffer][0] == arena, (early[buffer], 0), self.dtype)
            copies += source.final_copies(finals + i)
        count = finals + len(plan.states)
        relocations = [*WEIGHTS, *addresses(way.binding, where, early)]
        packed = way.kernel.pack(weights, way.split)
        self.loop = LoopCall(way.kernel, packed, layout, way.binding, count, relocations, after=copies)
        self.ahead = None
        if (first := way.ahead) is not None:
            packed, rows = first.kernel.pack(weights, first.split), dense(1, layout.total)
            relocations = [*WEIGHTS, *addresses(first.binding, where)]
            self.ahead = LoopCall(first.kernel, packed, rows, first.binding, count, relocations)

    def _templates(self) -> list[Tensor] | None:
        """Tensors like the outputs and arenas, of one number each; None if they come from the allocator's pool."""
        shapes = self._shapes(0 if self.kept is None else self.kept.numbers)
        if max(map(prod, shapes)) * self.dtype.itemsize >= allocator.SMALL:
            return None
        return [torch.empty(1, dtype=self.dtype).expand(shape) for shape in shapes]

    def _shapes(self, kept_numbers: int) -> list[tuple[int, ...]]:
        return [*self.shapes, (self.way.arena.numbers,), (kept_numbers,)]

    @property
    def reads_in_place(self) -> bool:
        """Whether the kernel reads all weights where they are: nothing is packed."""
        return self.way.split.in_place and not self.way.kernel.pack.copied

    def pack(self, weights: Mapping[str, Tensor]) -> list[Packed]:
        """The packed weights of each kernel, made again only if they hold other numbers than before."""
        ways = [self.way] if self.way.ahead is None else [self.way, self.way.ahead]
        return [way.kernel.pack(weights, way.split) for way in ways]

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
        initial = [*map(by_slot, states)] if self.has_delays else states
        outputs = self._allocate(padded_numbers)
        finals = (*map(torch.empty_like, states),)
        addresses = [*map(_ADDRESS, (x, *masks, *initial, *outputs, *finals))]
        if self.ahead is not None:
            _run(self.ahead, packed[1], addresses)
        _run(self.loop, packed[0], addresses)
        if self.kept is None:
            return Ran(outputs[0], finals, outputs[1 : len(self.shapes)], None)
        if padded_numbers is not None:
            self.kept.clear_gaps(outputs[-1])
        return Ran(outputs[0], finals, outputs[1 : len(self.shapes)], outputs[-1])

    def _allocate(self, padded_numbers: int | None) -> list[Tensor]:
        """Memory for the outputs, the call's own arena and the kept one."""
        if self.like is not None and padded_numbers is None:
            return [*map(torch.empty_like, self.like)]
        numbers = 0 if self.kept is None else self.kept.numbers if padded_numbers is None else padded_numbers
        return [allocator.empty(shape, self.dtype) for shape in self._shapes(numbers)]


def _run(loop: LoopCall, packed: Packed, given: Sequence[int]) -> None:
    scratch = map(_ADDRESS, kept) if (kept := [*map(torch.zeros_like, loop.scratch)]) else ()
    loop.run(loop.pack(packed.vector_list[1], packed.pack_list[1], *given, *scratch))


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
