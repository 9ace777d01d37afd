"""A whole batch of equally long sequences without gradients: a call that is prepared once for a layout.

What differs from one to the next are weights, which are packed where they are new, and addresses.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from . import workspace
from .again import BUFFERS, PACKS, VECTORS, Again, Copy, Patch
from .hoist import Hoisted
from .kernel import BEFORE
from .layout import Layout
from .memory import Buffers
from .plan import Plan
from .ways import Way

_ADDRESS = Tensor.data_ptr


class Inference:
    def __init__(self, plan: Plan, way: Way, hoisted: Hoisted | None, layout: Layout, weights: Mapping[str, Tensor]):
        """`hoisted`: the products with x that are made before the loop."""
        self.way, self.hoisted, self.dtype = way, hoisted, way.kernel.dtype
        self.shape = layout.shape(way.widths[plan.output])
        # Given are the lists of packed weights, x, the states before, the output, the shelf, the final states.
        x, before, output = 2, 3, 3 + len(plan.states)
        shelf, finals = output + 1, output + 2
        size, binding = self.dtype.itemsize, way.binding
        words = {name: BUFFERS + binding.place(name) for name in binding.names}
        where = {"x": (x, 0), plan.output: (output, 0)}
        where |= {name: (shelf, first * size) for name, (first, _, _) in way.shelf.places.items()}
        patches = [Patch(VECTORS, 0), Patch(PACKS, 1), *(Patch(word, *where[name]) for name, word in words.items())]
        copies = []
        for i, state in enumerate(plan.states):
            if state.name in words:
                patches.append(Patch(words[state.name] + BEFORE, before + i))
            given, offset = where[state.name]
            last = (layout.steps - 1) % (layout.steps if given == output else state.depth + 1)  # of all, or of a ring
            rows = layout.rows * state.size * size
            copies.append(Copy(finals + i, given, offset + last * rows, rows))
        packed = way.kernel.pack(weights, way.split)
        again = Again(way.kernel, packed, layout, binding, finals + len(plan.states), patches, copies)
        self.scratch, self.run, self.pack, self.alive = again.scratch, again.run, again.pack, again.alive

    def __call__(
        self, x: Tensor, states: Sequence[Tensor], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """The output (T, B, n) and the final states."""
        y, shelf = workspace.empty(self.shape, self.dtype), workspace.empty((self.way.shelf.numbers,), self.dtype)
        if self.hoisted is not None:
            buffers = Buffers()
            buffers.put("x", x)
            buffers.lay_out(self.way.shelf, shelf)
            self.hoisted.fill(buffers, weights)
        packed = self.way.kernel.pack(weights, self.way.split)
        finals, scratch = [*map(torch.empty_like, states)], [*map(torch.zeros_like, self.scratch)]
        addresses = map(_ADDRESS, (x, *states, y, shelf, *finals, *scratch))
        self.run(self.pack(packed.vector_list[1], packed.pack_list[1], *addresses))
        return y, finals
