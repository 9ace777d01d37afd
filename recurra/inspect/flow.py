"""The flow of an autonomous system around its fixed and slow points, in the plane of two principal components."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..argument_checks import instance_of
from ..dynamics import SlowPoints
from ..dynamics.system import DynamicalSystem
from ..errors import InputError, ShapeError
from . import figures
from .result import Result, table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

GRID = 17  # arrows along an axis
KINDS = ("attractor", "saddle, one unstable direction", "more unstable directions")


@dataclass(frozen=True)
class Flow(Result):
    """Slow points, orbits and the movement of states, projected on two principal components.

    **Example**

        >>> system = rc.DynamicalSystem(lambda h: torch.tanh(h @ torch.tensor([[1.5, 0.2], [-0.2, 1.2]])))
        >>> orbit = system.simulate(0.1 * torch.randn(8, 2), 40)
        >>> flow = rc.inspect.flow(system, rc.dynamics.slow_points(system, orbit.flatten(0, 1), speed=1e-8), orbit)
        >>> flow.places.shape[-1], round(flow.explained, 3)
        (2, 1.0)
    """

    found: SlowPoints
    places: Tensor  # (n, 2), of the slow points
    paths: Tensor  # (T, B, 2), of the orbit
    grid: Tensor  # (G, 2), where the movement is drawn
    moves: Tensor  # (G, 2), of one step from there
    directions: Tensor  # (n, 2), the most unstable direction at each slow point, zero where it attracts
    explained: float  # the share of the orbit's variance in the plane

    @property
    def kinds(self) -> list[str]:
        """Of each slow point: what it does to its surroundings."""
        return [KINDS[min(int(count), 2)] for count in self.found.unstable_directions]

    def summary(self) -> str:
        """How many slow points of which kind, and the share of variance in the plane."""
        rows = [(kind, str(self.kinds.count(kind))) for kind in KINDS if kind in self.kinds]
        share = f"The plane holds {100 * self.explained:.0f} % of the variance of the orbit."
        return f"{len(self.found)} slow points\n" + table(rows, ("kind", "points")) + f"\n{share}"

    def figure(self) -> "Figure":
        """The plane: movement, orbits and slow points."""
        go = figures.graph_objects()
        fig = figures.figure("Flow in two principal components", 520)
        faint = {"color": figures.GRID.replace("0.22", "0.55"), "width": 1}
        fig.add_trace(figures.line("movement", *_arrows(self.grid, self.moves), line=faint, hoverinfo="skip"))
        for b in range(self.paths.shape[1]):
            path = self.paths[:, b]
            look = {"color": figures.PALETTE[0], "width": 1.2}
            shown = {"name": "orbit", "showlegend": b == 0, "opacity": 0.6, "hoverinfo": "skip"}
            fig.add_trace(
                go.Scatter(
                    x=figures.rounded(path[:, 0]), y=figures.rounded(path[:, 1]), mode="lines", line=look, **shown
                )
            )
        reach = 0.12 * (self.grid.amax(0) - self.grid.amin(0)).max()
        ends = torch.stack([self.places - reach * self.directions, self.places + reach * self.directions], 1)
        away = torch.cat([ends, torch.full_like(ends[:, :1], float("nan"))], 1).flatten(0, 1)
        fig.add_trace(figures.line("unstable direction", away[:, 0], away[:, 1], 3, hoverinfo="skip"))
        for number, kind in enumerate(KINDS):
            chosen = torch.tensor([own == kind for own in self.kinds], dtype=torch.bool)
            if not bool(chosen.any()):
                continue
            marker = {
                "size": 11,
                "color": figures.PALETTE[(2, 1, 4)[number]],
                "symbol": ("circle", "x", "diamond")[number],
            }
            x, y = (figures.rounded(self.places[chosen][:, axis]) for axis in range(2))
            fig.add_trace(go.Scatter(x=x, y=y, mode="markers", name=kind, marker=marker))
        fig.update_xaxes(title="component 1")
        fig.update_yaxes(title="component 2", scaleanchor="x")
        return fig


@torch.no_grad()
def flow(system: DynamicalSystem, found: SlowPoints, orbit: Tensor) -> Flow:
    """The movement of states around slow points, in the plane of the two largest principal components of an orbit.

    **Arguments**

    - `system`: autonomous; `rc.DynamicalSystem.of(layer).frozen(x)` for a layer with a constant input.
    - `found`: what `rc.dynamics.slow_points` found.
    - `orbit`: states (T, p) or (T, B, p) that the system visits; they set the plane and are drawn.

    **Returns** a `Flow`: `.figure()` shows the slow points by their stability, the orbit, and as arrows the part in the
    plane of one step from points of the plane; `.summary()` counts the points.

    **Example**

    >>> system = rc.DynamicalSystem(lambda h: torch.tanh(h @ torch.tensor([[1.5, 0.2], [-0.2, 1.2]])))
    >>> orbit = system.simulate(0.1 * torch.randn(8, 2), 40)
    >>> found = rc.dynamics.slow_points(system, orbit.flatten(0, 1), speed=1e-8)
    >>> "slow points" in rc.inspect.flow(system, found, orbit).summary()
    True
    """
    instance_of("system", system, DynamicalSystem, "an rc.DynamicalSystem")
    instance_of("found", found, SlowPoints, "what rc.dynamics.slow_points found")
    instance_of("orbit", orbit, Tensor, "states (T, p) or (T, B, p)")
    if system.driven:
        raise InputError("system", "a driven system", "an autonomous one; system.frozen(x) fixes the input")
    paths = orbit.detach() if orbit.dim() == 3 else orbit.detach()[:, None]
    if paths.dim() != 3 or paths.shape[-1] != found.points.shape[-1] or paths.shape[-1] < 2:
        raise ShapeError(
            "orbit", f"shape {tuple(orbit.shape)}", f"(T, B, {found.points.shape[-1]}), of at least 2 sizes"
        )
    mean, axes = found.components(paths)
    flat = (paths - mean) @ axes  # (T, B, 2)
    both = torch.cat([flat.flatten(0, 1), (found.points - mean) @ axes])
    low, high = both.amin(0), both.amax(0)
    low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
    grid = torch.cartesian_prod(
        *(torch.linspace(float(a), float(b), GRID).to(paths) for a, b in zip(low, high, strict=True))
    )
    states = mean + grid @ axes.mT
    spread = (paths - mean).square().sum()
    return Flow(
        found,
        (found.points - mean) @ axes,
        flat,
        grid,
        (system.step(states) - states) @ axes,
        _unstable(found) @ axes,
        float(flat.square().sum() / spread),
    )


def _unstable(found: SlowPoints) -> Tensor:
    """(n, p): the real part of the eigenvector of the largest eigenvalue, zero at attractors."""
    values, vectors = torch.linalg.eig(found.jacobians)
    largest = values.abs().argmax(-1)
    chosen = vectors.gather(-1, largest[:, None, None].expand(-1, vectors.shape[1], 1))[..., 0].real
    chosen = chosen / chosen.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    return chosen * (~found.stable)[:, None]


def _arrows(places: Tensor, moves: Tensor) -> tuple[Tensor, Tensor]:
    """Arrows as one broken line: the longest is as long as the distance of two places."""
    cell = (places.amax(0) - places.amin(0)).max() / (GRID - 1)
    moves = moves * (0.9 * cell / moves.norm(dim=-1).amax().clamp_min(1e-12))
    across = torch.stack([-moves[:, 1], moves[:, 0]], -1)
    tip = places + moves
    nothing = torch.full_like(places, float("nan"))
    pieces = [places, tip, nothing, tip - 0.35 * moves + 0.2 * across, tip, tip - 0.35 * moves - 0.2 * across, nothing]
    broken = torch.stack(pieces, 1).flatten(0, 1)
    return broken[:, 0], broken[:, 1]
