"""Losses of the trained network where samples have weights: the weight is the last column of the targets."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

Loss = Callable[[Tensor, Tensor], Tensor]


def weighted_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """(N,): targets are one column for each class, 1 for the true one, and the weight."""
    return -target[:, -1] * (target[:, :-1] * F.log_softmax(output, dim=-1)).sum(dim=1)


def weighted_binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """(N,): targets are one column for each label, 0 or 1, and the weight."""
    losses = F.binary_cross_entropy_with_logits(output, target[:, :-1], reduction="none")
    return target[:, -1] * losses.sum(dim=1)


def weighted_squared_error(output: Tensor, target: Tensor) -> Tensor:
    """(N,): targets are numbers, and the weight."""
    return target[:, -1] * (output - target[:, :-1]).square().mean(dim=1)


WEIGHTED: dict[str, Loss] = {
    "cross_entropy": weighted_cross_entropy,
    "binary_cross_entropy": weighted_binary_cross_entropy,
    "mse": weighted_squared_error,
}
