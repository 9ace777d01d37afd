"""Distances between attractors, from orbits: geometry (state-space divergence) and time (power spectra).

Chaotic orbits separate however good a model is, so a reconstruction is judged by what is invariant along them.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import conv1d

from ..argument_checks import positive_int, positive_number
from ..errors import InputError, ShapeError


def state_space_divergence(
    true: Tensor,
    generated: Tensor,
    *,
    bins: int | None = 30,
    variance: float = 1.0,
    samples: int = 1000,
    seed: int = 0,
) -> Tensor:
    """D_stsp, the Kullback-Leibler divergence of a generated attractor from the true one.

    With `bins`, both orbits become histograms on one grid over the range of the true orbit (Koppe et al. 2019): states
    outside are in none of its bins, so an orbit that spends half its time there is at least log 2 away, and one
    millionth is spread evenly over all bins. With `bins=None`, each orbit is
    a mixture of Gaussians on its states, and the divergence a Monte Carlo estimate (Brenner et al. 2022), for more than
    about four dimensions.

    **Arguments**

    - `true`, `generated`: orbits (T, p), without transients; their lengths may differ.
    - `bins`: per dimension of the grid, or None for mixtures.
    - `variance`: of the Gaussians of a mixture.
    - `samples`, `seed`: of the Monte Carlo estimate.

    **Returns** a scalar in nats, 0 for equal distributions. Two finite orbits of one attractor differ a little, more
    with more bins.

    **Example**

    >>> orbit = rc.dynamics.henon().simulate(torch.zeros(2), 2000)[100:]
    >>> rc.dynamics.state_space_divergence(orbit, orbit).item()
    0.0
    """
    true, generated = _orbits(true, generated)
    if bins is None:
        return _mixture_divergence(true, generated, positive_number("variance", variance), samples, seed)
    low, high = true.amin(0), true.amax(0)
    width = ((high - low) / positive_int("bins", bins)).clamp_min(torch.finfo(true.dtype).tiny)
    p, q = (_histogram(orbit, low, width, bins) for orbit in (true, generated))
    return (p * (p / q).log()).sum()


def _histogram(orbit: Tensor, low: Tensor, width: Tensor, bins: int) -> Tensor:
    """Probabilities of all bins, (bins^p,), whose sum is the share of states within the grid."""
    size = orbit.shape[1]
    if bins**size > 1 << 26:
        raise InputError("bins", f"{bins}^{size} bins", "at most 2^26, or bins=None")
    index = (orbit - low).div(width).floor()
    inside = ((index >= 0) & (index <= bins)).all(1)  # the largest state lies on the edge of the last bin
    places = torch.tensor([bins**k for k in range(size)], device=orbit.device)
    flat = (index[inside].long().clamp_max(bins - 1) * places).sum(1)
    share = torch.bincount(flat, minlength=bins**size).to(orbit.dtype) / len(orbit)
    return (share + 1e-6 / bins**size) / (1 + 1e-6)


def _mixture_divergence(true: Tensor, generated: Tensor, variance: float, samples: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    count = positive_int("samples", samples)
    chosen = torch.randint(len(true), (count,), generator=generator).to(true.device)
    noise = torch.randn(count, true.shape[1], generator=generator, dtype=torch.float64).to(true)
    points = true[chosen] + math.sqrt(variance) * noise
    return (_log_density(points, true, variance) - _log_density(points, generated, variance)).mean()


def _log_density(points: Tensor, centres: Tensor, variance: float) -> Tensor:
    """Log densities (n,) of the mixture, without the factor that depends on the variance alone."""
    squares = torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist").square()
    return (-squares / (2 * variance)).logsumexp(1) - math.log(len(centres))


def power_spectrum_distance(true: Tensor, generated: Tensor, *, smoothing: float = 20.0) -> Tensor:
    """D_H, the mean Hellinger distance between the power spectra of two orbits (Mikhaeil et al. 2022).

    The spectrum of each standardised coordinate is smoothed by a Gaussian over frequencies and normalised to one.

    **Arguments**

    - `true`, `generated`: orbits (T, p); the longer is cut to the length of the shorter.
    - `smoothing`: standard deviation of the Gaussian, in frequencies of the transform; 0 smooths nothing.

    **Returns** a scalar between 0 (equal spectra) and 1 (no common frequency).

    **Example**

    >>> t = torch.arange(1000, dtype=torch.float64)[:, None]
    >>> slow, fast = torch.sin(0.1 * t), torch.sin(2.0 * t)
    >>> rc.dynamics.power_spectrum_distance(slow, slow).item()
    0.0
    >>> rc.dynamics.power_spectrum_distance(slow, fast).item() > 0.9
    True
    """
    true, generated = _orbits(true, generated)
    if not 0 <= smoothing < math.inf:
        raise InputError("smoothing", smoothing, "a number of frequencies, 0 or more")
    length = min(len(true), len(generated))
    p, q = (_spectrum(orbit[:length], smoothing) for orbit in (true, generated))
    return (0.5 * (p.sqrt() - q.sqrt()).square().sum(0)).sqrt().mean()


def _spectrum(orbit: Tensor, smoothing: float) -> Tensor:
    """Normalised power at each frequency above zero, (F, p)."""
    centred = orbit - orbit.mean(0)
    power = torch.fft.rfft(centred, dim=0)[1:].abs().square().T  # (p, F)
    power = power / power.sum(1, keepdim=True).clamp_min(torch.finfo(power.dtype).tiny)
    if smoothing > 0:
        reach = max(1, round(4 * smoothing))
        grid = torch.arange(-reach, reach + 1, dtype=power.dtype, device=power.device)
        kernel = torch.exp(-0.5 * (grid / smoothing).square())
        power = conv1d(power[:, None], (kernel / kernel.sum())[None, None], padding=reach)[:, 0]
        power = power / power.sum(1, keepdim=True).clamp_min(torch.finfo(power.dtype).tiny)
    return power.T


def _orbits(true: Tensor, generated: Tensor) -> tuple[Tensor, Tensor]:
    """Both orbits in float64, or an error."""
    for argument, orbit in (("true", true), ("generated", generated)):
        if not isinstance(orbit, Tensor) or orbit.dim() != 2 or len(orbit) < 2:
            raise ShapeError(argument, getattr(orbit, "shape", type(orbit).__name__), "an orbit (T, p)")
        if not bool(torch.isfinite(orbit).all()):
            raise InputError(argument, "states that are not finite", "finite states")
    if true.shape[1] != generated.shape[1]:
        raise ShapeError("generated", f"states of size {generated.shape[1]}", f"size {true.shape[1]}, like the true")
    return true.detach().double(), generated.detach().double()
