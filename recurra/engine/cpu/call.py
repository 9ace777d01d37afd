"""A forward pass over a whole batch of equally long sequences, prepared once for a layout.

What differs from one to the next are weights, which are packed where they are new, and addresses.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..ir.buffers import BufferRef, X
from ..plan.program import Plan
from . import allocator
from .arena import Shelf
from .call_template import WEIGHTS, Copy, Loop, addresses
from .launch_plan import Way
from .layout import Layout, dense

_ADDRESS = Tensor.data_ptr


class Ran(NamedTuple):
    """What a forward pass leaves behind."""

    y: Tensor  # (T, B, size) if all sequences are equally long, else (rows of all steps, size)
    finals: Sequence[Tensor]
    named: Sequence[Tensor]  # laid out as y is
    kept: Tensor | None  # in training: the histories of the states that are not y and what the plan keeps, on one shelf


class Prepared:
    def __init__(self, plan: Plan, way: Way, kept: Shelf | None, layout: Layout, weights: Mapping[str, Tensor]):
        self.way, self.kept, self.dtype = way, kept, way.kernel.dtype
        self.shape = layout.shape(way.widths[plan.output])
        # Given are the lists of packed weights, x, the output, the two shelves, the states before, the final states.
        x, output, shelf, kept_shelf, before, finals = 2, 3, 4, 5, 6, 6 + len(plan.states)
        where = {X: (x, 0), plan.output: (output, 0)} | way.shelf.at(shelf)
        where |= {} if kept is None else kept.at(kept_shelf)
        copies = []
        for i, state in enumerate(plan.states):
            given, offset = where[BufferRef.state(state.name)]
            slots = state.depth + 1 if given == shelf else layout.steps  # of a ring, or of all
            rows = layout.rows * state.size * self.dtype.itemsize
            copies.append(Copy(finals + i, 0, given, offset + (layout.steps - 1) % slots * rows, rows))
        early = {BufferRef.state(state.name): before + i for i, state in enumerate(plan.states)}
        patches, count = [*WEIGHTS, *addresses(way.binding, where, early)], finals + len(plan.states)
        packed = way.kernel.pack(weights, way.split)
        self.loop = Loop(way.kernel, packed, layout, way.binding, count, patches, after=copies)
        self.ahead = None
        if (first := way.ahead) is not None:
            packed, rows = first.kernel.pack(weights, first.split), dense(1, layout.total)
            patches = [*WEIGHTS, *addresses(first.binding, where)]
            self.ahead = Loop(first.kernel, packed, rows, first.binding, before, patches)

    def __call__(self, x: Tensor, states: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Ran:
        """The final states are shaped as those before."""
        y = allocator.empty(self.shape, self.dtype)
        numbers = self.way.shelf.numbers
        shelf = allocator.empty((numbers,), self.dtype) if numbers else y  # which is never looked at
        kept = None if self.kept is None else allocator.empty((self.kept.numbers,), self.dtype)
        finals, given = (*map(torch.empty_like, states),), (x, y, shelf, y if kept is None else kept)
        if self.ahead is not None and self.way.ahead is not None:
            _run(self.ahead, self.way.ahead, weights, given)
        _run(self.loop, self.way, weights, (*given, *states, *finals))
        return Ran(y, finals, (), kept)


def _run(loop: Loop, way: Way, weights: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    packed, scratch = way.kernel.pack(weights, way.split), [*map(torch.zeros_like, loop.scratch)]
    loop.run(loop.pack(packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, (*given, *scratch))))
