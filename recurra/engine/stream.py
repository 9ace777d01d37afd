"""Streaming: one step of one cell without gradients, past everything a whole sequence needs.

The call is prepared once and kept with what is known of the cell. It is good for as long as the cell is made of the
same parts and no weight has another version; else it is prepared again.
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from ..cell import Cell
from . import compiled
from .cpu import Compiled
from .known import known
from .layout import dense
from .scan import Sequences, _setting, choose, transformed
from .ways import forward_way


def step(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]] | None:
    """The output (B, n) and the new states, each (1, B, size); None where only the general way will do."""
    if torch.is_grad_enabled() or _watched(x):
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
    return stream(x, states) if stream.takes(states) else None


def _watched(x: Tensor) -> bool:
    """Whether somebody must see the operations, or the numbers are not the CPU's."""
    apart = not x.is_cpu or torch.is_autocast_enabled("cpu") or torch.jit.is_tracing()
    return apart or compiled.watched((x,)) or transformed()


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
        self.weights = [(weight, weight._version, weight.data_ptr()) for weight in weights.values()]
        self.conditions = (_setting["backend"], torch.get_num_threads())
        self.rows, self.dtype = x.shape[0], x.dtype
        self.start = [s.contiguous()[None] for s in cell.initial_state(self.rows, x)]
        self.kernel, layout = made.forward_kernel, dense(1, self.rows)
        way = forward_way(made.plan, self.kernel, layout, whole=lambda state: True)
        self.packed = self.kernel.pack({name: weights[name] for name in made.weight_names}, way.split)
        self.fixed, self.binding = self.kernel.fixed(self.packed, layout), way.binding
        self._lay_out(made)

    def _lay_out(self, made: Compiled) -> None:
        """What the kernel writes: the states, then the rest."""
        self.states = [state.name for state in made.plan.states]
        self.shapes = [(1, self.rows, state.size) for state in made.plan.states]
        buffers = self.kernel.schedule.buffers
        rest = [name for name in self.kernel.tables.buffers if name not in ("x", *self.states)]
        self.written = [*self.states, *rest]
        self.rooms = [*self.shapes, *((self.rows, buffers[name].width) for name in rest)]
        self.output = self.written.index(made.plan.output)
        self.output_shape = self.rooms[self.output][-2:]
        self.output_bytes = self.rows * self.output_shape[1] * self.dtype.itemsize

    def is_good(self) -> bool:
        """Whether nothing was written into the weights since."""
        for weight, version, address in self.weights:
            if weight._version != version or weight.data_ptr() != address:
                return False
        return self.conditions == (_setting["backend"], torch.get_num_threads())

    def takes(self, states: Sequence[Tensor]) -> bool:
        if len(states) != len(self.shapes):
            return False
        for state, shape in zip(states, self.shapes, strict=True):
            if type(state) is not Tensor or state.shape != shape or state.dtype != self.dtype or not state.is_cpu:
                return False
        return True

    def __call__(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        x, old = x.contiguous(), [s.contiguous() for s in states]
        rooms = [torch.empty(shape, dtype=self.dtype) for shape in self.rooms]
        addresses = {"x": x.data_ptr()}
        for name, room in zip(self.written, rooms, strict=True):
            addresses[name] = room.data_ptr()
        numbers = self.binding(addresses, dict(zip(self.states, old, strict=True)))
        self.kernel.launch(self.packed, self.fixed, numbers)
        new, y = rooms[: len(old)], rooms[self.output]
        if self.output < len(old):  # writing to the output must not change the state
            y = torch.empty(self.output_shape, dtype=self.dtype)
            ctypes.memmove(y.data_ptr(), rooms[self.output].data_ptr(), self.output_bytes)
        return y, new
