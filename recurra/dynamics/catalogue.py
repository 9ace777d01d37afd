"""Three well-known chaotic systems with known Lyapunov exponents."""

import torch
from torch import Tensor

from .system import DynamicalSystem


def logistic(r: float = 4.0) -> DynamicalSystem:
    """Logistic map h ↦ r h (1 - h) on [0, 1]. With r = 4 the Lyapunov exponent is ln 2.

    >>> rc.dynamics.logistic(2.0).simulate(torch.tensor([0.25]), 2).flatten().tolist()
    [0.25, 0.375, 0.46875]
    """
    return DynamicalSystem(lambda h: r * h * (1 - h))


def henon(a: float = 1.4, b: float = 0.3) -> DynamicalSystem:
    """Hénon map (x, y) ↦ (1 - a x² + y, b x). The Lyapunov exponents sum to ln b.

    >>> rc.dynamics.henon().simulate(torch.zeros(2), 100).shape
    torch.Size([101, 2])
    """

    def step(h: Tensor) -> Tensor:
        x, y = h.unbind(-1)
        return torch.stack([1 - a * x * x + y, b * x], dim=-1)

    return DynamicalSystem(step)


def lorenz(sigma: float = 10.0, rho: float = 28.0, beta: float = 8 / 3, dt: float = 0.01) -> DynamicalSystem:
    """Lorenz system, a flow in steps of `dt`. The largest Lyapunov exponent is 0.906; all three sum to -(σ + 1 + β).

    >>> rc.dynamics.lorenz().simulate(torch.ones(3), 100).shape
    torch.Size([101, 3])
    """

    def field(h: Tensor) -> Tensor:
        x, y, z = h.unbind(-1)
        return torch.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], dim=-1)

    return DynamicalSystem.flow(field, dt)
