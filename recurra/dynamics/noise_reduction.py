"""Noise reduction of a chaotic series by local projections (Grassberger et al. 1993; Kantz & Schreiber 2004).

Windows of a deterministic series lie near a surface of few dimensions, which noise leaves in all directions. So each
window moves to the plane through its nearest neighbours; a value of the series is the mean of what its windows say.
"""

import torch
from torch import Tensor

from ..argument_checks import positive_int
from ..errors import InputError, ShapeError

CHUNK = 500  # windows whose distances to all others are held at once


def reduce_noise(
    series: Tensor, window: int = 41, *, dimensions: int = 4, neighbours: int = 40, rounds: int = 2
) -> Tensor:
    """A series with less measurement noise, from nothing but itself.

    Also known as locally projective or nonlinear noise reduction. It suits series of low-dimensional deterministic
    systems, densely sampled; it takes time and memory for the distances of all pairs of windows.

    **Arguments**

    - `series`: (T,), noisy values at equal distances in time.
    - `window`: steps of a window.
    - `dimensions`: of the plane that windows are projected on, at least those of the attractor.
    - `neighbours`: nearest windows that span a plane. More average more noise and bend the surface more.
    - `rounds`: repetitions, each on the result of the one before.

    **Returns** a series (T,) like the first. The few values at both ends are in fewer windows and improve less.

    **Example**

    >>> clean = rc.dynamics.lorenz(dt=0.02).simulate(torch.tensor([1.0, 1.0, 20.0]), 2000)[:, 0].double()
    >>> noisy = clean + 0.05 * clean.std() * torch.randn(2001, dtype=torch.float64)
    >>> less = rc.dynamics.reduce_noise(noisy, rounds=1)
    >>> bool((less - clean).std() < 0.5 * (noisy - clean).std())
    True
    """
    if not isinstance(series, Tensor) or series.dim() != 1:
        raise ShapeError("series", getattr(series, "shape", type(series).__name__), "values (T,)")
    if not bool(torch.isfinite(series).all()):
        raise InputError("series", "values that are not finite", "finite values")
    positive_int("window", window), positive_int("rounds", rounds)
    if not 1 <= positive_int("dimensions", dimensions) < window:
        raise InputError("dimensions", dimensions, f"fewer than the {window} steps of a window")
    if not positive_int("neighbours", neighbours) <= len(series) - window + 1:
        raise InputError("neighbours", neighbours, f"at most the {max(0, len(series) - window + 1)} windows there are")
    reduced = series.double()
    for _ in range(rounds):
        reduced = reduced - _correction(reduced, window, dimensions, neighbours)
    return reduced.to(series.dtype)


def _correction(series: Tensor, window: int, dimensions: int, neighbours: int) -> Tensor:
    """How far the series is from its local planes: the mean over all windows with a value."""
    windows = (series - series.mean()).unfold(0, window, 1).float()  # (n, window)
    weights = torch.ones(window, device=series.device)
    weights[0] = weights[-1] = 30.0  # the ends of windows grow apart fastest: hold them, correct what lies between
    squares = windows.square().sum(1)
    total, count = torch.zeros_like(series), torch.zeros_like(series)
    for start in range(0, len(windows), CHUNK):
        chosen = windows[start : start + CHUNK]
        near = (squares - 2 * chosen @ windows.mT).topk(neighbours, largest=False).indices
        found = _off_plane(chosen * weights, windows[near] * weights, dimensions) / weights
        for step in range(1, window - 1):
            total[start + step : start + step + len(chosen)] += found[:, step]
            count[start + step : start + step + len(chosen)] += 1
    return total / count.clamp_min(1)


def _off_plane(points: Tensor, near: Tensor, dimensions: int) -> Tensor:
    """The part of each point (b, d) that is outside the plane of its neighbours (b, k, d)."""
    centre = near.mean(1, keepdim=True)
    spread = near - centre
    plane = torch.linalg.eigh(spread.mT @ spread).eigenvectors[:, :, -dimensions:]  # (b, d, dimensions)
    away = points[:, :, None] - centre.mT
    return (away - plane @ (plane.mT @ away))[:, :, 0]
