"""The straight way: a whole batch through one cell without gradients, past everything that only other calls need.

Which plan runs is kept with what is known of the cell, so that a short sequence is not held up by long questions.
"""

from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from ..cell import Cell
from . import build, compiled
from .cpu import Compiled
from .known import Known, known
from .layout import dense
from .scan import _planned, _setting
from .stream import watched

SERVED = (torch.float32, torch.float64)


def straight(cell: Cell, x: Tensor, states: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]] | None:
    """The output (T, B, n) and the final states, each (1, B, size), as the given ones are; None where only the general
    way will do."""
    if torch.is_grad_enabled() or watched(x) or 0 in x.shape:
        return None
    found = _found(known(cell), cell, x.dtype)
    if found is None:
        return None
    made, weights = found
    if set(map(_DTYPE, weights)) != {x.dtype}:
        return None
    start = cell.initial_state(x.shape[1], x) if states is None else _checked(cell, x, states)
    if start is None:
        return None
    ran = made.forward(x.contiguous(), [s.contiguous() for s in start], (), weights, dense(*x.shape[:2]))
    return ran.y, [final[None] for final in ran.finals]


_DTYPE = attrgetter("dtype")


def _found(parts: Known, cell: Cell, dtype: torch.dtype) -> tuple[Compiled, list[Tensor]] | None:
    """The plan and the weights it reads; None if another engine runs this cell, or needs to be told more."""
    key = (dtype, _setting["backend"], build.compiler())
    if key not in parts.straight:
        parts.straight[key] = _find(parts, cell, dtype)
    return parts.straight[key]


def _find(parts: Known, cell: Cell, dtype: torch.dtype) -> tuple[Compiled, list[Tensor]] | None:
    if _setting["backend"] == "reference" or dtype not in SERVED or parts.weights is None:
        return None
    if cell.masks or any(state.delays for state in cell.carried):
        return None
    made = compiled.PLANS.get(_planned(parts, cell, (False, False, False, dtype, "cpu")))
    if not isinstance(made, Compiled) or not all(name in parts.weights for name in made.weight_names):
        return None
    return made, [parts.weights[name] for name in made.weight_names]


def _checked(cell: Cell, x: Tensor, states: Sequence[Tensor]) -> list[Tensor] | None:
    """The given states, (B, size) each; None if they are not what they should be."""
    if len(states) != len(cell.carried):
        return None
    for state, spec in zip(states, cell.carried, strict=True):
        if type(state) is not Tensor or state.dtype != x.dtype or not state.is_cpu:
            return None
        if state.shape != (1, x.shape[1], spec.size):
            return None
    return [state[0] for state in states]
