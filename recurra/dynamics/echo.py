"""What a driven system keeps of its past: the echo-state test and memory capacity (Jaeger 2001)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError, ShapeError
from .system import DynamicalSystem, check_points


@dataclass(frozen=True)
class EchoState:
    """Whether orbits from different starts, driven alike, become one; and how fast."""

    holds: bool
    rate: float  # logarithm of the factor the distance takes a step, in its last half; below 0 is forgetting
    distances: Tensor  # (T + 1,) the largest distance from the first orbit, relative to the one at the start


def echo_state(
    system: DynamicalSystem, inputs: Tensor, starts: Tensor, *, remaining: float = 1e-3, slowest: float = -1e-3
) -> EchoState:
    """The test by several orbits from `starts` (n, p), driven by the same `inputs` (T, d).

    It holds if less than the share `remaining` of the distance is left, or what is left still shrinks faster than
    `slowest` a step. A numerical test for this input, where ρ(W) < 1 is neither needed nor enough.
    """
    points = check_points("starts", starts)
    if len(points) < 2 or len(inputs) < 2:
        raise InputError("starts", f"{len(points)} starts, {len(inputs)} inputs", "at least two of each")
    with torch.no_grad():
        orbits = system.simulate(points, inputs=inputs[:, None].expand(-1, len(points), -1))
    return judge((orbits[:, 1:] - orbits[:, :1]).norm(dim=-1).amax(dim=1), remaining, slowest)


def judge(distances: Tensor, remaining: float = 1e-3, slowest: float = -1e-3) -> EchoState:
    """The verdict on the distances (T + 1,) between orbits."""
    if not float(distances[0]) > 0:
        raise InputError("starts", "starts that are the same", "different ones")
    shares = distances / distances[0]
    floor = 1e-300
    middle, last = float(shares[len(shares) // 2]), float(shares[-1])
    steps = max(1, len(shares) - 1 - len(shares) // 2)
    rate = math.log(max(last, floor) / max(middle, floor)) / steps if middle > 1e-13 else -math.inf
    return EchoState(last < remaining or rate < slowest, rate, shares)


@dataclass(frozen=True)
class MemoryCapacity:
    """How well a linear readout recalls an independent input, for each delay."""

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
    """Drive the system, `size` numbers wide, with one input uniform on (-scale, scale), and recall it."""
    random = torch.Generator().manual_seed(seed)
    signal = scale * (2 * torch.rand(washout + steps, generator=random, dtype=torch.float64) - 1)
    with torch.no_grad():
        states = system.simulate(torch.zeros(size, dtype=torch.float64), inputs=signal[:, None])[1:]
    return recalled(states, signal, delays=delays, washout=washout, ridge=ridge)


def recalled(
    states: Tensor, signal: Tensor, *, delays: int = 40, washout: int = 0, ridge: float = 1e-9
) -> MemoryCapacity:
    """Memory capacity of states (T, p) that a signal (T,) has driven.

    The readout is fitted to the first half and correlated on the second: on the same data, chance would count.
    """
    first = max(washout, delays)
    if states.dim() != 2 or signal.shape != states.shape[:1]:
        raise ShapeError("states", f"{tuple(states.shape)} beside a signal {tuple(signal.shape)}", "(T, p) beside (T,)")
    if len(signal) - first < 4:
        raise InputError("states", f"{len(signal)} steps", f"more than the washout and the delays, {first}")
    ago = torch.stack([signal[first - k : len(signal) - k] for k in range(1, delays + 1)], dim=-1)  # (T', K)
    kept = torch.cat([states[first:], states.new_ones(len(states) - first, 1)], dim=-1)
    half = len(kept) // 2
    left, sigma, right = torch.linalg.svd(kept[:half], full_matrices=False)
    weights = right.T @ ((sigma / (sigma**2 + ridge))[:, None] * (left.T @ ago[:half]))
    answers, wanted = kept[half:] @ weights, ago[half:]
    answers, wanted = answers - answers.mean(dim=0), wanted - wanted.mean(dim=0)
    power = answers.square().sum(dim=0) * wanted.square().sum(dim=0)
    return MemoryCapacity((answers * wanted).sum(dim=0).square() / power.clamp_min(1e-300))
