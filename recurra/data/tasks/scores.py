"""Scores of outputs against the targets of a batch; padding is ignored."""

import torch
from torch import Tensor

from ..sequences import IGNORE


def mse(outputs: Tensor, targets: Tensor, mask: Tensor | None = None) -> float:
    """Mean squared error over sequences, or over the steps that `mask` (T, B) keeps."""
    errors = (outputs.double() - targets.double()).square()
    return float(errors.mean() if mask is None else errors[mask].mean())


def nrmse(outputs: Tensor, targets: Tensor, mask: Tensor) -> float:
    """Root mean squared error divided by the standard deviation of the targets: 1 for their mean."""
    variance = targets.double()[mask].var(dim=0, unbiased=False).mean()
    return (mse(outputs, targets, mask) / float(variance)) ** 0.5


def cross_entropy(outputs: Tensor, targets: Tensor) -> float:
    """Mean negative log-likelihood, in nats, of logits (…, classes)."""
    flat = outputs.double().reshape(-1, outputs.shape[-1])
    return float(torch.nn.functional.cross_entropy(flat, targets.reshape(-1), ignore_index=IGNORE))


def accuracy(outputs: Tensor, targets: Tensor, mask: Tensor | None = None) -> float:
    """The share of correct classes over the labelled steps that `mask` keeps."""
    counted = targets != IGNORE
    counted = counted if mask is None else counted & mask
    return float((outputs.argmax(dim=-1) == targets)[counted].double().mean())


def memory_capacity(outputs: Tensor, targets: Tensor, mask: Tensor) -> float:
    """Σ_k corr²(u_{t-k}, ŷ_k) over the columns; a constant column counts zero."""
    x, y = outputs.double()[mask], targets.double()[mask]  # (steps, K)
    x, y = x - x.mean(dim=0), y - y.mean(dim=0)
    power = x.square().sum(dim=0) * y.square().sum(dim=0)
    return float(((x * y).sum(dim=0).square() / power.clamp_min(1e-300)).sum())
