"""The plain loop over time: the definition of correct. Every other backend is tested against it."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from ..cell import TIME, Cell, State
from .trace import bound, with_output
from .traced_step import BoundStep, step_function


@dataclass(frozen=True)
class Sequences:
    """What a scan reads besides the cell: time-major sequences, and what they start from."""

    x: Tensor  # (T, B, D)
    state: tuple[Tensor, ...]  # one per carried state, (B, size) or (B, depth, size)
    masks: dict[str, Tensor]  # (B, size), or (T, B, size) where drawn at each step
    lengths: Tensor | None = None  # (B,)
    resets: Tensor | None = None  # (T, B), true where a new sequence starts


@dataclass(frozen=True)
class Scanned:
    """What a scan gives: outputs, the state after each sequence's last valid step, the trace if asked for."""

    y: Tensor  # (T, B, output_size)
    state: tuple[Tensor, ...]
    trace: dict[str, Tensor] | None = None  # name → (T, B, size)


def scan(cell: Cell, given: Sequences, keep_trace: bool = False) -> Scanned:
    """Run the cell over whole sequences, one step at a time."""
    step = step_function(cell) if cell.modifiers or keep_trace else None  # found before the cell's tensors are replaced
    # the compiler sees by itself that derived weights do not change with time
    with nullcontext() if torch.compiler.is_compiling() else bound(cell, cell.derived()):
        return _loop(cell, given, keep_trace, BoundStep(step, cell.weights()) if step else None)


def _loop(cell: Cell, given: Sequences, keep_trace: bool, graph: BoundStep | None) -> Scanned:
    steps, batch = given.x.shape[:2]
    x, state, masks = _without_padding(given), given.state, _unbind_masks(cell, given.masks, steps)
    fresh = cell.initial_state(batch, given.x) if given.resets is not None else ()
    resets = () if given.resets is None else given.resets.unbind(0)
    valid = () if given.lengths is None else valid_steps(given.lengths, steps).unbind(0)
    outputs: list[Tensor] = []
    traces: list[dict[str, Tensor]] = []
    for t, x_t in enumerate(x.unbind(0)):  # slicing x[t] instead would make backward quadratic in T
        if resets:
            state = _choose(resets[t], fresh, state)
        drawn = {name: mask[t] for name, mask in masks.items()}
        y, new, named = advance(cell, x_t, state, drawn, graph)
        if valid:
            y, *past_end = _choose(valid[t], (y, *named.values()), [v.new_zeros(()) for v in (y, *named.values())])
            new, named = _choose(valid[t], new, state), dict(zip(named, past_end, strict=True))
        state = new
        outputs.append(y)
        traces.append(named)
    y = torch.stack(outputs) if outputs else given.x.new_zeros(0, batch, cell.output_size)
    if not keep_trace:
        return Scanned(y, state)
    if not traces:  # no step has said its names: one on zeros does, and is not kept
        blank = {name: mask[0] for name, mask in _unbind_masks(cell, cell.draw_masks(1, batch, given.x), 1).items()}
        named = advance(cell, given.x.new_zeros(batch, cell.input_size), state, blank, graph)[2]
        return Scanned(y, state, {name: value[None][:0] for name, value in named.items()})
    return Scanned(y, state, {name: torch.stack([named[name] for named in traces]) for name in traces[0]})


def advance(
    cell: Cell, x: Tensor, state: Sequence[Tensor], masks: dict[str, Tensor], graph: BoundStep | None = None
) -> tuple[Tensor, tuple[Tensor, ...], dict[str, Tensor]]:
    """One step with its bookkeeping: delay lines move on, the time index counts.

    With `graph` the traced step runs, which knows modifiers and names; without, the cell's own `step`.
    """
    views = [_view(spec, value) for spec, value in zip(cell.carried, state, strict=True) if spec.name != TIME]
    extras = masks | {spec.name: value for spec, value in zip(cell.carried, state, strict=True) if spec.name == TIME}
    named: dict[str, Tensor] = {}
    if graph is not None:
        results, named = graph(x, views, extras)
    else:
        results = with_output(cell, cell.step(x, *views, **extras))
    y, new = results[0], list(results[1:])
    carried = tuple(
        value + 1.0 if spec.name == TIME else _push(spec, value, new.pop(0))
        for spec, value in zip(cell.carried, state, strict=True)
    )
    if graph is not None:
        named |= {spec.name: _newest(spec, v) for spec, v in zip(cell.carried, carried, strict=True)}
    return y, carried, named


def valid_steps(lengths: Tensor, steps: int) -> Tensor:
    """(T, B), true where a sequence is still running."""
    return torch.arange(steps, device=lengths.device)[:, None] < lengths


def _without_padding(given: Sequences) -> Tensor:
    """x with zeros past the end: whatever stood there, NaN included, reaches neither values nor gradients."""
    if given.lengths is None:
        return given.x
    return given.x.masked_fill(~valid_steps(given.lengths, given.x.shape[0])[..., None], 0.0)


def _unbind_masks(cell: Cell, masks: dict[str, Tensor], steps: int) -> dict[str, Sequence[Tensor]]:
    return {n: m.unbind(0) if cell.masks[n].each == "step" else (m,) * steps for n, m in masks.items()}


def _choose(where: Tensor, yes: Sequence[Tensor], no: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Row by row, one state or the other."""
    return tuple(torch.where(where.view(-1, *[1] * (a.dim() - 1)), a, b) for a, b in zip(yes, no, strict=True))


def _view(spec: State, value: Tensor) -> Tensor | tuple[Tensor, ...]:
    return value if spec.delays is None else tuple(value[:, k - 1] for k in spec.delays)


def _push(spec: State, old: Tensor, new: Tensor) -> Tensor:
    return new if spec.delays is None else torch.cat([new[:, None], old[:, :-1]], dim=1)


def _newest(spec: State, value: Tensor) -> Tensor:
    return value if spec.delays is None else value[:, 0]
