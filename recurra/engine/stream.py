"""Streaming: one step of one cell without gradients, past everything a whole sequence needs.

The call is prepared once and kept with what is known of the cell. It is good for as long as the cell is made of the
same parts and they lie where they lay; and where the weights were packed, as long as nothing was written into them.
Whether something was is told by a weight's version; and since fused optimizers and `.data` write past it, by a sample
of the numbers too: all of them take as long to look at as the step itself. What is asked at every step is asked of all
tensors at once, and answered by a comparison: a line of Python takes as long as a tenth of the arithmetic.
"""

import functools
import struct
from collections.abc import Callable, Sequence
from operator import attrgetter

import torch
from torch import Tensor

from ..cell import Cell
from . import torch_op
from .cell_cache import known
from .cpu.call_template import Copy, Loop, addresses
from .cpu.executor import Compiled
from .cpu.kernel import Kernel, threads_here
from .cpu.launch_plan import forward_way
from .cpu.layout import dense
from .dispatch import Sequences, _setting, choose, must_be_seen
from .ir.buffers import BufferRef, X
from .torch_modes import unseen


def step(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """The output (B, n) and the new states, each (1, B, size); None where only the general way will do."""
    given = (x, *states) if states else (x,)
    if torch.is_grad_enabled() or must_be_seen(given) or x.is_nested:
        return None
    parts, kinds = known(cell), list(map(_KIND, given))
    stream = parts.streams.get(x.shape)
    if stream is None or stream.kinds[0] != kinds[0] or not stream.is_good():
        stream = prepare(cell, x)
        if stream is None:
            return None
        parts.streams[x.shape] = stream
    if states is None:
        return stream((x, *stream.start)) if parts.starts_alike else None
    return stream(given) if kinds == stream.kinds else None


@unseen
def prepare(cell: Cell, x: Tensor) -> "Stream | None":
    if not x.is_cpu or x.shape[1:] != (cell.input_size,) or cell.masks or any(s.delays for s in cell.carried):
        return None
    choice = choose(cell, Sequences(x[None], cell.initial_state(x.shape[0], x), {}))
    made = torch_op.PLANS.get(choice.key)
    if choice.backend != "compiled" or not isinstance(made, Compiled) or made.dtype != x.dtype:
        return None
    if X not in made.forward_kernel.tables.buffers:  # a cell that does not look at its input
        return None
    weights = known(cell).weights
    derived = weights is None or any(name.startswith("=") for name in made.weight_names)
    if derived or any(w.is_inference() for w in weights.values()):
        return None
    return Stream(cell, made, x, weights)


_VERSION, _ADDRESS, _WHOLE = attrgetter("_version"), Tensor.data_ptr, Tensor.contiguous
_KIND = attrgetter("dtype", "is_cpu", "shape")  # what a tensor has to be like


class Stream:
    """A prepared call of the forward kernel for one step of some rows."""

    def __init__(self, cell: Cell, made: Compiled, x: Tensor, weights: dict[str, Tensor]):
        self.weights = list(weights.values())
        self.versions, self.addresses = list(map(_VERSION, self.weights)), list(map(_ADDRESS, self.weights))
        self.matrices = [weight for weight in self.weights if weight.dim() > 1]  # others cannot be turned
        self.contiguous = all(map(Tensor.is_contiguous, self.matrices))
        self.conditions = (_setting["backend"], threads_here())
        self.sample = _sample(made.forward_kernel, self.weights)
        self.sampled = self.sample()
        self.start = [s.contiguous()[None] for s in cell.initial_state(x.shape[0], x)]
        self.kinds = list(map(_KIND, (x, *self.start)))
        self._lay_out(made, x, {name: weights[name] for name in made.weight_names})

    def _lay_out(self, made: Compiled, x: Tensor, weights: dict[str, Tensor]) -> None:
        """What the kernel reads and writes: x, the states before; the states, the rest. The output is among these; if
        it is a state, a copy is: writing to the output must not change the state."""
        kernel, layout, rows = made.forward_kernel, dense(1, x.shape[0]), x.shape[0]
        way = forward_way(made.plan, kernel, layout, whole=lambda state: True)
        buffers, states = kernel.schedule.buffers, [BufferRef.state(state.name) for state in made.plan.states]
        rest = [buffer for buffer in kernel.tables.buffers if buffer not in (X, *states)]
        self.like = [*map(torch.empty_like, self.start), *(x.new_empty(rows, buffers[buffer].width) for buffer in rest)]
        first, written = 1 + len(states), [*states, *rest]  # x, the states before; then what is written
        where = {X: (0, 0)} | {buffer: (first + i, 0) for i, buffer in enumerate(written)}
        patches = addresses(way.binding, where, {buffer: 1 + i for i, buffer in enumerate(states)})
        self.output, self.states, copies = written.index(made.plan.output), len(states), []
        if self.output < len(states):
            y = self.like[self.output][0].clone()
            copies = [Copy(first + len(written), 0, first + self.output, 0, y.nbytes)]
            self.output = len(self.like)
            self.like.append(y)
        self.packed = kernel.pack(weights, way.split)
        self.in_place = way.split.in_place and not kernel.pack.copied
        count = first + len(self.like)
        loop = Loop(kernel, self.packed, layout, way.binding, count, patches, after=copies)
        self.scratch, self.run, self.pack, self.alive = loop.scratch, loop.run, loop.pack, loop.alive

    def is_good(self) -> bool:
        """Whether the weights are where they were, and what was taken from them still holds."""
        return (
            list(map(_ADDRESS, self.weights)) == self.addresses
            and all(map(Tensor.is_contiguous, self.matrices)) is self.contiguous
            and (self.in_place or self._holds_the_same())
            and self.conditions == (_setting["backend"], threads_here())
        )

    def _holds_the_same(self) -> bool:
        return list(map(_VERSION, self.weights)) == self.versions and self.sample() == self.sampled

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        whole, written = (*map(_WHOLE, given),), (*map(torch.empty_like, self.like),)
        scratch = (*map(torch.zeros_like, self.scratch),) if self.scratch else ()
        self.run(self.pack(*map(_ADDRESS, whole + written + scratch)))
        return written[self.output], written[: self.states]


SAMPLE = 1024  # numbers of a weight that are looked at, from its middle: all of a small one


def _sample(kernel: Kernel, weights: Sequence[Tensor]) -> Callable[[], int]:
    """Tells some numbers of the weights from others."""
    numbers = []
    for weight in (w for w in weights if w.is_contiguous()):
        count = min(SAMPLE, weight.numel())
        first = (weight.numel() - count) // 2
        numbers += [weight.data_ptr() + first * weight.element_size(), count * weight.element_size() // 4]
    return functools.partial(kernel.common.fingerprint, struct.pack(f"{len(numbers)}q", *numbers), len(numbers) // 2, 1)
