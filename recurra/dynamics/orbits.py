"""Where orbits end: fixed points, and how attractors change with a parameter."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .system import DynamicalSystem, check_points


@dataclass(frozen=True)
class FixedPoints:
    """The different h with h = f(h) that were found, and the eigenvalues of f's Jacobian there."""

    points: Tensor  # (n, p)
    eigenvalues: Tensor  # (n, p) complex, largest modulus first

    @property
    def stable(self) -> Tensor:
        """(n,) whether nearby orbits are drawn in: every eigenvalue inside the unit circle."""
        return self.eigenvalues.abs().amax(dim=-1) < 1

    def __len__(self) -> int:
        return len(self.points)


def fixed_points(
    system: DynamicalSystem, starts: Tensor, tolerance: float = 1e-9, iterations: int = 100
) -> FixedPoints:
    """Newton's method on f(h) - h from every start (n, p) at once; a step that makes things worse is halved."""
    points = check_points("starts", starts).detach().clone()
    if system.driven:
        raise InputError("system", "a driven system", "an autonomous one; `frozen(x)` holds the input")
    eye = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
    for _ in range(iterations):
        residual = _residual(system, points)
        if bool((residual.norm(dim=-1) <= tolerance).all()):
            break
        direction = -torch.linalg.pinv(system.jacobians(points) - eye) @ residual[..., None]
        points = _damped(system, points, direction.squeeze(-1), residual)
    found = points[_residual(system, points).norm(dim=-1) <= tolerance]
    found = _different(found, max(1e-6, 10 * tolerance))
    eigenvalues = torch.linalg.eigvals(system.jacobians(found)) if len(found) else found.to(torch.complex128)
    order = eigenvalues.abs().argsort(dim=-1, descending=True)
    return FixedPoints(found, eigenvalues.gather(-1, order))


def _residual(system: DynamicalSystem, points: Tensor) -> Tensor:
    with torch.no_grad():
        return system.step(points) - points


def _damped(system: DynamicalSystem, points: Tensor, direction: Tensor, residual: Tensor) -> Tensor:
    length = torch.ones(len(points), 1, dtype=points.dtype, device=points.device)
    for _ in range(12):
        moved = _residual(system, points + length * direction).norm(dim=-1, keepdim=True)
        worse = ~(moved < residual.norm(dim=-1, keepdim=True))
        if not bool(worse.any()):
            break
        length = torch.where(worse, length / 2, length)
    return points + length * direction


def _different(points: Tensor, distance: float) -> Tensor:
    kept: list[Tensor] = []
    for point in points:
        if all(bool((point - other).norm() > distance * (1 + point.norm())) for other in kept):
            kept.append(point)
    return torch.stack(kept) if kept else points[:0]


@dataclass(frozen=True)
class Bifurcation:
    """What the orbit visits, for every value of a parameter."""

    values: Tensor  # (n,)
    points: Tensor  # (n, keep, p)

    def periods(self, tolerance: float = 1e-6) -> Tensor:
        """(n,) the smallest period of what was visited, 0 where there is none: chaos, or a longer one."""
        keep = self.points.shape[1]
        found = torch.zeros(len(self.values), dtype=torch.int64)
        for period in range(keep // 2, 0, -1):
            apart = (self.points[:, period:] - self.points[:, :-period]).abs().amax(dim=(1, 2))
            found[apart <= tolerance] = period
        return found


def bifurcation(
    family: Callable[[float], DynamicalSystem], values: Tensor, start: Tensor, transient: int = 500, keep: int = 64
) -> Bifurcation:
    """Sweep a parameter: `family(value)` is an autonomous system; its first `transient` steps are let pass."""
    values = torch.as_tensor(values, dtype=torch.float64)
    if values.dim() != 1 or not len(values) or keep < 1 or transient < 0:
        raise InputError(
            "values", f"shape {tuple(values.shape)}, keep {keep}", "parameter values (n,), keep of at least 1"
        )
    with torch.no_grad():
        orbits = [family(float(v)).simulate(start, transient + keep - 1)[transient:] for v in values]
    return Bifurcation(values, torch.stack(orbits))
