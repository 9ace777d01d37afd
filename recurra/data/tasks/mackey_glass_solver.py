"""Solves the Mackey-Glass equation by the method of steps: over one delay it is linear with a known input.

x' = g(t) - γ x with g(t) = β x(t-τ) / (1 + x(t-τ)^n) known, so x(t+h) = e^{-γh} x(t) + ∫ e^{-γ(h-s)} g(t+s) ds. The
integral is Simpson's; the delayed value between grid points comes from the cubic through values and slopes. Both are of
fourth order in h, and a whole delay of steps is computed at once.
"""

import math

import torch
from torch import Tensor

BETA, GAMMA, POWER = 0.2, 0.1, 10


def mackey_glass_series(past: Tensor, steps: int, delay: float, substeps: int = 10) -> Tensor:
    """(steps, B) float64, one unit of time apart, after a past of the constant values `past` (B,)."""
    per_delay = max(1, round(delay * substeps))
    h = delay / per_delay  # the delay is a whole number of substeps exactly
    values = [past.double().expand(per_delay + 1, -1)]  # (per_delay + 1, B): one delay, both ends included
    slopes = [torch.zeros_like(values[0])]
    needed = math.ceil(steps / h) + 1
    for _ in range(math.ceil(needed / per_delay)):
        block, rate = _next_delay(values[-1], slopes[-1], h)
        values.append(block)
        slopes.append(rate)
    solution = torch.cat([values[0][-1:], *(block[1:] for block in values[1:])])  # from t = 0, every h
    rates = torch.cat([slopes[1][:1], *(rate[1:] for rate in slopes[1:])])
    return _interpolate(solution, rates, h, torch.arange(1, steps + 1, dtype=torch.float64))


def _next_delay(values: Tensor, slopes: Tensor, h: float) -> tuple[Tensor, Tensor]:
    """Values and slopes over the next delay from those over the last: (n + 1, B) each."""
    middle = (values[:-1] + values[1:]) / 2 + h / 8 * (slopes[:-1] - slopes[1:])
    ends, between = _production(values), _production(middle)
    decay, half = math.exp(-GAMMA * h), math.exp(-GAMMA * h / 2)
    gain = h / 6 * (decay * ends[:-1] + 4 * half * between + ends[1:])  # (n, B)
    count = len(gain)
    ages = torch.arange(1, count + 1)[:, None] - torch.arange(1, count + 1)  # (n, n)
    weights = torch.where(ages >= 0, decay ** ages.clamp_min(0).double(), 0.0)
    start = decay ** torch.arange(1, count + 1, dtype=torch.float64)[:, None] * values[-1]
    block = torch.cat([values[-1:], start + weights @ gain])
    return block, ends - GAMMA * block


def _production(delayed: Tensor) -> Tensor:
    return BETA * delayed / (1 + delayed**POWER)


def _interpolate(values: Tensor, slopes: Tensor, h: float, times: Tensor) -> Tensor:
    """The cubic through values and slopes, at `times`."""
    left = (times / h).floor().long().clamp_max(len(values) - 2)
    s = (times / h - left)[:, None]
    a, b, da, db = values[left], values[left + 1], h * slopes[left], h * slopes[left + 1]
    return (1 + 2 * s) * (1 - s) ** 2 * a + s * (1 - s) ** 2 * da + s**2 * (3 - 2 * s) * b + s**2 * (s - 1) * db
