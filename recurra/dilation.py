"""Dilated recurrence (Chang et al. 2017): step t of a layer continues the state of step t - d.

A layer with dilation d is d independent recurrences, one for each remainder of t by d. Time is folded into the batch:
T steps of B sequences become ⌈T / d⌉ steps of d · B lanes, and one scan runs them all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .argument_checks import positive_int
from .cell import TIME, Cell, State
from .engine.reference import Scanned, Sequences, valid_steps
from .errors import InputError, OptionError


def dilations_of(dilation: int | Sequence[int], layers: int, cell: type[Cell]) -> tuple[int, ...]:
    """The dilation of every layer; one number is for all."""
    if isinstance(dilation, (list, tuple)):
        found = tuple(positive_int("dilation", d) for d in dilation)
        if len(found) != layers:
            raise InputError("dilation", list(found), f"one number for each of the {layers} layers")
    else:
        found = (positive_int("dilation", dilation),) * layers
    if max(found) > 1 and TIME in cell._asks_for():
        expected = f"1: {cell.__name__} reads the time index, of which a dilated layer has several"
        raise OptionError("dilation", list(found), expected)
    return found


def refuse_dilation(argument: str, layer: Any) -> None:
    """Raise an `OptionError` for a dilated layer, where each step must follow the one before it."""
    if max(getattr(layer, "dilation", (1,))) > 1:
        raise OptionError(argument, f"a layer with dilation {layer.dilation}", "a layer without dilation")


def state_shape(spec: State, batch: int, dilation: int) -> tuple[int, ...]:
    """The shape of a state: that of the last `dilation` steps, newest first, on the second axis."""
    first, *rest = spec.full_shape(batch)
    return (first, dilation, *rest) if dilation > 1 else (first, *rest)


def initial_state(cell: Cell, batch: int, like: Tensor, dilation: int) -> tuple[Tensor, ...]:
    """The cell's own start, for every step that the dilation looks back."""
    start = cell.initial_state(batch, like)
    if dilation == 1:
        return start
    return tuple(s[:, None].expand(batch, dilation, *s.shape[1:]) for s in start)


def scan_dilated(scan: Callable[[Cell, Sequences], Scanned], cell: Cell, given: Sequences, dilation: int) -> Scanned:
    """`scan` with step t reading the state of step t - dilation; states are (B, dilation, …), newest first."""
    steps, batch = given.x.shape[:2]
    lengths = given.lengths
    if lengths is None:
        lengths = torch.full((batch,), steps, device=given.x.device)
    ragged = given.lengths is not None or steps % dilation > 0
    recent = None if given.resets is None else _reset_within(given.resets, dilation)
    lanes = Sequences(
        _fold(given.x, dilation),
        tuple(_lanes_of(state) for state in given.state),
        {name: _fold_mask(cell, name, mask, dilation) for name, mask in given.masks.items()},
        _lane_lengths(lengths, dilation) if ragged else None,
        None if recent is None else _fold(recent, dilation),
    )
    found = scan(cell, lanes)
    state = tuple(_newest_first(value, lengths, dilation) for value in found.state)
    if given.resets is not None:
        state = _forget(cell, state, given, lengths)
    trace = None if found.trace is None else {n: _unfold(v, steps, dilation) for n, v in found.trace.items()}
    return Scanned(_unfold(found.y, steps, dilation), state, trace)


def _fold(x: Tensor, dilation: int) -> Tensor:
    """(T, B, …) → (⌈T / d⌉, d · B, …), padded with zeros; lane j · B + b has the steps j, j + d, … of sequence b."""
    steps, batch = x.shape[:2]
    missing = -steps % dilation
    if missing:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return x.reshape(-1, dilation * batch, *x.shape[2:])


def _unfold(y: Tensor, steps: int, dilation: int) -> Tensor:
    """The inverse of `_fold`."""
    batch = y.shape[1] // dilation
    return y.reshape(y.shape[0] * dilation, batch, *y.shape[2:])[:steps]


def _fold_mask(cell: Cell, name: str, mask: Tensor, dilation: int) -> Tensor:
    """A mask of each step folds like x; the lanes of a sequence share its mask."""
    if cell.drawn_inputs()[name].each == "step":
        return _fold(mask, dilation)
    return mask.repeat(dilation, *[1] * (mask.dim() - 1))


def _lane_lengths(lengths: Tensor, dilation: int) -> Tensor:
    """(d · B,): the steps of every lane, ⌈(length - j) / d⌉, possibly none."""
    lane = torch.arange(dilation, device=lengths.device)[:, None]
    return ((lengths - lane + dilation - 1).div(dilation, rounding_mode="floor")).clamp(min=0).flatten()


def _lanes_of(state: Tensor) -> Tensor:
    """(B, d, …), newest first → (d · B, …): lane j continues the state of d - j steps before."""
    return state.flip(1).transpose(0, 1).reshape(-1, *state.shape[2:])


def _newest_first(value: Tensor, lengths: Tensor, dilation: int) -> Tensor:
    """(d · B, …) → (B, d, …): the states of the steps n - 1, n - 2, … of sequences of n steps."""
    batch = value.shape[0] // dilation
    back = torch.arange(dilation, device=value.device)
    lane = (lengths[:, None] - 1 - back) % dilation  # (B, d)
    rows = lane * batch + torch.arange(batch, device=value.device)[:, None]
    return value.index_select(0, rows.flatten()).reshape(batch, dilation, *value.shape[1:])


def _reset_within(resets: Tensor, dilation: int) -> Tensor:
    """(T, B): whether a sequence began in the last `dilation` steps, so that the state before it is another's."""
    found = resets.clone()
    for back in range(1, min(dilation, resets.shape[0])):
        found[back:] |= resets[:-back]
    return found


def _forget(cell: Cell, state: tuple[Tensor, ...], given: Sequences, lengths: Tensor) -> tuple[Tensor, ...]:
    """Final states (B, d, …) with the cell's own start for steps before the last reset."""
    assert given.resets is not None
    (steps, batch), dilation = given.resets.shape, state[0].shape[1]
    begun = given.resets & valid_steps(lengths, steps)
    place = torch.arange(1, steps + 1, device=begun.device)[:, None]
    last = (begun * place).amax(0) - 1  # (B,): the step of the last reset, or -1
    step = lengths[:, None] - 1 - torch.arange(dilation, device=begun.device)  # (B, d)
    gone = (step < last[:, None]) & (last >= 0)[:, None]
    start = initial_state(cell, batch, given.x, dilation)
    return tuple(
        torch.where(gone.view(*gone.shape, *[1] * (s.dim() - 2)), fresh, s)
        for fresh, s in zip(start, state, strict=True)
    )
