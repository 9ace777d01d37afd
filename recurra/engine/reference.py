"""The reference engine: a plain loop over time. It defines what is correct; other engines are tested against it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ..cell import TIME, Cell, State
from .batch_check import require_batch
from .trace import bind_weights
from .traced_step import BoundStep, StepFunction, step_function
from .watched_step import WatchedStep, call_step, has_own_hooks, must_watch

AnyStep = BoundStep | WatchedStep


class Sequences(NamedTuple):
    """The input of a scan: time-major sequences, initial states, masks."""

    x: Tensor  # (T, B, D)
    state: Any  # a tensor for each carried state, (B, size) or (B, depth, size)
    masks: Mapping[str, Tensor] = {}  # (B, size), or (T, B, size) if drawn at each step
    lengths: Tensor | None = None  # (B,)
    resets: Tensor | None = None  # (T, B), true where a new sequence starts


@dataclass(frozen=True)
class Scanned:
    """The result of a scan: outputs, the state after each sequence's last valid step, and the trace on request."""

    y: Tensor  # (T, B, output_size)
    state: tuple[Tensor, ...]
    trace: dict[str, Tensor] | None = None  # name → (T, B, size)


def scan(cell: Cell, given: Sequences, keep_trace: bool = False) -> Scanned:
    """Run the cell over whole sequences, one step at a time."""
    step = _graph_step(cell, given.x.shape[1], keep_trace)  # before bind_weights changes the cell
    # Derived weights are computed once per call. torch.compile finds by itself that they are loop-invariant.
    with nullcontext() if is_compiling() else bind_weights(cell, cell.derived()):
        step = BoundStep(step, cell.weights()) if isinstance(step, StepFunction) else step
        return _loop(cell, given, keep_trace, step)


def _graph_step(cell: Cell, batch: int, keep_trace: bool) -> StepFunction | WatchedStep | None:
    """The traced step, where modifiers or a trace ask for one; None where the cell's own is called."""
    if keep_trace and must_watch(cell):
        return WatchedStep(cell)
    if not (keep_trace or (cell.modifiers and not has_own_hooks(cell))):
        return None
    if not is_compiling():
        require_batch(cell, batch)
    return step_function(cell)


def _loop(cell: Cell, given: Sequences, keep_trace: bool, step: AnyStep | None) -> Scanned:
    steps, batch = given.x.shape[:2]
    x, state, masks = _zero_padding(given), given.state, _unbind_masks(cell, given.masks, steps)
    fresh = cell.initial_state(batch, given.x) if given.resets is not None else ()
    resets = () if given.resets is None else given.resets.unbind(0)
    valid = () if given.lengths is None else valid_steps(given.lengths, steps).unbind(0)
    outputs: list[Tensor] = []
    traces: list[dict[str, Tensor]] = []
    for t, x_t in enumerate(x.unbind(0)):  # slicing x[t] instead would make backward quadratic in T
        if resets:
            state = _where(resets[t], fresh, state)
        masks_t = {name: mask[t] for name, mask in masks.items()}
        y, new, named = advance(cell, x_t, state, masks_t, step)
        if valid:
            y, *past_end = _where(valid[t], (y, *named.values()), [v.new_zeros(()) for v in (y, *named.values())])
            new, named = _where(valid[t], new, state), dict(zip(named, past_end, strict=True))
        state = new
        outputs.append(y)
        traces.append(named)
    y = torch.stack(outputs) if outputs else given.x.new_zeros(0, batch, cell.output_size)
    if not keep_trace:
        return Scanned(y, state)
    if not traces:  # T = 0: a step on zeros tells the names and shapes
        zeros, masks_t = given.x.new_zeros(batch, cell.input_size), cell.mean_masks(batch, given.x)
        named = advance(cell, zeros, state, masks_t, step)[2]
        return Scanned(y, state, {name: value[None][:0] for name, value in named.items()})
    return Scanned(y, state, {name: torch.stack([named[name] for named in traces]) for name in traces[0]})


def advance(
    cell: Cell, x: Tensor, state: Sequence[Tensor], masks: dict[str, Tensor], step: AnyStep | None = None
) -> tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]:
    """`(output, carried states, named values)` after one step; delay lines are shifted, the time index is increased.

    Runs `step`, the traced step with modifiers and named values, where it is given, and the cell's own otherwise.
    """
    carried = [(spec, value) for spec, value in zip(cell.carried, state, strict=True) if spec.name != TIME]
    views = [_view(spec, value) for spec, value in carried]
    extras = masks | {spec.name: value for spec, value in zip(cell.carried, state, strict=True) if spec.name == TIME}
    named: dict[str, Tensor] = {}
    if step is not None:
        results, named = step(x, views, extras)
    else:
        results = call_step(cell, x, views, extras)
    y, new = results[0], list(results[1:])
    after = tuple(
        value + 1.0 if spec.name == TIME else _push(spec, value, new.pop(0))
        for spec, value in zip(cell.carried, state, strict=True)
    )
    if step is not None:
        named |= {spec.name: _newest(spec, v) for spec, v in zip(cell.carried, after, strict=True)}
    return y, after, named


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """(T, B), true where a sequence is still running."""
    return torch.arange(steps, device=lengths.device)[:, None] < lengths


def _zero_padding(given: Sequences) -> Tensor:
    """x with zeros as padding, so that nothing there, NaN included, reaches values or gradients."""
    if given.lengths is None:
        return given.x
    return given.x.masked_fill(~valid_steps(given.lengths, given.x.shape[0])[..., None], 0.0)


def _unbind_masks(cell: Cell, masks: Mapping[str, Tensor], steps: int) -> dict[str, Sequence[Tensor]]:
    """The mask of every step, by name."""
    drawn = cell.drawn_inputs()
    return {n: m.unbind(0) if drawn[n].each == "step" else (m,) * steps for n, m in masks.items()}


def _where(where: Tensor, yes: Sequence[Tensor], no: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """torch.where for tuples of states; `where` is (B,)."""
    return tuple(torch.where(where.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(yes, no, strict=True))


def _view(spec: State, value: Tensor) -> Tensor | tuple[Tensor, ...]:
    """A carried state as `step` reads it: one tensor, or one for each delay."""
    return value if spec.delays is None else tuple(value[:, k - 1] for k in spec.delays)


def _push(spec: State, old: Tensor, new: Tensor) -> Tensor:
    """The carried state after a step; a delay line shifts by one."""
    return new if spec.delays is None else torch.cat([new[:, None], old[:, :-1]], dim=1)


def _newest(spec: State, value: Tensor) -> Tensor:
    """The newest value of a carried state."""
    return value if spec.delays is None else value[:, 0]
