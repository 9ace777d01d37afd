"""A linear recurrence for all steps at once: `δ_t = A_t δ_{t-1} + b_t` with δ = 0 before the first step.

Two neighbouring steps are one step of the same form, `A_2 A_1` and `A_2 b_1 + b_2`. So half as many steps are solved
first, which gives every second value, and one more operation gives those between: 2 log₂ T operations on whole tensors,
O(T) arithmetic. A is a number per unit, or a small matrix per unit for states that read each other. Of numbers, a GPU
makes three kernels.
"""

import torch
from torch import Tensor

from .device_scan import device_scan, is_available


def linear_scan(a: Tensor, b: Tensor) -> Tensor:
    """δ (T, B, k, w) from a (T, B, k, k, w) and b (T, B, k, w): a k × k matrix for each of w units."""
    if b.shape[2] == 1:
        if b.is_cuda and is_available():
            return device_scan(a.flatten(1), b.flatten(1), backward=False).view_as(b)
        return _scan(a[:, :, 0], b, torch.mul, torch.mul)
    return _scan(a, b, _matrix_matrix, _matrix_vector)


def reverse_scan(a: Tensor, b: Tensor) -> Tensor:
    """The same from the last step to the first: `λ_t = A_t λ_{t+1} + b_t`."""
    if b.shape[2] == 1 and b.is_cuda and is_available():
        return device_scan(a.flatten(1), b.flatten(1), backward=True).view_as(b)
    return linear_scan(a.flip(0), b.flip(0)).flip(0)


def _scan(a: Tensor, b: Tensor, join, apply) -> Tensor:
    steps = b.shape[0]
    if steps == 1:
        return b
    pairs = steps // 2 * 2
    first, second = a[0:pairs:2], a[1:pairs:2]
    odd = _scan(join(second, first), torch.add(apply(second, b[0:pairs:2]), b[1:pairs:2]), join, apply)
    result = torch.empty_like(b)
    result[0] = b[0]
    result[1::2] = odd
    if steps > 2:
        result[2::2] = apply(a[2::2], odd[: (steps - 1) // 2]) + b[2::2]
    return result


def _matrix_matrix(second: Tensor, first: Tensor) -> Tensor:
    """(…, i, j, w) · (…, j, l, w)."""
    return (second.unsqueeze(-2) * first.unsqueeze(-4)).sum(-3)


def _matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix * vector.unsqueeze(-3)).sum(-2)
