"""Resets inside the loop: a mask of every step says which sequences start again before the next one.

The step is rewritten: where the mask is 0 it returns the start of a sequence instead of the new state. No shape depends
on the resets, and nothing reads them on the host, as `split_at_resets.py` does.
"""

import copy
from operator import attrgetter

import torch
from torch import Tensor, fx, nn

from ..cell import CACHE, TIME, Cell
from ..draws import Mask
from .graph_rewriter import GraphRewriter
from .reference import Sequences, valid_steps
from .trace import Step

MASK = "_goes_on"  # (T, B, 1): 0 where a sequence starts again before the next step

aten = torch.ops.aten


def can_restart(cell: Cell) -> bool:
    """Whether a start is a number or a parameter for every state, and no state but the last one is read."""
    plain = type(cell).initial_state is Cell.initial_state and type(cell)._initial is Cell._initial
    return plain and not any(state.delays or state.name == TIME for state in cell.carried)


def restarting(cell: Cell) -> Cell:
    """A cell that shares all parts with this one, and whose step starts again where the mask says so."""
    other = copy.copy(cell)
    other.__dict__.pop(CACHE, None)
    other._modules = dict(cell._modules)
    other.modifiers = nn.ModuleList([*cell.modifiers, _Restart()])
    other.masks = cell.masks | {MASK: Mask(1, 0.0, "step")}
    return other


class _Restart(nn.Module):
    """The rewrite, in the form of a modifier."""

    def rewrite(self, step: Step, cell: Cell) -> Step:
        edit = GraphRewriter(step)
        goes_on = edit.call(aten.ne.Scalar, edit.add_mask(MASK, cell), 0)
        for state in cell.carried:
            start = _start(edit, cell, state.name)
            operation = aten.where.self if isinstance(start, fx.Node) else aten.where.ScalarOther
            edit.replace_state(state.name, edit.call(operation, goes_on, edit.output(state.name), start))
        return edit.finish()


def _start(edit: GraphRewriter, cell: Cell, state: str) -> fx.Node | float:
    start = cell.starts.get(state, 0.0)
    if not isinstance(start, str):
        return float(start)
    if start in edit.step.weights:
        return edit.step.node(start)
    return edit.add_weight(start, attrgetter(start)(cell))


def with_mask(cell: Cell, given: Sequences) -> Sequences:
    """The same sequences for `restarting(cell)`: resets become the mask, and those of the first step its start."""
    assert given.resets is not None
    resets = given.resets.to(given.x.device, torch.bool)
    ends = torch.cat([resets[1:], torch.zeros_like(resets[:1])])
    if given.lengths is not None:  # the final state is that of the last valid step
        ends = ends & valid_steps(given.lengths.to(ends.device) - 1, ends.shape[0])
    masks = {**given.masks, MASK: (~ends).to(given.x.dtype).unsqueeze(-1)}
    fresh = cell.initial_state(given.x.shape[1], given.x)
    states = tuple(start_again(resets[0], f, s) for f, s in zip(fresh, given.state, strict=True))
    return Sequences(given.x, states, masks, given.lengths)


def start_again(restarts: Tensor, fresh: Tensor, state: Tensor) -> Tensor:
    """The states before the first step: fresh ones in the rows that restart there."""
    return torch.where(restarts[:, None], fresh, state)


def as_mask(given: Tensor, dtype: torch.dtype) -> Tensor:
    """What a loop reads as a mask: resets (T, B), given in its place, become (T, B, 1)."""
    if given.dtype is not torch.bool:
        return given
    goes_on = given.new_empty((*given.shape, 1), dtype=dtype)
    torch.logical_not(given[1:], out=goes_on[:-1, :, 0])
    goes_on[-1] = 1.0
    return goes_on
