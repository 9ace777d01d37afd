"""Newton iterations for the states of all steps, and the linear system of their cotangents (DEER, Lim et al. 2024).

A guess s leaves the residual r_t = f(s_{t-1}) - s_t. The correction solves δ_t = J_t δ_{t-1} + r_t, one linear scan.
With the diagonal of J instead of J (quasi-DEER, Gonzalez et al. 2024) the solution is the same, in more iterations.

States are accepted by their residual alone, number by number: every step must hold to what rounding the state before it
would change. How small a correction is says less: a number of 1e-9 may grow to 1 some steps later.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .batched_step import BatchedStep, Evaluation
from .linear_scan import linear_scan, reverse_scan

MAX_ITERATIONS = 100
ROUNDINGS = 8.0  # units of rounding, of a number and of what it is computed from, that a residual may have
NOISE = 256.0  # and the most it may have, relative to the largest number of the same state at the same step
DRAWS = 8  # random roundings: in a sum, some cancel


class Solution(NamedTuple):
    """States (T, B, n) or their cotangents, and the iterations; `why` says what prevented convergence, if anything."""

    values: Tensor
    iterations: int
    why: str = ""


def solve_states(step: BatchedStep, evaluation: Evaluation) -> Solution:
    """The states after every step, with s_t = f(s_{t-1})."""
    given = evaluation.given
    evaluation.prepare()
    states = given.start.expand(given.x.shape[0], *given.start.shape).clone()
    last = float("inf")
    for count in range(1, MAX_ITERATIONS + 1):
        old = before(states, given.start)
        new, jacobians = evaluation.linearise(old)
        residual = new - states
        if not torch.isfinite(residual).all():
            return Solution(states, count, "a step gives NaN or infinity")
        if _is_rounding(step, residual, new, old, lambda moved: evaluation.linearise(moved)[0]):
            return Solution(states, count)
        size = float(residual.abs().amax())
        if size >= last:
            jacobians = [_contracting(a) for a in jacobians]
        last = size
        correction = _correct(step, jacobians, residual, linear_scan)
        states = states + torch.where(torch.isfinite(correction), correction, residual)
    return Solution(states, MAX_ITERATIONS, f"the states still change after {MAX_ITERATIONS} iterations")


def solve_cotangents(step: BatchedStep, evaluation: Evaluation, old: Tensor, new: Tensor, first: Tensor) -> Solution:
    """The cotangents u of the new states: u_t = J_{t+1}ᵀ u_{t+1} + first_t. `new` is the step of `old`, as a graph."""

    def pulled(cotangents: Tensor) -> Tensor:
        if not new.requires_grad:
            return first
        (found,) = torch.autograd.grad(new, old, cotangents, retain_graph=True, allow_unused=True)
        return first if found is None else _after(found) + first

    with torch.no_grad():
        evaluation.prepare()
        jacobians = [_after(a.transpose(2, 3)) for a in evaluation.linearise(old.detach())[1]]
        cotangents = _correct(step, jacobians, first, reverse_scan)
    for count in range(1, MAX_ITERATIONS + 1):
        again = pulled(cotangents)
        residual = again - cotangents
        if not torch.isfinite(residual).all():
            return Solution(cotangents, count, "a gradient is NaN or infinite")
        if _is_rounding(step, residual, again, cotangents, pulled):
            return Solution(cotangents, count)
        cotangents = cotangents + _correct(step, jacobians, residual, reverse_scan)
    return Solution(cotangents, MAX_ITERATIONS, f"the gradients still change after {MAX_ITERATIONS} iterations")


def before(states: Tensor, start: Tensor) -> Tensor:
    """The states before every step, from those after."""
    return torch.cat([start[None], states[:-1]])


def _after(values: Tensor) -> Tensor:
    """The value of the next step at each step, zeros at the last."""
    return torch.cat([values[1:], torch.zeros_like(values[:1])])


def _correct(step: BatchedStep, jacobians: list[Tensor], residual: Tensor, scan) -> Tensor:
    result = torch.empty_like(residual)
    for block, jacobian in zip(step.jacobian.blocks, jacobians, strict=True):
        columns = step.columns(block)
        rows = torch.stack([residual[..., low:high] for low, high in columns], 2)
        for (low, high), part in zip(columns, scan(jacobian, rows).unbind(2), strict=True):
            result[..., low:high] = part
    return result


def _contracting(a: Tensor) -> Tensor:
    """The Jacobian with rows that sum to at most one: the correction cannot overflow."""
    return a / a.abs().sum(3, keepdim=True).amax(2, keepdim=True).clamp_min(1.0)


def _is_rounding(
    step: BatchedStep, residual: Tensor, new: Tensor, old: Tensor, function: Callable[[Tensor], Tensor]
) -> bool:
    """Whether `residual` is what rounding `old` and `new = function(old)` explains, in every number."""
    eps, size = torch.finfo(new.dtype).eps, residual.abs()
    own = ROUNDINGS * eps * new.abs()
    if (size <= own).all():
        return True
    largest = torch.empty_like(new)
    for low, high in step.offsets.values():
        largest[..., low:high] = new[..., low:high].abs().amax(-1, keepdim=True)
    if not (size <= own + NOISE * eps * largest).all():
        return False
    allowed = own
    own_draws = torch.Generator(old.device).manual_seed(0)  # torch's global generator is the caller's
    for _ in range(DRAWS):
        signs = torch.rand(old.shape, dtype=old.dtype, device=old.device, generator=own_draws).sub_(0.5).sign_()
        moved = (function(old + old * signs * eps) - new).abs()
        allowed = torch.maximum(allowed, own + torch.minimum(ROUNDINGS * moved, NOISE * eps * largest))
        if (size <= allowed).all():
            return True
    return False
