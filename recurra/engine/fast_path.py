"""The straight way: a whole batch through one cell, past everything that only other calls need.

Which plan runs is kept with what is known of the cell, so that a short sequence is not held up by long questions.
"""

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from ..cell import TIME, Cell
from . import torch_op
from .cell_cache import Known, known
from .cpu import compiler
from .cpu.executor import Compiled
from .cpu.kernel import threads_here
from .cpu.layout import Layout, dense
from .dispatch import KIND, ON_CUDA, _has_gluon, _planned, _setting, must_be_seen
from .torch_modes import unseen

SERVED = {"cpu": {torch.float32, torch.float64}, "cuda": ON_CUDA}


def straight(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """The output (T, B, n) and the final states, each (1, B, size), or (B, size) if the given ones are; None where only
    the general way will do."""
    given = (x,) if states is None else (x, *states)
    if must_be_seen(given):
        return None
    parts = known(cell)
    kinds = None if torch.is_grad_enabled() else (*map(KIND, given), _setting["backend"], threads_here())
    ready = parts.ready.get(kinds)
    if ready is not None:
        return ready(given)
    if x.dtype not in SERVED.get(x.device.type, ()) or 0 in x.shape:
        return None
    if x.shape[2] != cell.input_size or not (states is None or _suit(states, cell, x)):
        return None
    alike = states is not None and states[0].dim() == 2
    start = _start(parts, cell, x) if states is None else states if alike else [state[0] for state in states]
    found = _found(parts, cell, x, start)
    if found is None:
        return None
    key, weights = found
    made = torch_op.PLANS[key]
    read = made.prologue(weights)
    if set(map(_KIND, read)) != {_KIND(x)}:
        return None
    if isinstance(made, Compiled) and not made.trains:
        ready = ReadyBatch(made, dense(*x.shape[:2]), weights, read, start if states is None else ())
        if kinds is not None and (states is not None or parts.starts_alike):
            _keep(parts.ready, kinds, ready)
        return ready(given)
    if isinstance(made, Compiled) or not made.obstacle(x.shape[1], x.device):
        y, *finals = torch_op.scan(key, x, list(start), [], read, None)
        return y, tuple(final if alike else final[None] for final in finals[: len(start)])
    return None


class ReadyBatch:
    """A whole batch without gradients: all that is known once the first one of its shape has come."""

    @unseen
    def __init__(
        self,
        made: Compiled,
        layout: Layout,
        weights: dict[str, Tensor],
        read: list[Tensor],
        start: Sequence[Tensor],
    ):
        """`read`: what is computed from the weights before the loop, or some of them themselves."""
        self.made, self.weights = made, weights
        self.read = dict(zip(made.weight_names, read, strict=True))
        self.derived = not all(name in weights for name in made.weight_names)
        self.run = made.prepared(layout, self.read)
        self.start = tuple(state.contiguous()[None] for state in start)

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Of x, and of the states before where they are given."""
        if self.derived:
            read = dict(zip(self.made.weight_names, self.made.prologue(self.weights), strict=True))
            return self._ran(given, read)
        return self._ran(given, self.read)

    @unseen
    def _ran(self, given: Sequence[Tensor], read: dict[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        x, *states = map(_WHOLE, given)
        ran = self.run(x, states or self.start, read)
        return ran.y, tuple(ran.finals)


def _start(parts: Known, cell: Cell, x: Tensor) -> Sequence[Tensor]:
    """The states before the first step. The engine only reads them: where they never change, once made they are kept.
    On a GPU they may be part of a graph that is being captured, and are not there yet."""
    if not parts.starts_alike or not x.is_cpu:
        return cell.initial_state(x.shape[1], x)
    suits, start = parts.start
    if suits != (x.shape[1], x.dtype):
        with torch.inference_mode(False):  # or they could not be kept for a backward pass
            start = cell.initial_state(x.shape[1], x)
        parts.start = (x.shape[1], x.dtype), start
    return start


def _keep(there: dict, kinds: tuple, ready: ReadyBatch) -> None:
    for oldest in list(there)[: 1 + len(there) - KEPT if len(there) >= KEPT else 0]:
        there.pop(oldest, None)
    there[kinds] = ready


def _suit(states: Sequence[Tensor], cell: Cell, x: Tensor) -> bool:
    """Whether given states are what they should be."""
    front = (x.shape[1],) if states[0].dim() == 2 else (1, x.shape[1])
    return list(map(KIND, states)) == [(x.dtype, x.device, (*front, spec.size)) for spec in cell.carried]


_KIND, _TRAINED, _WHOLE = attrgetter("dtype", "device"), attrgetter("requires_grad"), Tensor.contiguous
KEPT = 64  # batches of different shapes that a cell is ready for


def _found(parts: Known, cell: Cell, x: Tensor, start: Sequence[Tensor]) -> tuple[str, dict[str, Tensor]] | None:
    """The key of the plan and the weights; None if another engine runs this cell, or has to be told more."""
    if parts.weights is None:
        return None
    train = torch.is_grad_enabled() and any(map(_TRAINED, (x, *start, *parts.weights.values())))
    asked = (train, train and x.requires_grad, False, x.dtype, x.device.type)
    conditions = asked, _setting["backend"], compiler.find_compiler()
    if conditions not in parts.straight:
        parts.straight[conditions] = _find(parts, parts.weights, cell, asked)
    return parts.straight[conditions]


def _find(
    parts: Known, weights: dict[str, Tensor], cell: Cell, asked: tuple[bool, bool, bool, torch.dtype, str]
) -> tuple[str, dict[str, Tensor]] | None:
    if _setting["backend"] == "reference" or cell.masks or (asked[-1] == "cuda" and not _has_gluon()):
        return None
    if any(state.delays or state.name == TIME for state in cell.carried):
        return None
    key = _planned(parts, cell, asked)
    made = torch_op.PLANS.get(key)
    return None if made is None or torch_op.watched(weights.values()) else (key, weights)
