"""Fixed points by Newton's method, and bifurcation diagrams."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..argument_checks import whole_number
from ..errors import InputError
from .system import DynamicalSystem, check_points, check_system


@dataclass(frozen=True)
class FixedPoints:
    """Distinct fixed points h = f(h), and the eigenvalues of the Jacobian at each.

    **Example**

        >>> starts = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)[:, None]
        >>> found = rc.dynamics.fixed_points(rc.dynamics.logistic(2.0), starts)
        >>> len(found), sorted(found.stable.tolist())
        (2, [False, True])
    """

    points: Tensor  # (n, p)
    eigenvalues: Tensor  # (n, p) complex, largest modulus first

    @property
    def stable(self) -> Tensor:
        """(n,) whether each point attracts nearby orbits: all eigenvalues inside the unit circle."""
        return self.eigenvalues.abs().amax(dim=-1) < 1

    def __len__(self) -> int:
        return len(self.points)


def fixed_points(
    system: DynamicalSystem, starts: Tensor, tolerance: float = 1e-9, iterations: int = 100
) -> FixedPoints:
    """Find fixed points by damped Newton iterations on f(h) - h, from many starts at once.

    **Arguments**

    - `system`: an autonomous system; `system.frozen(x)` fixes the input of a driven one.
    - `starts`: (n, p). `tolerance`: the largest |f(h) - h| of a fixed point.
    - `iterations`: the most Newton steps; a step that increases the residual is halved.

    **Returns** `FixedPoints`: `points` (m, p), `eigenvalues` (m, p), `stable` (m,). Starts that do not converge are
    left out, duplicates count once.

    **Example**

    >>> starts = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)[:, None]
    >>> found = rc.dynamics.fixed_points(rc.dynamics.logistic(2.0), starts)  # 0 and 1/2
    >>> sorted(round(h, 3) for h in found.points.abs().flatten().tolist())
    [0.0, 0.5]
    """
    points = check_points("starts", starts).detach().clone()
    check_system(system)
    if system.driven:
        raise InputError("system", "a driven system", "an autonomous one; system.frozen(x) fixes the input")
    eye = torch.eye(points.shape[1], dtype=points.dtype, device=points.device)
    for _ in range(iterations):
        residual = _residual(system, points)
        if bool((residual.norm(dim=-1) <= tolerance).all()):
            break
        direction = -torch.linalg.pinv(system.jacobians(points) - eye) @ residual[..., None]
        points = _damped(system, points, direction.squeeze(-1), residual)
    found = points[_residual(system, points).norm(dim=-1) <= tolerance]
    found = _distinct(found, max(1e-6, 10 * tolerance))
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


def _distinct(points: Tensor, distance: float) -> Tensor:
    kept: list[Tensor] = []
    for point in points:
        if all(bool((point - other).norm() > distance * (1 + point.norm())) for other in kept):
            kept.append(point)
    return torch.stack(kept) if kept else points[:0]


@dataclass(frozen=True)
class Bifurcation:
    """Points visited after the transient, for every value of a parameter.

    **Example**

        >>> start = torch.tensor([0.3], dtype=torch.float64)
        >>> found = rc.dynamics.bifurcation(rc.dynamics.logistic, torch.tensor([2.8, 3.2]), start)
        >>> found.points.shape[0], found.periods().tolist()
        (2, [1, 2])
    """

    values: Tensor  # (n,)
    points: Tensor  # (n, keep, p)

    def periods(self, tolerance: float = 1e-6) -> Tensor:
        """(n,) the smallest period of the visited points; 0 for chaos or a longer period."""
        keep = self.points.shape[1]
        found = torch.zeros(len(self.values), dtype=torch.int64)
        for period in range(keep // 2, 0, -1):
            apart = (self.points[:, period:] - self.points[:, :-period]).abs().amax(dim=(1, 2))
            found[apart <= tolerance] = period
        return found


def bifurcation(
    family: Callable[[float], DynamicalSystem], values: Tensor, start: Tensor, transient: int = 500, keep: int = 64
) -> Bifurcation:
    """Bifurcation diagram: the attractor of `family(value)` for every value of a parameter.

    **Arguments**

    - `family`: a function from a parameter value to an autonomous system.
    - `values`: (n,). `start`: a state (p,).
    - `transient`: first steps that are discarded. `keep`: points to record after them.

    **Returns** a `Bifurcation`: `values` (n,), `points` (n, keep, p), `periods()` (n,).

    **Example**

    >>> start = torch.tensor([0.3], dtype=torch.float64)
    >>> rc.dynamics.bifurcation(rc.dynamics.logistic, torch.tensor([2.8, 3.2, 3.5]), start).periods()
    tensor([1, 2, 4])
    """
    if not callable(family):
        raise InputError("family", repr(family), "a function from a number to a system")
    whole_number("keep", keep, 1)
    whole_number("transient", transient)
    try:
        values = torch.as_tensor(values, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise InputError("values", repr(values), "numbers (n,)") from error
    if values.dim() != 1 or not len(values) or keep < 1 or transient < 0:
        raise InputError(
            "values", f"shape {tuple(values.shape)}, keep {keep}", "parameter values (n,), keep of at least 1"
        )
    with torch.no_grad():
        orbits = [family(float(v)).simulate(start, transient + keep - 1)[transient:] for v in values]
    return Bifurcation(values, torch.stack(orbits))
