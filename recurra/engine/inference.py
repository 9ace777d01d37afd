"""A whole batch of equally long sequences without gradients: a call that is prepared once for a layout.

What differs from one to the next are weights, which are packed where they are new, and addresses.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from . import workspace
from .again import BUFFERS, PACKS, VECTORS, Again, Copy, Patch
from .kernel import BEFORE
from .layout import Layout, dense
from .plan import Plan
from .ways import Way

_ADDRESS = Tensor.data_ptr


class Inference:
    def __init__(self, plan: Plan, way: Way, layout: Layout, weights: Mapping[str, Tensor]):
        self.way, self.dtype = way, way.kernel.dtype
        self.shape = layout.shape(way.widths[plan.output])
        # Given are the lists of packed weights, x, the output, the shelf, the states before, the final states.
        x, output, shelf, before, finals = 2, 3, 4, 5, 5 + len(plan.states)
        size = self.dtype.itemsize
        where = {"x": (x, 0), plan.output: (output, 0)}
        where |= {name: (shelf, first * size) for name, (first, _, _) in way.shelf.places.items()}
        words, patches = _words(way), _patches(way, where)
        copies = []
        for i, state in enumerate(plan.states):
            if state.name in words:
                patches.append(Patch(words[state.name] + BEFORE, before + i))
            given, offset = where[state.name]
            last = (layout.steps - 1) % (layout.steps if given == output else state.depth + 1)  # of all, or of a ring
            rows = layout.rows * state.size * size
            copies.append(Copy(finals + i, given, offset + last * rows, rows))
        packed = way.kernel.pack(weights, way.split)
        self.loop = Again(way.kernel, packed, layout, way.binding, finals + len(plan.states), patches, copies)
        self.ahead = None
        if (first := way.ahead) is not None:
            packed, rows = first.kernel.pack(weights, first.split), dense(1, layout.total)
            self.ahead = Again(first.kernel, packed, rows, first.binding, before, _patches(first, where), [])

    def __call__(
        self, x: Tensor, states: Sequence[Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The output (T, B, n) and the final states, shaped as those before."""
        y, shelf = workspace.empty(self.shape, self.dtype), workspace.empty((self.way.shelf.numbers,), self.dtype)
        finals, given = (*map(torch.empty_like, states),), (x, y, shelf)
        if self.ahead is not None and self.way.ahead is not None:
            _run(self.ahead, self.way.ahead, weights, given)
        _run(self.loop, self.way, weights, (*given, *states, *finals))
        return y, finals


def _words(way: Way) -> dict[str, int]:
    """Where the address of each buffer stands in a call."""
    return {name: BUFFERS + way.binding.place(name) for name in way.binding.names}


def _patches(way: Way, where: Mapping[str, tuple[int, int]]) -> list[Patch]:
    """The packed weights, and the buffers."""
    return [Patch(VECTORS, 0), Patch(PACKS, 1), *(Patch(word, *where[name]) for name, word in _words(way).items())]


def _run(call: Again, way: Way, weights: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    packed, scratch = way.kernel.pack(weights, way.split), [*map(torch.zeros_like, call.scratch)]
    call.run(call.pack(packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, (*given, *scratch))))
