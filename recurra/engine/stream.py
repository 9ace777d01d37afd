"""Streaming: one step of one cell without gradients, past everything a whole sequence needs.

The call is prepared once and kept with what is known of the cell. It is good for as long as the cell is made of the
same parts and no weight has another version; else it is prepared again.
"""

import ctypes
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from ..cell import Cell
from . import compiled
from .cpu import Compiled
from .kernel import BEFORE
from .known import known
from .layout import dense
from .modes import unseen
from .scan import Sequences, _setting, choose, must_be_seen
from .ways import forward_way


def step(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]] | None:
    """The output (B, n) and the new states, each (1, B, size); None where only the general way will do."""
    if torch.is_grad_enabled() or not x.is_cpu or must_be_seen(x):
        return None
    parts, rows = known(cell), x.size(0)
    stream = parts.streams.get((rows, x.dtype))
    if stream is None or not stream.is_good():
        stream = prepare(cell, x)
        if stream is None:
            return None
        parts.streams[rows, x.dtype] = stream
    if states is None:
        return stream(x, stream.start)
    return stream(x, states) if suit(states, stream.shapes, x) else None


def suit(states: Sequence[Tensor], shapes: Sequence[Sequence[int]], like: Tensor) -> bool:
    """Whether given states are what they should be."""
    if len(states) != len(shapes):
        return False
    dtype, device = like.dtype, like.get_device()
    for state, shape in zip(states, shapes, strict=True):
        if type(state) is not Tensor or state.shape != shape or state.dtype != dtype or state.get_device() != device:
            return False
    return True


@unseen
def prepare(cell: Cell, x: Tensor) -> "Stream | None":
    if cell.masks or any(s.delays for s in cell.carried):
        return None
    choice = choose(cell, Sequences(x[None], cell.initial_state(x.shape[0], x), {}))
    made = compiled.PLANS.get(choice.key)
    if choice.backend != "compiled" or not isinstance(made, Compiled) or made.dtype != x.dtype:
        return None
    weights = known(cell).weights
    derived = weights is None or any(name.startswith("=") for name in made.weight_names)
    if derived or any(w.is_inference() for w in weights.values()):
        return None
    return Stream(cell, made, x, weights)


class Stream:
    """A prepared call of the forward kernel for one step of some rows."""

    def __init__(self, cell: Cell, made: Compiled, x: Tensor, weights: dict[str, Tensor]):
        self.weights = list(weights.values())
        self.versions, self.addresses = _versions(self.weights), _addresses(self.weights)
        self.conditions = (_setting["backend"], torch.get_num_threads())
        self.rows, self.dtype = x.shape[0], x.dtype
        self.start = [s.contiguous()[None] for s in cell.initial_state(self.rows, x)]
        self.shapes = [start.shape for start in self.start]
        self.kernel, layout = made.forward_kernel, dense(1, self.rows)
        way = forward_way(made.plan, self.kernel, layout, whole=lambda state: True)
        self.packed = self.kernel.pack({name: weights[name] for name in made.weight_names}, way.split)
        self.fixed, self.binding = self.kernel.fixed(self.packed, layout), way.binding
        self._lay_out(made)

    def _lay_out(self, made: Compiled) -> None:
        """What the kernel writes: the states, then the rest; and where it is told of them."""
        states = [state.name for state in made.plan.states]
        rest = [name for name in self.kernel.tables.buffers if name not in ("x", *states)]
        written, buffers = [*states, *rest], self.kernel.schedule.buffers
        others = [torch.empty(self.rows, buffers[name].width, dtype=self.dtype) for name in rest]
        self.like = [*map(torch.empty_like, self.start), *others]
        self.output = written.index(made.plan.output)
        self.output_is_state = self.output < len(states)
        self.output_like = self.like[self.output].view(self.rows, -1).clone()
        self.output_bytes = self.output_like.nbytes
        self.place_of_x = self.binding.place("x")
        self.places = [self.binding.place(name) for name in written]

    def is_good(self) -> bool:
        """Whether nothing was written into the weights since."""
        return (
            _versions(self.weights) == self.versions
            and _addresses(self.weights) == self.addresses
            and self.conditions == (_setting["backend"], torch.get_num_threads())
        )

    def __call__(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        x, old = x.contiguous(), [state.contiguous() for state in states]
        rooms = [torch.empty_like(like) for like in self.like]
        numbers = self.binding.numbers[:]
        numbers[self.place_of_x] = x.data_ptr()
        for place, room in zip(self.places, rooms, strict=True):
            numbers[place] = room.data_ptr()
        for place, state in zip(self.places, old, strict=False):  # the states come first
            numbers[place + BEFORE] = state.data_ptr()
        self.kernel.launch(self.packed, self.fixed, numbers)
        y = rooms[self.output]
        if self.output_is_state:  # writing to the output must not change the state
            y = torch.empty_like(self.output_like)
            ctypes.memmove(y.data_ptr(), rooms[self.output].data_ptr(), self.output_bytes)
        return y, rooms[: len(old)]


def _versions(weights: list[Tensor]) -> list[int]:
    return list(map(_VERSION, weights))


def _addresses(weights: list[Tensor]) -> list[int]:
    return list(map(Tensor.data_ptr, weights))


_VERSION = attrgetter("_version")
