"""The straight way: a whole batch through one cell, past everything that only other calls need.

Which plan runs is kept with what is known of the cell, so that a short sequence is not held up by long questions.
"""

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from ..cell import TIME, Cell
from . import build, compiled
from .cpu import Compiled
from .known import Known, known
from .layout import dense
from .scan import KIND, ON_CUDA, _has_gluon, _planned, _setting, must_be_seen

SERVED = {"cpu": {torch.float32, torch.float64}, "cuda": ON_CUDA}


def straight(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, tuple[Tensor, ...]] | None:
    """The output (T, B, n) and the final states, each (1, B, size), as the given ones are; None where only the general
    way will do."""
    given = (x,) if states is None else (x, *states)
    if x.dtype not in SERVED.get(x.device.type, ()) or 0 in x.shape or must_be_seen(given):
        return None
    if x.shape[2] != cell.input_size or not (states is None or _suit(states, cell, x)):
        return None
    start = cell.initial_state(x.shape[1], x) if states is None else [state[0] for state in states]
    found = _found(known(cell), cell, x, start)
    if found is None:
        return None
    key, weights = found
    if set(map(_KIND, weights)) != {_KIND(x)}:
        return None
    made = compiled.PLANS[key]
    if isinstance(made, Compiled) and not made.trains:
        ran = made.forward(x.contiguous(), [s.contiguous() for s in start], (), weights, dense(*x.shape[:2]))
        y, finals = ran.y, ran.finals
    elif isinstance(made, Compiled) or not made.obstacle(x.shape[1], x.device):
        y, *finals = compiled.scan(key, x, list(start), [], weights, None)
    else:
        return None
    return y, tuple(final[None] for final in finals[: len(start)])


def _suit(states: Sequence[Tensor], cell: Cell, x: Tensor) -> bool:
    """Whether given states are what they should be."""
    return list(map(KIND, states)) == [(x.dtype, x.device, (1, x.shape[1], spec.size)) for spec in cell.carried]


_KIND, _TRAINED = attrgetter("dtype", "device"), attrgetter("requires_grad")


def _found(parts: Known, cell: Cell, x: Tensor, start: Sequence[Tensor]) -> tuple[str, list[Tensor]] | None:
    """The key of the plan and the weights it reads; None if another engine runs this cell, or has to be told more."""
    if parts.weights is None:
        return None
    train = torch.is_grad_enabled() and any(map(_TRAINED, (x, *start, *parts.weights.values())))
    asked = (train, train and x.requires_grad, False, x.dtype, x.device.type)
    conditions = asked, _setting["backend"], build.compiler()
    if conditions not in parts.straight:
        parts.straight[conditions] = _find(parts, parts.weights, cell, asked)
    return parts.straight[conditions]


def _find(
    parts: Known, weights: dict[str, Tensor], cell: Cell, asked: tuple[bool, bool, bool, torch.dtype, str]
) -> tuple[str, list[Tensor]] | None:
    if _setting["backend"] == "reference" or cell.masks or (asked[-1] == "cuda" and not _has_gluon()):
        return None
    if any(state.delays or state.name == TIME for state in cell.carried):
        return None
    key = _planned(parts, cell, asked)
    made = compiled.PLANS.get(key)
    if made is None or not all(name in weights for name in made.weight_names):
        return None
    read = [weights[name] for name in made.weight_names]
    return None if compiled.watched(read) else (key, read)
