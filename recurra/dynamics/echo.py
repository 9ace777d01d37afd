"""Fading memory of driven systems: the echo-state test and memory capacity (Jaeger 2001)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..argument_checks import finite_number, instance_of, positive_int, whole_number
from ..errors import InputError, ShapeError
from .system import DynamicalSystem, check_points, check_system


@dataclass(frozen=True)
class EchoState:
    """Echo-state test: whether orbits from different starts converge under the same input, and how fast.

    **Example**

        >>> system = rc.DynamicalSystem.neural(0.5 * torch.eye(3), torch.ones(3, 1))
        >>> found = rc.dynamics.echo_state(system, torch.randn(50, 1), torch.randn(4, 3))
        >>> found.holds, found.rate < 0
        (True, True)
    """

    holds: bool
    rate: float  # log of the distance ratio per step over the last half; negative: converging
    distances: Tensor  # (T + 1,) largest distance from the first orbit, relative to the start


def echo_state(
    system: DynamicalSystem, inputs: Tensor, starts: Tensor, *, remaining: float = 1e-3, slowest: float = -1e-3
) -> EchoState:
    """Test the echo-state property numerically: orbits from several starts, driven by the same input.

    The property holds for this input if less than the share `remaining` of the distance is left, or if the distance
    still shrinks faster than `slowest` per step. ρ(W) < 1 is neither necessary nor sufficient for it.

    **Arguments**

    - `system`: a driven system.
    - `inputs`: (T, d), at least two steps. `starts`: (n, p), at least two different states.

    **Returns** an `EchoState`: `holds`, `rate`, `distances`.

    **Example**

    >>> system = rc.DynamicalSystem.neural(0.5 * torch.eye(3), torch.ones(3, 1))
    >>> rc.dynamics.echo_state(system, torch.randn(50, 1), torch.randn(4, 3)).holds
    True
    """
    points = check_points("starts", starts)
    if len(points) < 2 or len(inputs) < 2:
        raise InputError("starts", f"{len(points)} starts, {len(inputs)} inputs", "at least two of each")
    with torch.no_grad():
        orbits = system.simulate(points, inputs=inputs[:, None].expand(-1, len(points), -1))
    return verdict((orbits[:, 1:] - orbits[:, :1]).norm(dim=-1).amax(dim=1), remaining, slowest)


def verdict(distances: Tensor, remaining: float = 1e-3, slowest: float = -1e-3) -> EchoState:
    """The `EchoState` of distances (T + 1,) between orbits."""
    if not float(distances[0]) > 0:
        raise InputError("starts", "identical starts", "different ones")
    shares = distances / distances[0]
    floor = 1e-300
    middle, last = float(shares[len(shares) // 2]), float(shares[-1])
    steps = max(1, len(shares) - 1 - len(shares) // 2)
    rate = math.log(max(last, floor) / max(middle, floor)) / steps if middle > 1e-13 else -math.inf
    return EchoState(last < remaining or rate < slowest, rate, shares)


@dataclass(frozen=True)
class MemoryCapacity:
    """Memory capacity: how well a linear readout recalls an i.i.d. input at each delay.

    **Example**

        >>> shift = torch.diag(torch.ones(2, dtype=torch.float64), -1)  # a delay line of three units
        >>> line = rc.DynamicalSystem.linear(shift, torch.eye(3, 1, dtype=torch.float64))
        >>> found = rc.dynamics.memory_capacity(line, 3, delays=5)
        >>> [round(value, 1) for value in found.recalled.tolist()], round(found.total, 1)
        ([1.0, 1.0, 0.0, 0.0, 0.0], 2.0)
    """

    recalled: Tensor  # (K,) squared correlation at delays 1 … K

    @property
    def total(self) -> float:
        """Σ_k corr²: at most the number of units (Jaeger 2001)."""
        return float(self.recalled.sum())


def memory_capacity(
    system: DynamicalSystem,
    size: int,
    *,
    delays: int = 40,
    steps: int = 2000,
    washout: int = 200,
    scale: float = 1.0,
    ridge: float = 1e-9,
    seed: int = 0,
) -> MemoryCapacity:
    """Memory capacity (Jaeger 2001): drive the system with i.i.d. input and reconstruct past inputs linearly.

    **Arguments**

    - `system`: a driven system with one input. `size`: the size of its state.
    - `delays`: the largest delay. `steps`, `washout`: length of the signal, and steps before it that are discarded.
    - `scale`: the input is uniform on (-scale, scale). `ridge`: regularisation of the readout. `seed`: of the input.

    **Returns** a `MemoryCapacity`: `recalled` (delays,), squared correlations, and their sum `total`.

    **Example**

    >>> shift = torch.diag(torch.ones(4, dtype=torch.float64), -1)  # a delay line of five units
    >>> first = torch.eye(5, 1, dtype=torch.float64)
    >>> round(rc.dynamics.memory_capacity(rc.DynamicalSystem.linear(shift, first), 5, delays=10).total, 1)
    4.0
    """
    check_system(system)
    positive_int("size", size)
    positive_int("steps", steps)
    whole_number("washout", washout)
    finite_number("scale", scale)
    random = torch.Generator().manual_seed(whole_number("seed", seed))
    signal = scale * (2 * torch.rand(washout + steps, generator=random, dtype=torch.float64) - 1)
    with torch.no_grad():
        states = system.simulate(torch.zeros(size, dtype=torch.float64), inputs=signal[:, None])[1:]
    return recalled(states, signal, delays=delays, washout=washout, ridge=ridge)


def recalled(
    states: Tensor, signal: Tensor, *, delays: int = 40, washout: int = 0, ridge: float = 1e-9
) -> MemoryCapacity:
    """Memory capacity from states (T, p) and the signal (T,) that drove them.

    The readout is fitted to the first half and correlated on the second, so that overfitting does not count.

    **Returns** a `MemoryCapacity`.

    **Example**

    >>> signal = torch.randn(500, dtype=torch.float64)
    >>> states = torch.stack([signal.roll(1), signal.roll(2)], dim=1)
    >>> round(rc.dynamics.recalled(states, signal, delays=5, washout=10).total, 1)
    2.0
    """
    for name, value in (("states", states), ("signal", signal)):
        instance_of(name, value, Tensor, "a tensor")
    first = max(whole_number("washout", washout), positive_int("delays", delays))
    if states.dim() != 2 or signal.shape != states.shape[:1]:
        raise ShapeError("states", f"{tuple(states.shape)} beside a signal {tuple(signal.shape)}", "(T, p) beside (T,)")
    if len(signal) - first < 4:
        raise InputError("states", f"{len(signal)} steps", f"more than the washout and the delays, {first}")
    past = torch.stack([signal[first - k : len(signal) - k] for k in range(1, delays + 1)], dim=-1)  # (T', K)
    kept = torch.cat([states[first:], states.new_ones(len(states) - first, 1)], dim=-1)
    half = len(kept) // 2
    left, sigma, right = torch.linalg.svd(kept[:half], full_matrices=False)
    weights = right.T @ ((sigma / (sigma**2 + ridge))[:, None] * (left.T @ past[:half]))
    answers, targets = kept[half:] @ weights, past[half:]
    answers, targets = answers - answers.mean(dim=0), targets - targets.mean(dim=0)
    power = answers.square().sum(dim=0) * targets.square().sum(dim=0)
    return MemoryCapacity((answers * targets).sum(dim=0).square() / power.clamp_min(1e-300))
