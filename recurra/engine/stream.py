"""Streaming: one step of one cell without gradients, past everything a whole sequence needs.

The call is prepared once and kept with the cell. It is good for as long as every weight is the same tensor with the
same version, and every plain attribute of the cell has the same value; else it is prepared again.
"""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ..cell import Cell
from . import compiled
from .cpu import Compiled
from .layout import dense
from .scan import Sequences, _setting, choose

_STREAMS: WeakKeyDictionary[Cell, dict[tuple[int, torch.dtype], "Stream"]] = WeakKeyDictionary()

Entry = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], tuple[int, ...]]  # of (x, old states, new ones)


def step(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]] | None:
    """The output (B, n) and the new states, each (1, B, size); None where only the general way will do."""
    if torch.is_grad_enabled() or _watched(x):
        return None
    known = _STREAMS.get(cell)
    if known is None:
        known = _STREAMS[cell] = {}
    stream = known.get((x.shape[0], x.dtype))
    if stream is None or not stream.is_good(cell):
        stream = prepare(cell, x)
        if stream is None:
            return None
        known[x.shape[0], x.dtype] = stream
    if states is None:
        return stream(x, stream.start)
    return stream(x, states) if stream.takes(states) else None


def _watched(x: Tensor) -> bool:
    """Whether somebody must see the operations, or the numbers are not the CPU's."""
    return (
        type(x) is not Tensor
        or not x.is_cpu
        or torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
    )


def prepare(cell: Cell, x: Tensor) -> "Stream | None":
    if cell.masks or any(s.delays for s in cell.carried):
        return None
    choice = choose(cell, Sequences(x[None], cell.initial_state(x.shape[0], x), {}))
    made = compiled.PLANS.get(choice.key)
    if choice.backend != "compiled" or not isinstance(made, Compiled) or made.dtype != x.dtype:
        return None
    places = list(_places(cell))
    derived = any(name.startswith("=") for name in made.weight_names)
    if derived or any(w.is_inference() for _, _, w in places):
        return None
    return Stream(cell, made, x, places)


def _places(module: nn.Module) -> Any:
    """Every tensor of a module, as (the dictionary it is in, its name there, itself)."""
    for tensors in (module._parameters, module._buffers):
        yield from ((tensors, name, tensor) for name, tensor in tensors.items() if tensor is not None)
    for child in module._modules.values():
        if child is not None:
            yield from _places(child)


class Stream:
    """A prepared call of the forward kernel for one step of some rows."""

    def __init__(self, cell: Cell, made: Compiled, x: Tensor, places: list[tuple[dict, str, Tensor]]):
        self.places = [(*place, place[2]._version, place[2].data_ptr()) for place in places]
        self.attributes = len(vars(cell))
        self.plain = [(n, v) for n, v in vars(cell).items() if isinstance(v, (bool, int, float, str))]
        self.conditions = (_setting["backend"], torch.get_num_threads())
        self.rows, self.dtype = x.shape[0], x.dtype
        self.shapes = [(1, self.rows, s.size) for s in made.plan.states]
        self.start = [s.contiguous()[None] for s in cell.initial_state(self.rows, x)]
        self.kernel, self.layout = made.forward_kernel, dense(1, self.rows)
        given = cell.weights()
        split = self.kernel.split(self.layout, self.rows)
        self.packed = self.kernel.pack({n: given[n] for n in made.weight_names}, split)
        self._lay_out(made)

    def _lay_out(self, made: Compiled) -> None:
        """Where each buffer of the kernel comes from."""
        names, plan = [s.name for s in made.plan.states], made.plan
        buffers = self.kernel.schedule.buffers
        self.output = names.index(plan.output) if plan.output in names else None
        self.more: list[tuple[int, int]] = []  # of what is neither x nor a state: a buffer's number and its width
        self.entries: list[Entry] = []
        still = self.layout.table("still").pointer
        for i, name in enumerate(self.kernel.tables.buffers):
            if name == "x":
                self.entries.append(_of_x(still))
            elif name in names:
                table = self.layout.table("history", 1, 1).pointer
                self.entries.append(_of_state(names.index(name), plan.states[names.index(name)].size, table))
            else:
                self.more.append((i, buffers[name].width))
                self.entries.append(_of_more(len(names) + len(self.more) - 1, buffers[name].width, still))
        self.output_place = len(names) + next(
            (k for k, (i, _) in enumerate(self.more) if list(self.kernel.tables.buffers)[i] == plan.output), 0
        )

    def is_good(self, cell: Cell) -> bool:
        """Whether nothing has changed that a step depends on: the weights, or what it may branch on."""
        for place, name, weight, version, address in self.places:
            if place.get(name) is not weight or weight._version != version or weight.data_ptr() != address:
                return False
        own = cell.__dict__
        if len(own) != self.attributes:
            return False
        for name, value in self.plain:
            if own[name] != value:
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
        new = [torch.empty_like(s) for s in old]
        room = [*new, *(torch.empty(self.rows, width, dtype=self.dtype) for _, width in self.more)]
        numbers: list[int] = []
        for entry in self.entries:
            numbers += entry(x, old, room)
        self.kernel.launch(self.packed, self.layout, numbers)
        return (room[self.output_place] if self.output is None else new[self.output][0].clone()), new


def _of_x(table: int) -> Entry:
    return lambda x, old, room: (x.data_ptr(), x.shape[1], table, 0)


def _of_state(index: int, size: int, table: int) -> Entry:
    return lambda x, old, room: (room[index].data_ptr(), size, table, old[index].data_ptr())


def _of_more(index: int, width: int, table: int) -> Entry:
    return lambda x, old, room: (room[index].data_ptr(), width, table, 0)
