"""A whole batch of equally long sequences: a call that is prepared once for a layout.

What differs from one to the next are weights, which are packed where they are new, and addresses.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import workspace
from .again import BUFFERS, PACKS, VECTORS, Again, Copy, Patch
from .kernel import BEFORE
from .layout import Layout, dense
from .memory import Shelf
from .plan import Plan
from .ways import Way

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
        where = {"x": (x, 0), plan.output: (output, 0)} | _places(way.shelf, shelf)
        where |= {} if kept is None else _places(kept, kept_shelf)
        words, patches, copies = _words(way), _patches(way, where), []
        for i, state in enumerate(plan.states):
            if state.name in words:
                patches.append(Patch(words[state.name] + BEFORE, before + i))
            given, offset = where[state.name]
            slots = state.depth + 1 if given == shelf else layout.steps  # of a ring, or of all
            rows = layout.rows * state.size * self.dtype.itemsize
            copies.append(Copy(finals + i, given, offset + (layout.steps - 1) % slots * rows, rows))
        packed = way.kernel.pack(weights, way.split)
        self.loop = Again(way.kernel, packed, layout, way.binding, finals + len(plan.states), patches, copies)
        self.ahead = None
        if (first := way.ahead) is not None:
            packed, rows = first.kernel.pack(weights, first.split), dense(1, layout.total)
            self.ahead = Again(first.kernel, packed, rows, first.binding, before, _patches(first, where), [])

    def __call__(self, x: Tensor, states: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Ran:
        """The final states are shaped as those before."""
        y = workspace.empty(self.shape, self.dtype)
        numbers = self.way.shelf.numbers
        shelf = workspace.empty((numbers,), self.dtype) if numbers else y  # which is never looked at
        kept = None if self.kept is None else workspace.empty((self.kept.numbers,), self.dtype)
        finals, given = (*map(torch.empty_like, states),), (x, y, shelf, y if kept is None else kept)
        if self.ahead is not None and self.way.ahead is not None:
            _run(self.ahead, self.way.ahead, weights, given)
        _run(self.loop, self.way, weights, (*given, *states, *finals))
        return Ran(y, finals, (), kept)


def _places(shelf: Shelf, given: int) -> dict[str, tuple[int, int]]:
    """Where the buffers on a shelf lie: which address that is given, and how many bytes further on."""
    return {name: (given, first * shelf.dtype.itemsize) for name, (first, _, _) in shelf.places.items()}


def _words(way: Way) -> dict[str, int]:
    """Where the address of each buffer stands in a call."""
    return {name: BUFFERS + way.binding.place(name) for name in way.binding.names}


def _patches(way: Way, where: Mapping[str, tuple[int, int]]) -> list[Patch]:
    """The packed weights, and the buffers."""
    return [Patch(VECTORS, 0), Patch(PACKS, 1), *(Patch(word, *where[name]) for name, word in _words(way).items())]


def _run(call: Again, way: Way, weights: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    packed, scratch = way.kernel.pack(weights, way.split), [*map(torch.zeros_like, call.scratch)]
    call.run(call.pack(packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, (*given, *scratch))))
