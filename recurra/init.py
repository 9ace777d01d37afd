"""Initialisation: initialisers that a layer takes as `init=`, and in-place functions that fill one tensor.

An initialiser, such as `orthogonal()`, is a function of a cell. It fills the recurrent matrices (`identity`,
`orthogonal`, `spectral_radius`, which take a tensor, too) or the biases of the memory gates (`chrono`, `forget_bias`).
In-place functions end in `_`, as in torch.nn.init.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .argument_checks import finite_number, is_real
from .errors import InputError

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Initialiser", "chrono", "forget_bias", "identity", "orthogonal", "spectral_radius"]

Initialiser = Callable[["Cell"], None]


# ---------------------------------------------------------------------------------------------------- in place


@torch.no_grad()
def uniform_(tensor: Tensor, bound: float) -> Tensor:
    """Uniform in [-bound, bound]."""
    return tensor.uniform_(-bound, bound)


@torch.no_grad()
def normal_(tensor: Tensor, std: float) -> Tensor:
    """Normal with mean 0."""
    return tensor.normal_(0.0, std)


@torch.no_grad()
def constant_(tensor: Tensor, value: float) -> Tensor:
    """The same number everywhere."""
    return tensor.fill_(value)


@torch.no_grad()
def glorot_(matrix: Tensor) -> Tensor:
    """Glorot (Xavier) uniform: bound √(6 / (rows + columns))."""
    return uniform_(matrix, math.sqrt(6.0 / max(1, sum(matrix.shape))))


@torch.no_grad()
def identity_(matrix: Tensor, scale: float = 1.0, noise: float = 0.0) -> Tensor:
    """`scale · I + noise · N`, N_ij ~ N(0, 1) / √p (close to identity, survey section 3.1)."""
    eye = torch.eye(*matrix.shape, dtype=matrix.dtype, device=matrix.device)
    return normal_(matrix, noise / math.sqrt(matrix.shape[0])).add_(eye, alpha=scale)


@torch.no_grad()
def orthogonal_(matrix: Tensor, gain: float = 1.0) -> Tensor:
    """A Haar-distributed orthogonal matrix, times `gain`: Q of a Gaussian matrix, its signs fixed by R's diagonal."""
    rows, columns = matrix.shape
    gauss = torch.randn(max(rows, columns), min(rows, columns), dtype=torch.float64)
    q, r = torch.linalg.qr(gauss)
    q = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return matrix.copy_(gain * (q if rows >= columns else q.T))


@torch.no_grad()
def spectral_radius_(matrix: Tensor, radius: float = 0.9, density: float = 1.0) -> Tensor:
    """A sparse uniform matrix scaled to a spectral radius (Jaeger 2001): divided by its largest |eigenvalue|."""
    sparse = torch.rand(matrix.shape, dtype=torch.float64) * 2 - 1
    sparse *= torch.rand(matrix.shape, dtype=torch.float64) < density
    largest = torch.linalg.eigvals(sparse).abs().max()
    return matrix.copy_(sparse * (radius / largest.clamp_min(torch.finfo(torch.float64).tiny)))


@torch.no_grad()
def positive_definite_(matrix: Tensor) -> Tensor:
    """A random positive definite matrix with the largest eigenvalue 1: (RᵀR / n + I) / λ (Talathi & Vartak 2016)."""
    gauss = torch.randn(matrix.shape, dtype=torch.float64)
    positive = gauss.mT @ gauss / len(gauss) + torch.eye(len(gauss), dtype=torch.float64)
    return matrix.copy_(positive / torch.linalg.eigvalsh(positive)[-1])


# ---------------------------------------------------------------------------------------------------- initialisers


def identity(scale: float = 1.0, noise: float = 0.0) -> Initialiser:
    """Initialiser: every recurrent matrix becomes `scale · I` plus Gaussian noise.

    **Arguments**

    - `scale`: the factor of the identity.
    - `noise`: the standard deviation of the noise, divided by √H.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.RNN(3, 4, init=rc.init.identity(0.5))
        >>> torch.equal(layer.cells[0].a.W, 0.5 * torch.eye(4))
        True
    """
    finite_number("scale", scale), finite_number("noise", noise, 0.0)
    return _every_recurrent_matrix(lambda W: identity_(W, scale, noise))


def orthogonal(gain: float = 1.0) -> Initialiser:
    """Initialiser: every recurrent matrix becomes a random orthogonal matrix, times `gain`.

    **Example**

        >>> import torch, recurra as rc
        >>> W = rc.RNN(3, 4, init=rc.init.orthogonal(2.0)).cells[0].a.W
        >>> torch.allclose(W @ W.T, 4 * torch.eye(4), atol=1e-5)
        True
    """
    finite_number("gain", gain)
    return _every_recurrent_matrix(lambda W: orthogonal_(W, gain))


def spectral_radius(radius: float = 0.9, density: float = 1.0) -> Initialiser:
    """Initialiser: every recurrent matrix becomes sparse and random, with this spectral radius (Jaeger 2001).

    **Arguments**

    - `radius`: the largest absolute value of an eigenvalue.
    - `density`: the expected share of non-zero entries, in (0, 1].

    **Example**

        >>> import torch, recurra as rc
        >>> W = rc.RNN(3, 50, init=rc.init.spectral_radius(0.9, density=0.2)).cells[0].a.W
        >>> round(torch.linalg.eigvals(W).abs().max().item(), 3)
        0.9
    """
    finite_number("radius", radius, 0.0)
    if not is_real(density) or not 0.0 < density <= 1.0:
        raise InputError("density", density, "a share of non-zero entries in (0, 1]")
    return _every_recurrent_matrix(lambda W: spectral_radius_(W, radius, density))


def chrono(longest: float) -> Initialiser:
    """Initialiser: gate biases that spread time constants evenly over 1 … `longest` steps (Tallec & Ollivier 2018).

    With u uniform in [1, longest - 1], gates that keep the memory get bias log u, and gates that overwrite it -log u.

    **Arguments**

    - `longest`: the longest expected dependency in steps, more than 2.

    **Example**

        >>> import recurra as rc
        >>> layer = rc.LSTM(3, 4, init=rc.init.chrono(100))
        >>> bool((layer.cells[0].f.b > 0).all()), bool((layer.cells[0].i.b < 0).all())
        (True, True)
    """
    if isinstance(longest, bool) or not isinstance(longest, (int, float)) or not longest > 2:
        raise InputError("longest", longest, "the longest dependency in steps, more than 2")

    @torch.no_grad()
    def apply(cell: "Cell") -> None:
        keep, write = _memory_biases(cell, "chrono")
        spans = torch.empty_like((keep + write)[0]).uniform_(1.0, longest - 1.0).log()
        for bias in keep:
            bias.copy_(spans)
        for bias in write:
            bias.copy_(-spans)

    return apply


def forget_bias(value: float = 1.0) -> Initialiser:
    """Initialiser: the gates that keep the memory get bias `value`, so that the cell remembers from the start.

    In a cell that has only gates that overwrite the memory, such as a GRU, these get `-value`.

    **Example**

        >>> import recurra as rc
        >>> rc.LSTM(3, 4, init=rc.init.forget_bias(2.0)).cells[0].f.b.tolist()
        [2.0, 2.0, 2.0, 2.0]
    """

    finite_number("value", value)

    @torch.no_grad()
    def apply(cell: "Cell") -> None:
        keep, write = _memory_biases(cell, "forget_bias")
        for bias in keep or write:
            bias.fill_(value if keep else -value)

    return apply


def _every_recurrent_matrix(fill: Callable[[Tensor], Tensor]) -> Callable[["Cell | Tensor"], None]:
    def apply(target: "Cell | Tensor") -> None:
        matrices = [target] if isinstance(target, Tensor) else target.recurrent_matrices()
        if not matrices:
            raise InputError("init", type(target).__name__, "a cell with a square recurrent matrix")
        with torch.no_grad():
            for matrix in matrices:
                fill(matrix)

    return apply


def _memory_biases(cell: "Cell", initialiser: str) -> tuple[list[Tensor], list[Tensor]]:
    """The biases of the gates that keep the memory, and of those that overwrite it."""
    gates = [getattr(cell, name) for name in (*cell.keep, *cell.write)]
    if not gates or any(gate.b is None for gate in gates):
        raise InputError("init", initialiser, f"a cell whose memory gates have biases; {type(cell).__name__} has none")
    split = len(cell.keep)
    biases = [gate.stored("b") for gate in gates]
    return biases[:split], biases[split:]
