"""Three systems whose answers are known."""

import torch
from torch import Tensor

from .system import DynamicalSystem


def logistic(r: float = 4.0) -> DynamicalSystem:
    """h ↦ r h (1 - h) on [0, 1]. With r = 4 the exponent is ln 2."""
    return DynamicalSystem(lambda h: r * h * (1 - h))


def henon(a: float = 1.4, b: float = 0.3) -> DynamicalSystem:
    """(x, y) ↦ (1 - a x² + y, b x). The exponents add up to ln b."""

    def step(h: Tensor) -> Tensor:
        x, y = h.unbind(-1)
        return torch.stack([1 - a * x * x + y, b * x], dim=-1)

    return DynamicalSystem(step)


def lorenz(sigma: float = 10.0, rho: float = 28.0, beta: float = 8 / 3, dt: float = 0.01) -> DynamicalSystem:
    """Lorenz's convection. The largest exponent is 0.906; all three add up to -(σ + 1 + β)."""

    def field(h: Tensor) -> Tensor:
        x, y, z = h.unbind(-1)
        return torch.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], dim=-1)

    return DynamicalSystem.flow(field, dt)
