"""A cell over whole sequences by Newton iterations: the entry, its gradient, and what is told about it."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ...cell import Cell
from ...errors import OptionError, TraceError
from ..backend import backend, warn_once
from ..cell_cache import CellCache, cache_of
from ..guards import constant_buffers
from ..ir.values import Unsupported
from ..plan.planner import plan
from ..reference import Scanned, Sequences, valid_steps
from ..torch_modes import is_plain_call
from ..traced_step import clean_context, trace_in_clean_context
from ..user_code import Untraceable
from .batched_step import BatchedStep, Evaluation, Given
from .solve import before, solve_cotangents, solve_states

_ITERATIONS: WeakKeyDictionary[Cell, int | None] = WeakKeyDictionary()  # of the last call; None: the loop ran


def iterations_of(cell: Cell) -> int | None:
    """Newton iterations of the cell's last call; None if there was none, or if it ran the loop."""
    return _ITERATIONS.get(cell)


def require_newton(cell: Cell) -> None:
    """Raise an error unless all steps of the cell can be one batch."""
    delayed = next((state.name for state in cell.carried if state.delays), None)
    why = f"{delayed} is read several steps back" if delayed else ""
    try:
        if not delayed:
            _batched_step(cell, cache_of(cell), False)
    except (Unsupported, Untraceable, TraceError) as error:
        why = f"the compiled engine does not take {error}"
    if why:
        raise OptionError("parallel", "'newton'", f"a step that reads the step before; in {type(cell).__name__} {why}")


def _batched_step(cell: Cell, cache: CellCache, named: bool) -> BatchedStep:
    key = f"newton {named}"
    if key not in cache.traced:
        step = trace_in_clean_context(cell)
        with clean_context():
            planned = plan(cell, step, train=False, needs_x=False, named=named)
        cache.guards.add_constants(cell, constant_buffers(cell, planned.equations.weights))
        cache.traced[key] = BatchedStep(planned)
    return cache.traced[key]


def can_solve(cell: Cell, given: Sequences) -> bool:
    """Whether the iterations can run this call. A single step, and what transforms or records a call, take the loop."""
    if cell.parallel != "newton" or given.x.dim() != 3 or is_compiling() or backend() == "reference":
        return False
    cache, tensors = cache_of(cell), (given.x, *(given.state or ()))
    if cache.hooked or cache.guards.overflow or 0 in given.x.shape or not is_plain_call(tensors):
        return False
    same = {t.dtype for t in (*tensors, *cache.tensors) if t.is_floating_point()}
    wide = same <= {torch.float32} or same <= {torch.float64}
    return wide and not any(mask.requires_grad for mask in given.masks.values())


def solve(cell: Cell, sequences: Sequences, keep_trace: bool) -> Scanned | None:
    """The cell's run, or None, with one warning, if the iterations do not converge."""
    try:
        step = _batched_step(cell, cache_of(cell), keep_trace)
    except Unsupported:  # a named value that is no row; the loop returns it
        _ITERATIONS[cell] = None
        return None
    x, lengths, resets = sequences.x, sequences.lengths, sequences.resets
    batch = x.shape[1]
    valid = None if lengths is None else valid_steps(lengths, x.shape[0])
    if valid is not None:
        x = x.masked_fill(~valid[..., None], 0.0)
    states = cell.initial_state(batch, x) if sequences.state is None else sequences.state
    start = _side_by_side(states)
    fresh = None if resets is None else _side_by_side(cell.initial_state(batch, x))
    masks = [sequences.masks[name] for name in step.plan.masks]
    weights = step.plan.prologue(cell.weights())
    given = Given(x, start, fresh, masks, weights, valid, resets)
    with torch.no_grad():
        solution = solve_states(step, Evaluation(step, given))
    _ITERATIONS[cell] = None if solution.why else solution.iterations
    if solution.why:
        warn_once(f"{type(cell).__name__} runs its loop over time, as Newton iterations failed: {solution.why}.")
        return None
    saved = _Saved(step, valid, resets, len(masks), fresh is not None, type(cell).__name__)
    tensors = (x, start, *([] if fresh is None else [fresh]), *masks, *weights)
    last, *results = _Solved.apply(saved, solution.values, *tensors)
    each = zip(step.plan.states, step.offsets.values(), states, strict=True)
    finals = tuple(last[:, low:high].reshape(old.shape) for _, (low, high), old in each)
    trace = step.plan.trace(results[1:]) if keep_trace else None
    return Scanned(results[0], finals, trace)


def _side_by_side(states: Any) -> Tensor:
    return torch.cat([state.reshape(state.shape[0], -1) for state in states], 1)


# ---------------------------------------------------------------------------------------------------- the gradient


@dataclass(frozen=True)
class _Saved:
    """What the backward pass needs beside tensors with gradients."""

    step: BatchedStep
    valid: Tensor | None
    resets: Tensor | None
    masks: int
    restarts: bool
    name: str

    def given(self, tensors: list[Tensor]) -> Given:
        x, start, *rest = tensors
        fresh = rest.pop(0) if self.restarts else None
        return Given(x, start, fresh, rest[: self.masks], rest[self.masks :], self.valid, self.resets)


class _Solved(torch.autograd.Function):
    """Final states (B, n) and outputs of the solved states; backward is one linear system at the solution."""

    @staticmethod
    def forward(ctx, saved, states, *tensors):  # pyrefly: ignore
        given = saved.given(list(tensors))
        ctx.saved = saved
        ctx.save_for_backward(states, *tensors)
        _, results = Evaluation(saved.step, given).run(before(states, given.start))
        return states[-1].clone(), *results

    @staticmethod
    def backward(ctx, final, *cotangents):  # pyrefly: ignore
        states, *tensors = ctx.saved_tensors
        differentiable = torch.is_grad_enabled()
        with torch.enable_grad():
            inputs = [t.view_as(t) if t.requires_grad else t for t in tensors]
            given = ctx.saved.given(inputs)
            grads = None if differentiable else _implicit(ctx.saved, given, states, inputs, final, cotangents)
            if grads is None:
                grads = _through_loop(ctx.saved, given, inputs, final, cotangents, differentiable)
        return None, None, *grads


def _implicit(saved: _Saved, given: Given, states: Tensor, inputs: list[Tensor], final, cotangents):
    """Gradients by the implicit function theorem; None, with one warning, if the system does not converge."""
    evaluation = Evaluation(saved.step, given)
    old = before(states, given.start.detach()).requires_grad_()
    new, results = evaluation.run(old)
    pairs = [(r, c) for r, c in zip(results, cotangents, strict=True) if r.requires_grad]
    direct = _pull(pairs, [old], retain_graph=True)[0]
    direct = torch.zeros_like(old) if direct is None else direct
    first = torch.cat([direct[1:], final[None]])
    with torch.no_grad():
        plain = Given(*(_detach(value) for value in vars(given).values()))
    solution = solve_cotangents(saved.step, Evaluation(saved.step, plain), old, new, first)
    if solution.why:
        warn_once(f"{saved.name} takes gradients along its loop over time, as iterations failed: {solution.why}.")
        return None
    wanted = [t for t in inputs if t.requires_grad]
    pairs = [*pairs, *([(new, solution.values)] if new.requires_grad else [])]
    found = _pull(pairs, [*wanted, old])
    at_start = found[-1][0] if found[-1] is not None else None  # start enters as the state before the first step
    each = dict(zip(map(id, wanted), found, strict=False))
    each[id(given.start)] = at_start
    return [each.get(id(t)) if t.requires_grad else None for t in inputs]


def _detach(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [tensor.detach() for tensor in value]
    return value.detach() if isinstance(value, Tensor) else value


def _pull(pairs: list[tuple[Tensor, Tensor]], inputs: list[Tensor], **options: bool) -> tuple[Tensor | None, ...]:
    outputs, seeds = [r for r, _ in pairs], [c for _, c in pairs]
    return torch.autograd.grad(outputs, inputs, seeds, allow_unused=True, **options)


def _through_loop(saved: _Saved, given: Given, inputs: list[Tensor], final, cotangents, differentiable: bool):
    """Gradients of the same steps, one after another: for second derivatives, and where the iterations fail."""
    state, rows = given.start, []
    each = [kind == "step" for kind in saved.step.plan.masks.values()]
    for t in range(given.x.shape[0]):
        masks = [m[t : t + 1] if by_step else m for m, by_step in zip(given.masks, each, strict=True)]
        valid, resets = (None if v is None else v[t : t + 1] for v in (given.valid, given.resets))
        one = Given(given.x[t : t + 1], state, given.fresh, masks, given.weights, valid, resets)
        new, results = Evaluation(saved.step, one).run(state[None])
        state = new[0]
        rows.append(results)
    values = [state, *(torch.cat(column) for column in zip(*rows, strict=True))]
    pairs = [(v, c) for v, c in zip(values, (final, *cotangents), strict=True) if v.requires_grad]
    wanted = [t for t in inputs if t.requires_grad]
    found = iter(_pull(pairs, wanted, create_graph=differentiable))
    return [next(found) if t.requires_grad else None for t in inputs]
