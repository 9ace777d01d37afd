"""Initialisation: in-place fillers for one tensor, and the public initialisers a layer takes as `init=`.

A filler ends in `_`, as in torch.nn.init. A public initialiser is called with a cell and fills its recurrent matrices
(`identity`, `orthogonal`, `spectral_radius`) or the biases of the gates that keep or overwrite memory (`chrono`,
`forget_bias`); the matrix ones may be called with a tensor as well.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .errors import InputError

if TYPE_CHECKING:
    from .cell import Cell

__all__ = ["Initialiser", "chrono", "forget_bias", "identity", "orthogonal", "spectral_radius"]

Initialiser = Callable[["Cell"], None]


# ---------------------------------------------------------------------------------------------------- fillers


@torch.no_grad()
def uniform_(tensor: Tensor, bound: float) -> Tensor:
    return tensor.uniform_(-bound, bound)


@torch.no_grad()
def normal_(tensor: Tensor, std: float) -> Tensor:
    return tensor.normal_(0.0, std)


@torch.no_grad()
def constant_(tensor: Tensor, value: float) -> Tensor:
    return tensor.fill_(value)


@torch.no_grad()
def glorot_(matrix: Tensor) -> Tensor:
    return uniform_(matrix, math.sqrt(6.0 / max(1, sum(matrix.shape))))


@torch.no_grad()
def identity_(matrix: Tensor, scale: float = 1.0, noise: float = 0.0) -> Tensor:
    """`scale · I + noise · N`, N_ij ~ N(0, 1) / √p (close to identity, survey section 3.1)."""
    eye = torch.eye(*matrix.shape, dtype=matrix.dtype, device=matrix.device)
    return normal_(matrix, noise / math.sqrt(matrix.shape[0])).add_(eye, alpha=scale)


@torch.no_grad()
def orthogonal_(matrix: Tensor, gain: float = 1.0) -> Tensor:
    """A matrix drawn evenly from the orthogonal group: Q of a Gaussian, its signs fixed by R's diagonal."""
    rows, columns = matrix.shape
    gauss = torch.randn(max(rows, columns), min(rows, columns), dtype=torch.float64)
    q, r = torch.linalg.qr(gauss)
    q = q * torch.where(r.diagonal() < 0, -1.0, 1.0)
    return matrix.copy_(gain * (q if rows >= columns else q.T))


@torch.no_grad()
def spectral_radius_(matrix: Tensor, radius: float = 0.9, density: float = 1.0) -> Tensor:
    """Jaeger's recipe: a sparse random matrix, divided by its largest |eigenvalue|, times `radius`."""
    sparse = torch.rand(matrix.shape, dtype=torch.float64) * 2 - 1
    sparse *= torch.rand(matrix.shape, dtype=torch.float64) < density
    largest = torch.linalg.eigvals(sparse).abs().max()
    return matrix.copy_(sparse * (radius / largest.clamp_min(torch.finfo(torch.float64).tiny)))


# ---------------------------------------------------------------------------------------------------- initialisers


def identity(scale: float = 1.0, noise: float = 0.0) -> Initialiser:
    """Every recurrent matrix starts at `scale · I`, plus Gaussian noise."""
    return _every_recurrent_matrix(lambda W: identity_(W, scale, noise))


def orthogonal(gain: float = 1.0) -> Initialiser:
    """Every recurrent matrix starts orthogonal, times `gain`."""
    return _every_recurrent_matrix(lambda W: orthogonal_(W, gain))


def spectral_radius(radius: float = 0.9, density: float = 1.0) -> Initialiser:
    """Every recurrent matrix starts sparse and random with the given spectral radius (Jaeger 2001)."""
    if not 0.0 < density <= 1.0:
        raise InputError("density", density, "a share of non-zero entries in (0, 1]")
    return _every_recurrent_matrix(lambda W: spectral_radius_(W, radius, density))


def chrono(longest: float) -> Initialiser:
    """Gate biases that spread the units' memories evenly over 1 … `longest` steps (Tallec & Ollivier 2018)."""
    if not longest > 2:
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
    """Start remembering: keep gates get bias `value`; a cell with update gates alone gets `-value` there."""

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


def _memory_biases(cell: "Cell", asked: str) -> tuple[list[Tensor], list[Tensor]]:
    """Biases of the gates that keep and of those that overwrite the memory, as the cell's class declares them."""
    gates = [getattr(cell, name) for name in (*cell.keep, *cell.write)]
    if not gates or any(gate.b is None for gate in gates):
        raise InputError("init", asked, f"a cell whose memory gates have biases; {type(cell).__name__} has none")
    split = len(cell.keep)
    biases = [gate.stored("b") for gate in gates]
    return biases[:split], biases[split:]
