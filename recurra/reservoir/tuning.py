"""Gradient descent on the global parameters of an echo state network (Jaeger et al. 2007).

For η among leak γ, decay a, spectral radius ρ, input scaling s and feedback scaling f, the derivative of the state runs
forward with it:

    ∂h_t/∂η = (1 - aγ) ∂h_{t-1}/∂η + γ (1 - g_t²) ⊙ (ρ Ŵ ∂h_{t-1}/∂η + direct_t) + own_t,  g_t = tanh(a_t)

`direct` is Ŵ h_{t-1} for ρ, Û x_t for s, F̂ y_{t-1} for f; `own` is g_t - a h_{t-1} for γ and -γ h_{t-1} for a. The
readout is solved anew in every round. At its optimum the derivative of the penalised error does not pass through it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from ..errors import OptionError
from .core import LeakyReservoir
from .number_checks import check_range, check_whole

if TYPE_CHECKING:
    from .network import EchoStateNetwork

NAMES = ("leak", "decay", "spectral_radius", "input_scaling", "feedback")


@dataclass(frozen=True)
class Tuned:
    """What `tune` found: the network, fitted with the best parameters; the errors and parameters of every round.

    **Example**

        >>> x = torch.randn(600, 1)
        >>> network = rc.EchoStateNetwork(units=30, leak=0.4, random_state=0)
        >>> found = rc.reservoir.tune(network, x.numpy(), x.roll(5, 0).numpy(), rounds=3)
        >>> len(found.errors), sorted(found.parameters[0])
        (4, ['input_scaling', 'leak', 'spectral_radius'])
    """

    network: "EchoStateNetwork"
    errors: tuple[float, ...]
    parameters: tuple[dict[str, float], ...]


def tune(
    network: "EchoStateNetwork",
    X: Any = None,
    y: Any = None,
    *,
    parameters: tuple[str, ...] = ("leak", "spectral_radius", "input_scaling"),
    rounds: int = 30,
    rate: float = 0.05,
) -> Tuned:
    """Descend the training error of an echo state network by its global parameters (Jaeger et al. 2007).

    Each parameter moves on a logarithmic scale by `rate` times its share of the gradient; a step that makes the error
    worse is halved and tried again.

    **Arguments**

    - `network`: an `rc.EchoStateNetwork` of one reservoir of leaky units with a ridge readout. It is not changed.
    - `X`, `y`: as in `fit`, with targets at every step.
    - `parameters`: those to change, among "leak", "decay", "spectral_radius", "input_scaling" and "feedback".
    - `rounds`: how many steps. `rate`: the length of the first step in logarithms.

    **Returns** a `Tuned`: `network`, fitted; `errors`, the penalised mean squared error of every round; `parameters`.

    **Example**

    >>> x = torch.randn(600, 1)
    >>> y = x.roll(5, 0)  # what was there five steps ago
    >>> network = rc.EchoStateNetwork(units=30, leak=0.4, random_state=0)
    >>> found = rc.reservoir.tune(network, x.numpy(), y.numpy(), rounds=5)
    >>> found.errors[-1] < found.errors[0]
    True
    """
    if not hasattr(network, "leak"):
        raise OptionError("network", type(network).__name__, "an rc.EchoStateNetwork")
    unknown = [name for name in parameters if name not in NAMES]
    if unknown or not parameters:
        raise OptionError("parameters", parameters, f"some of {', '.join(NAMES)}")
    for name in parameters:
        check_range(name, getattr(network, name), "one positive number to start from", lambda v: v > 0)
    check_whole("rounds", rounds, 1)
    check_range("rate", rate, "a positive number", lambda v: v > 0)
    best = _measure(network, X, y, parameters)
    errors, seen, step = [best.error], [best.values], rate
    for _ in range(rounds):
        slope = np.array([best.gradient[name] * best.values[name] for name in parameters])  # by log η
        if not np.linalg.norm(slope) > 0 or step < 1e-6 * rate:
            break
        move = -step * slope / np.linalg.norm(slope)
        values = {n: best.values[n] * float(np.exp(m)) for n, m in zip(parameters, move, strict=True)}
        trial = _measure(clone(network).set_params(**_within(network, values)), X, y, parameters)
        step = 1.2 * step if trial.error < best.error else 0.5 * step
        best = min(best, trial, key=lambda found: found.error)
        errors.append(best.error)
        seen.append(best.values)
    return Tuned(best.network, tuple(errors), tuple(seen))


def _within(network: "EchoStateNetwork", values: dict[str, float]) -> dict[str, float]:
    """Parameters inside their ranges: γ ≤ 1 and aγ ≤ 1."""
    leak = min(values.get("leak", float(network.leak)), 1.0)
    decay = min(values.get("decay", float(network.decay)), 1.0 / leak)
    bounded = {"leak": leak, "decay": decay}
    return {name: bounded.get(name, value) for name, value in values.items()}


@dataclass(frozen=True)
class _Measured:
    network: "EchoStateNetwork"
    values: dict[str, float]
    error: float
    gradient: dict[str, float]


def _measure(network: "EchoStateNetwork", X: Any, y: Any, names: tuple[str, ...]) -> _Measured:
    """Fit the readout; the penalised mean squared error, and its gradient by the global parameters."""
    fitted = clone(network).fit(X, y)
    reservoir = _check(fitted)
    V = fitted.members_[0].readout
    inputs, targets = fitted._pairs(X, y)
    penalty = float(fitted.ridge_[0] or 0.0)
    total, slopes, count = penalty * float((V**2).sum()), np.zeros(len(names)), 0
    values = {name: float(getattr(fitted, name)) for name in names}
    for x, d in zip(inputs, targets, strict=True):
        h, by = sensitivities(reservoir, values, x, d, bool(fitted.feedback))
        kept = slice(fitted.washout, None)
        residual = fitted.members_[0].features(h[kept], x[kept]) @ V - d[kept]
        total += float((residual**2).sum())
        slopes += 2 * np.einsum("tq,tnk,nq->k", residual, by[kept], V[: reservoir.units])
        count += residual.size
    return _Measured(fitted, values, total / count, dict(zip(names, slopes / count, strict=True)))


def _check(network: "EchoStateNetwork") -> LeakyReservoir:
    layers = network.members_[0].reservoir.layers
    plain = len(network.members_) == len(layers) == 1 and isinstance(layers[0], LeakyReservoir)
    if not plain or network.readout != "ridge" or network.weights is not None or network.noise:
        raise OptionError(
            "network",
            "an ensemble, a stack, cells, given weights, noise or another readout",
            "one reservoir with ridge",
        )
    if network.mode_ == "sequence" or network.output_activation != "identity":
        raise OptionError("network", "labels per series or an output activation", "linear outputs at every step")
    reservoir = layers[0]
    assert isinstance(reservoir, LeakyReservoir)
    return reservoir


def sensitivities(
    reservoir: LeakyReservoir, values: dict[str, float], x: np.ndarray, d: np.ndarray, feedback: bool
) -> tuple[np.ndarray, np.ndarray]:
    """States (T, N) with teacher forcing, and their derivatives (T, N, parameters)."""
    weights, leak, decay = reservoir.weights, reservoir.leak, reservoir.decay
    h, by = np.zeros(reservoir.units), np.zeros((reservoir.units, len(values)))
    before = np.vstack([np.zeros((1, d.shape[1])), d[:-1]])
    states, slopes = [], []
    for x_t, y_t in zip(x, before, strict=True):
        parts = {"spectral_radius": weights.W @ h, "input_scaling": weights.U @ x_t}
        parts["feedback"] = weights.F @ y_t if feedback else np.zeros(reservoir.units)
        g = np.tanh(sum(parts.values()) + weights.b)
        curve = leak * (1 - g**2)
        own = {"leak": g - decay * h, "decay": -leak * h}
        direct = [own[n] if n in own else curve * parts[n] / values[n] for n in values]
        by = (1 - decay * leak) * by + curve[:, None] * (weights.W @ by) + np.column_stack(direct)
        h = (1 - decay * leak) * h + leak * g
        states.append(h)
        slopes.append(by)
    return np.array(states), np.array(slopes)
