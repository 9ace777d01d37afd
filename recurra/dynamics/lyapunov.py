"""Lyapunov exponents: growth rates of perturbations along an orbit (Benettin et al. 1980, by QR).

An orthonormal frame Q is propagated along the orbit, J_t Q = Q' R; the mean logarithms of R's diagonal are the
exponents. The frame starts at random, so a `transient` lets orbit and frame settle.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from .system import check_points, check_system

if TYPE_CHECKING:
    from .system import DynamicalSystem

CHUNK = 1 << 16  # entries of Jacobians in memory at a time


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
    """Lyapunov spectrum of a system, largest exponent first, per unit of time.

    **Arguments**

    - `system`: a `DynamicalSystem`.
    - `start`: a state (p,), or states (n, p), whose orbits are averaged.
    - `steps`: of an autonomous system, after the transient.
    - `inputs`: (T, d) of a driven system, shared by all orbits; its exponents are conditional on them.
    - `transient`: first steps that do not count.
    - `count`: how many of the largest exponents; all by default.
    - `every`: steps between two QR decompositions. Larger is faster, and safe while nothing overflows in between.

    **Returns** (count,) exponents. A positive one means chaos.

    **Example**

    >>> start = torch.tensor([0.3], dtype=torch.float64)
    >>> exponent = rc.dynamics.lyapunov(rc.dynamics.logistic(4.0), start, 5000)  # ln 2
    >>> round(exponent.item(), 2)
    0.69
    """
    points = check_points("start", start)
    check_system(system)
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
        points, jacobians = _orbit_jacobians(system, points, length, driven)
        frame, grown = _push_frame(frame, jacobians, every)
        if not bool(torch.isfinite(grown).all()):
            raise InputError("start", "an orbit or a product that overflows", "a bounded orbit, or a smaller every")
        sums = sums + grown if first >= transient else sums
        first += length
    spectrum = sums.mean(dim=0) / ((total - transient) * system.dt)
    return spectrum.sort(descending=True).values


def _orbit_jacobians(
    system: "DynamicalSystem", points: Tensor, length: int, inputs: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The points after `length` steps, and the Jacobians of all steps, (length, n, p, p)."""
    shared = None if inputs is None else inputs[:, None].expand(-1, len(points), -1)
    with torch.no_grad():
        orbit = system.simulate(points, None if system.driven else length, shared)
    flat = orbit[:-1].reshape(-1, points.shape[1])
    jacobians = system.jacobians(flat, None if shared is None else shared.reshape(-1, shared.shape[-1]))
    return orbit[-1], jacobians.view(length, *points.shape, -1)


def _push_frame(frame: Tensor, jacobians: Tensor, every: int) -> tuple[Tensor, Tensor]:
    """The final frame, and the log growth of each direction, (n, count)."""
    grown = frame.new_zeros(frame.shape[0], frame.shape[2])
    for block in jacobians.split(every):
        for jacobian in block:
            frame = jacobian @ frame
        frame, r = torch.linalg.qr(frame)
        grown = grown + r.diagonal(dim1=-2, dim2=-1).abs().clamp_min(torch.finfo(r.dtype).tiny).log()
    return frame, grown
