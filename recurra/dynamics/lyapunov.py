"""Lyapunov exponents: how fast neighbouring orbits part, in every direction (Benettin et al. 1980, by QR).

A frame Q of directions is pushed along the orbit, J_t Q = Q' R; the logarithms of R's diagonal, averaged, are the
exponents. The frame starts at random, so a `transient` is let pass in which orbit and frame both settle.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from .system import check_points

if TYPE_CHECKING:
    from .system import DynamicalSystem

CHUNK = 1 << 16  # Jacobians held at a time


def lyapunov(
    system: "DynamicalSystem",
    start: Tensor,
    steps: int | None = None,
    inputs: Tensor | None = None,
    *,
    transient: int = 0,
    count: int | None = None,
    every: int = 1,
) -> Tensor:
    """The `count` largest exponents (all of them by default), largest first, per unit of time.

    Several starts (n, p) give the mean over their orbits. A driven system is measured along its `inputs` (T, d), which
    all orbits share: its exponents are conditional on them. `every` so many steps the frame is made orthogonal again:
    rarely is faster, and safe while nothing overflows in between.
    """
    points = check_points("start", start)
    size = points.shape[1]
    count = size if count is None else count
    if not 1 <= count <= size:
        raise InputError("count", count, f"1 to {size}, the size of the state")
    total = len(system.drive(None if system.driven else (steps or 0) + transient, inputs))
    if total <= transient or every < 1:
        raise InputError(
            "steps", f"{total} with a transient of {transient}, every {every}", "steps after the transient"
        )
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(len(points), size, count, generator=generator, dtype=torch.float64).to(points)
    frame = torch.linalg.qr(frame)[0]
    sums, first = points.new_zeros(len(points), count), 0
    while first < total:
        length = min(total - first, max(1, CHUNK // (len(points) * size * size)) * every)
        length = min(length, transient - first) if first < transient else length
        driven = inputs[first : first + length] if inputs is not None else None
        points, jacobians = _along(system, points, length, driven)
        frame, grown = _push(frame, jacobians, every)
        if not bool(torch.isfinite(grown).all()):
            raise InputError(
                "start", "an orbit or a product that leaves the numbers", "a bounded orbit, or a smaller every"
            )
        sums = sums + grown if first >= transient else sums
        first += length
    spectrum = sums.mean(dim=0) / ((total - transient) * system.dt)
    return spectrum.sort(descending=True).values


def _along(system: "DynamicalSystem", points: Tensor, length: int, inputs: Tensor | None) -> tuple[Tensor, Tensor]:
    """The points after `length` steps, and all Jacobians on the way: (length, n, p, p)."""
    shared = None if inputs is None else inputs[:, None].expand(-1, len(points), -1)
    with torch.no_grad():
        orbit = system.simulate(points, None if system.driven else length, shared)
    flat = orbit[:-1].reshape(-1, points.shape[1])
    jacobians = system.jacobians(flat, None if shared is None else shared.reshape(-1, shared.shape[-1]))
    return orbit[-1], jacobians.view(length, *points.shape, -1)


def _push(frame: Tensor, jacobians: Tensor, every: int) -> tuple[Tensor, Tensor]:
    """The frame at the end, and the logarithm of how far each direction was stretched: (n, count)."""
    grown = frame.new_zeros(frame.shape[0], frame.shape[2])
    for block in jacobians.split(every):
        for jacobian in block:
            frame = jacobian @ frame
        frame, r = torch.linalg.qr(frame)
        grown = grown + r.diagonal(dim1=-2, dim2=-1).abs().clamp_min(torch.finfo(r.dtype).tiny).log()
    return frame, grown
