"""Recipes for reservoir matrices besides the sparse random one: a ring, and intrinsic plasticity."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from ..argument_checks import instance_of
from ..errors import InputError
from .matrices import Weights
from .number_checks import check_range, check_whole
from .series import series


def ring(
    units: int,
    inputs: int,
    weight: float = 0.9,
    input_scaling: float = 0.5,
    *,
    bias: float = 0.0,
    jumps: int = 0,
    jump_weight: float = 0.0,
    random_state: int | None = 0,
) -> Weights:
    """The simple cycle reservoir: every unit reads its neighbour, all with one weight (Rodan & Tiňo 2011).

    All inputs have one absolute value; only their signs are random. `jumps` adds connections over that many units in
    both directions, with one weight (cycle reservoir with jumps, Rodan & Tiňo 2012).

    **Arguments**

    - `units`, `inputs`: N and d.
    - `weight`: of the ring; without jumps it is the spectral radius. `input_scaling`: the size of all input weights.
    - `bias`: the size of all biases. `jumps`, `jump_weight`: the length and the weight of the jumps; 0 for none.
    - `random_state`: the seed of the signs.

    **Returns** a `Weights` for `rc.EchoStateNetwork(weights=…)`.

    **Example**

    >>> weights = rc.reservoir.ring(20, 1, weight=0.8)
    >>> round(rc.reservoir.spectral_radius(weights.W), 6)
    0.8
    >>> network = rc.EchoStateNetwork(weights=weights)
    """
    check_whole("units", units, 2)
    check_whole("inputs", inputs, 0)
    check_whole("jumps", jumps, 0)
    for name, value in {"weight": weight, "bias": bias, "jump_weight": jump_weight}.items():
        check_range(name, value, "a finite number", lambda v: True)
    random = np.random.default_rng(random_state)
    here = np.arange(units)
    W = sparse.lil_array((units, units))
    W[here, here - 1] = weight
    if jumps:
        for start in range(0, units - units % jumps, jumps):
            end = (start + jumps) % units
            W[end, start] = W[start, end] = jump_weight
    signs = random.choice([-1.0, 1.0], (units, inputs + 1))
    return Weights.given(W.tocsr(), input_scaling * signs[:, :-1], None, bias * signs[:, -1])


def intrinsic_plasticity(
    weights: Weights,
    X: Any,
    mean: float = 0.0,
    std: float = 0.2,
    *,
    leak: float = 1.0,
    rate: float = 1e-3,
    epochs: int = 5,
    washout: int = 100,
) -> Weights:
    """Adapt the gain and the bias of every unit until its outputs are about Gaussian (Schrauwen et al. 2008).

        y = tanh(a x + b),  Δb = -η (-μ/σ² + y/σ² (2σ² + 1 - y² + μ y)),  Δa = η/a + Δb x

    Each unit follows the gradient of the divergence between its distribution and N(μ, σ²), without any target. Gains
    and biases become part of the matrices.

    **Arguments**

    - `weights`: the reservoir, e.g. from `rc.reservoir.draw` or `ring`, without feedback.
    - `X`: a series (T, d), or a list of them.
    - `mean`, `std`: μ and σ. `leak`: of the reservoir. `rate`: η. `epochs`: passes over the series.
    - `washout`: first steps of a series that are not learned from.

    **Returns** the adapted `Weights`.

    **Example**

    >>> x = torch.randn(400, 1).numpy()
    >>> weights = rc.reservoir.intrinsic_plasticity(rc.reservoir.ring(20, 1), x, epochs=1)
    >>> network = rc.EchoStateNetwork(weights=weights)
    """
    instance_of("weights", weights, Weights, "the matrices of a reservoir, as rc.reservoir.draw gives them")
    if weights.F.shape[1]:
        raise InputError("weights", f"F with {weights.F.shape[1]} columns", "a reservoir without feedback")
    check_range("std", std, "a positive number", lambda v: v > 0)
    check_range("rate", rate, "a positive number", lambda v: v > 0)
    check_range("leak", leak, "a rate in (0, 1]", lambda v: 0 < v <= 1)
    check_whole("epochs", epochs, 1)
    gain, bias = np.ones(len(weights.b)), np.zeros(len(weights.b))
    for _ in range(epochs):
        for x in series("X", X, weights.U.shape[1]):
            gain, bias = _adapt(weights, x, gain, bias, (mean, std**2, rate, leak), washout)
    return apply_gains(weights, gain, bias)


def _adapt(
    weights: Weights, x: np.ndarray, gain: np.ndarray, bias: np.ndarray, rule: tuple[float, ...], washout: int
) -> tuple[np.ndarray, np.ndarray]:
    """One pass over a series, an update at every step."""
    mu, variance, rate, leak = rule
    h = np.zeros(len(gain))
    drive = x @ weights.U.T + weights.b
    for t, one in enumerate(drive):
        total = weights.W @ h + one
        y = np.tanh(gain * total + bias)
        h = (1 - leak) * h + leak * y
        if t < washout:
            continue
        step = -rate * (-mu / variance + y / variance * (2 * variance + 1 - y**2 + mu * y))
        bias = bias + step
        gain = gain + rate / gain + step * total
    return gain, bias


def apply_gains(weights: Weights, gain: ArrayLike, bias: ArrayLike) -> Weights:
    """tanh(a ⊙ (W h + U x + b) + c) as a reservoir without gains."""
    gain, bias = np.asarray(gain), np.asarray(bias)
    W = sparse.diags_array(gain) @ weights.W
    return Weights(sparse.csr_array(W), gain[:, None] * weights.U, gain[:, None] * weights.F, gain * weights.b + bias)
