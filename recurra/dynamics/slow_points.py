"""Slow points: where a system almost stands still, found by minimising its speed (Sussillo & Barak 2013)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .orbits import _distinct, _residual
from .system import DynamicalSystem, check_points, check_system

ROUNDS = 40  # of the refinement
CHUNK = 1 << 23  # entries of Jacobians in memory at a time


@dataclass(frozen=True)
class SlowPoints:
    """Distinct points of low speed q = |f(h) - h|² / 2, and the linearisation of the system at each.

    **Example**

        >>> starts = torch.linspace(0.1, 0.9, 5, dtype=torch.float64)[:, None]
        >>> found = rc.dynamics.slow_points(rc.dynamics.logistic(2.0), starts)
        >>> found.points.shape[1:], bool((found.speeds < 1e-6).all())
        (torch.Size([1]), True)
    """

    points: Tensor  # (n, p), slowest first
    speeds: Tensor  # (n,)
    jacobians: Tensor  # (n, p, p)
    eigenvalues: Tensor  # (n, p) complex, largest modulus first

    def __len__(self) -> int:
        return len(self.points)

    @property
    def stable(self) -> Tensor:
        """(n,) whether all eigenvalues are inside the unit circle."""
        return self.eigenvalues.abs().amax(dim=-1) < 1

    @property
    def unstable_directions(self) -> Tensor:
        """(n,) the number of eigenvalues outside the unit circle: 0 attracts, 1 is a saddle between two basins."""
        return (self.eigenvalues.abs() > 1).sum(dim=-1)

    def components(self, orbit: Tensor | None = None, count: int = 2) -> tuple[Tensor, Tensor]:
        """`(mean (p,), axes (p, count))`: principal components of an orbit (…, p), or of the points themselves.

        `(points - mean) @ axes` are the coordinates of a picture.
        """
        cloud = (self.points if orbit is None else orbit).detach().reshape(-1, self.points.shape[-1])
        mean = cloud.mean(dim=0)
        return mean, torch.linalg.svd(cloud - mean, full_matrices=False).Vh[:count].mT


def slow_points(
    system: DynamicalSystem,
    starts: Tensor,
    speed: float = 1e-6,
    distance: float = 1e-2,
    iterations: int = 2000,
    learning_rate: float = 0.01,
) -> SlowPoints:
    """Find fixed and slow points: minima of the speed q(h) = |f(h) - h|² / 2, from many starts at once.

    Newton's method (`rc.dynamics.fixed_points`) finds only exact fixed points. A trained network also computes with
    ghosts and line attractors, where the speed is small but not zero; these are minima of q. Adam moves all starts
    downhill, Levenberg-Marquardt steps refine where they end, and those below `speed` are kept. For the structure of
    a network, start from visited states with some noise added, which finds more saddles, in float64.

    **Arguments**

    - `system`: an autonomous system; `system.frozen(x)` fixes the input of a driven one.
    - `starts`: (n, p), best taken from states that the network visits.
    - `speed`: the largest q of a slow point. `distance`: points closer than this share of their norm count once.
    - `iterations`, `learning_rate`: of Adam; the rate falls linearly to a hundredth.

    **Returns** `SlowPoints`: `points` (m, p), `speeds` and `stable` (m,), `jacobians` (m, p, p), `eigenvalues` (m, p).

    **Example**

    >>> system = rc.DynamicalSystem(lambda h: torch.tanh(2 * h))  # rests at 0 and at ±0.96
    >>> found = rc.dynamics.slow_points(system, torch.linspace(-1, 1, 9)[:, None], speed=1e-8, iterations=500)
    >>> sorted(round(h, 2) + 0.0 for h in found.points.flatten().tolist()), found.stable.sum().item()
    ([-0.96, 0.0, 0.96], 2)
    """
    check_system(system)
    if system.driven:
        raise InputError("system", "a driven system", "an autonomous one; system.frozen(x) fixes the input")
    points = check_points("starts", starts).detach().clone().requires_grad_()
    ball = _ball_around(points.detach())
    adam = torch.optim.Adam([points], lr=learning_rate)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.01, iterations)
    for _ in range(iterations):
        adam.zero_grad()
        (system.step(points) - points).square().sum().div(2).backward()
        adam.step()
        falling.step()
    size = max(1, CHUNK // points.shape[1] ** 2)
    found = torch.cat([_refine(system, part, *ball) for part in points.detach().split(size)])
    speeds = _residual(system, found).square().sum(-1) / 2
    order = speeds.argsort()
    found = _distinct(found[order][speeds[order] <= speed], distance)
    jacobians = system.jacobians(found) if len(found) else found.new_zeros(0, found.shape[1], found.shape[1])
    eigenvalues = torch.linalg.eigvals(jacobians)
    by_size = eigenvalues.abs().argsort(dim=-1, descending=True)
    speeds = _residual(system, found).square().sum(-1) / 2
    return SlowPoints(found, speeds, jacobians, eigenvalues.gather(-1, by_size))


@torch.no_grad()
def _refine(system: DynamicalSystem, points: Tensor, centre: Tensor, radius: float) -> Tensor:
    """Points (n, p) moved to the minima of q near them: least squares of f(h) - h, damped where a step goes uphill.

    No step leaves the ball: far from all states, saturated gates stand still, too.
    """
    eye = torch.eye(points.shape[1]).to(points)
    damping = torch.full_like(points[:, :1, None], 1e-3)
    away = _residual(system, points)
    for _ in range(ROUNDS):
        J = system.jacobians(points) - eye
        scale = J.square().sum((1, 2), keepdim=True) / len(eye)  # the mean of the diagonal of JᵀJ
        damped = J.mT @ J + (damping * scale + torch.finfo(J.dtype).tiny) * eye
        tried = points - torch.linalg.solve(damped, J.mT @ away[..., None])[..., 0]
        after = _residual(system, tried)
        better = after.square().sum(-1, keepdim=True) < away.square().sum(-1, keepdim=True)
        better = better & ((tried - centre).norm(dim=-1, keepdim=True) <= radius)
        points, away = torch.where(better, tried, points), torch.where(better, after, away)
        damping = torch.where(better[..., None], damping / 5, damping * 5).clamp(1e-12, 1e6)
    return points


@torch.no_grad()
def _ball_around(starts: Tensor) -> tuple[Tensor, float]:
    """A centre, and twice the distance of the farthest start from it; anywhere around a single start."""
    centre = starts.mean(0)
    radius = 2 * (starts - centre).norm(dim=-1).amax().item()
    return centre, radius if radius > 0 else torch.inf
