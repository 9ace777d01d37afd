"""ε-insensitive support-vector regression as a quadratic programme, for many problems of one size at once.

With a kernel K, targets y and coefficients β (Vapnik 1995):

    minimise ½ βᵀ K β - yᵀ β + ε Σ |β_i|   subject to   Σ β_i = 0,  -C ≤ β_i ≤ C

and f(φ) = Σ_i β_i k(φ, φ_i) + b, where b is the multiplier of Σ β_i = 0. An interior-point method solves it: β = p - m
with 0 < p, m < C, and Newton's steps towards products of variable and multiplier that shrink to zero. A step solves
one linear system of the size of K.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from recurra.argument_checks import positive_int, positive_number
from recurra.errors import InputError, ShapeError

CENTRE, BOUNDARY = 0.1, 0.99  # how far the products shrink in a step, how far it goes towards a bound


class Coefficients(NamedTuple):
    """β (N, S) and b (N,) of N regressions."""

    beta: Tensor
    bias: Tensor


def support_vector_regression(
    gram: Tensor, target: Tensor, C: float = 1.0, epsilon: float = 0.1, tolerance: float = 1e-10, steps: int = 60
) -> Coefficients:
    """The coefficients of N regressions with one target.

    **Arguments**

    - `gram`: the kernel between all pairs of samples, (N, S, S), symmetric and positive semidefinite.
    - `target`: (S,). `C`: the largest coefficient. `epsilon`: errors up to it cost nothing.
    - `tolerance`: of the mean product of a variable and its multiplier and of the gradient, relative to C and the
      largest target.
    - `steps`: of Newton's method, at most.

    **Returns** `Coefficients`: beta (N, S), in which coefficients that are zero up to rounding are zero, and bias (N,).

    **Example**

        >>> from recurra.train.support_vectors import support_vector_regression
        >>> x = torch.linspace(-1, 1, 9, dtype=torch.float64)
        >>> found = support_vector_regression(x[None, :, None] * x, 2 * x + 3, C=10.0, epsilon=0.01)
        >>> float((found.beta @ (x * 0.5) + found.bias).round(decimals=1))  # 2 · 0.5 + 3
        4.0
    """
    _check(gram, target)
    C, epsilon = positive_number("C", C), positive_number("epsilon", epsilon)
    K, y = gram.double(), target.double()
    size = float(y.abs().max().clamp_min(epsilon))
    point = best = Point.start(K, C, size)
    least = K.new_full((len(K), 1), torch.inf)
    for _ in range(positive_int("steps", steps)):
        point = point.newton(K, y, C, epsilon)
        error = torch.maximum(point.product(C) / (C * size), point.residual(K, y, epsilon) / size)
        better = error < least  # rounding errors grow again beyond what a kernel of low rank allows
        best = Point(*(torch.where(better, new, old) for new, old in zip(point, best, strict=True)))
        least = torch.where(better, error, least)
        runs = (error < 100 * least) & (least > tolerance)
        if not bool(runs.any()):
            break
        point = Point(*(torch.where(runs, new, old) for new, old in zip(point, best, strict=True)))
    beta = best.p - best.m
    beta = torch.where(beta.abs() > 1e-8 * C, beta, 0.0)
    return Coefficients(beta.to(gram), best.b[:, 0].to(gram))


class Point(NamedTuple):
    """p and m (N, S), the multipliers of 0 < p, p < C, 0 < m and m < C, and b (N, 1)."""

    p: Tensor
    m: Tensor
    low_p: Tensor
    high_p: Tensor
    low_m: Tensor
    high_m: Tensor
    b: Tensor

    @classmethod
    def start(cls, K: Tensor, C: float, size: float) -> "Point":
        half, one = (K.new_full(K.shape[:2], value) for value in (C / 2, size))
        return cls(half, half, one, one, one, one, K.new_zeros(len(K), 1))

    def product(self, C: float) -> Tensor:
        """The mean product of a variable and its multiplier, (N, 1): zero at the solution."""
        p, m, low_p, high_p, low_m, high_m, _ = self
        return (low_p * p + high_p * (C - p) + low_m * m + high_m * (C - m)).mean(-1, keepdim=True) / 4

    def residual(self, K: Tensor, y: Tensor, epsilon: float) -> Tensor:
        """The largest entry of the gradient of the Lagrangian, and of Σ β, (N, 1): zero at the solution."""
        p, m, low_p, high_p, low_m, high_m, b = self
        slope = _times(K, p - m) - y + b
        parts = [slope + epsilon - low_p + high_p, -slope + epsilon - low_m + high_m, (p - m).sum(-1, keepdim=True)]
        return torch.cat(parts, -1).abs().amax(-1, keepdim=True)

    def newton(self, K: Tensor, y: Tensor, C: float, epsilon: float) -> "Point":
        """The next point."""
        p, m, low_p, high_p, low_m, high_m, b = self
        wanted = CENTRE * self.product(C)
        slope = _times(K, p - m) - y + b
        curve_p, curve_m = low_p / p + high_p / (C - p), low_m / m + high_m / (C - m)
        force_p = -slope - epsilon + wanted / p - wanted / (C - p)
        force_m = slope - epsilon + wanted / m - wanted / (C - m)
        diagonal = (1 / curve_p + 1 / curve_m).reciprocal()
        change, d_b = _balanced(K, diagonal, diagonal * (force_p / curve_p - force_m / curve_m), (p - m).sum(-1))
        moved = _times(K, change) + d_b
        d_p, d_m = (force_p - moved) / curve_p, (force_m + moved) / curve_m
        step = Point(
            d_p,
            d_m,
            (wanted - low_p * (p + d_p)) / p,
            (wanted - high_p * (C - p - d_p)) / (C - p),
            (wanted - low_m * (m + d_m)) / m,
            (wanted - high_m * (C - m - d_m)) / (C - m),
            d_b,
        )
        positive = [p, C - p, m, C - m, low_p, high_p, low_m, high_m]
        changes = [d_p, -d_p, d_m, -d_m, *step[2:6]]
        far = BOUNDARY * _room(torch.cat(positive, -1), torch.cat(changes, -1))
        return Point(*(v + far * d for v, d in zip(self, step, strict=True)))


def _times(K: Tensor, v: Tensor) -> Tensor:
    return (K @ v[..., None])[..., 0]


def _room(value: Tensor, change: Tensor) -> Tensor:
    """The largest step up to 1 / BOUNDARY that keeps all values positive, (N, 1)."""
    ratio = torch.where(change < 0, -value / change, torch.inf)
    return ratio.amin(-1, keepdim=True).clamp_max(1 / BOUNDARY)


def _balanced(K: Tensor, diagonal: Tensor, right: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
    """d and b with (K + diagonal) d + b = right and Σ d = -total."""
    matrix = K + torch.diag_embed(diagonal)
    least = 1e-13 * K.diagonal(0, -2, -1).amax(-1, keepdim=True)
    factor, _ = torch.linalg.cholesky_ex(matrix + torch.diag_embed(least.expand_as(right)))
    wanted = torch.stack([right, torch.ones_like(right)], -1)
    both = torch.cholesky_solve(wanted, factor)
    both = both + torch.cholesky_solve(wanted - matrix @ both, factor)  # once more for what the first solve left
    d, ones = both.unbind(-1)
    b = ((d.sum(-1) + total) / ones.sum(-1))[:, None]
    return d - b * ones, b


def _check(gram: Tensor, target: Tensor) -> None:
    if gram.dim() != 3 or gram.shape[1] != gram.shape[2]:
        raise ShapeError("gram", f"shape {tuple(gram.shape)}", "(N, S, S)")
    if target.shape != gram.shape[1:2]:
        raise ShapeError("target", f"shape {tuple(target.shape)}", f"{tuple(gram.shape[1:2])}")
    if not bool(gram.isfinite().all()):
        raise InputError("gram", "a value that is not finite", "numbers")
