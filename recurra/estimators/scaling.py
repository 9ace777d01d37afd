"""Standardisation of features to mean 0 and variance 1, and its inverse."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x - mean) / scale for every column, in float64, before a float32 network sees large offsets."""

    mean: np.ndarray  # (D,)
    scale: np.ndarray  # (D,)

    @classmethod
    def of(cls, series: Sequence[np.ndarray]) -> "Scaling":
        """Fitted over all steps of all series; a constant column is only shifted."""
        steps = np.concatenate(series)  # (ΣT, D)
        mean, std = steps.mean(axis=0), steps.std(axis=0)
        # Rounding gives a constant column a standard deviation of about 1e-16 of its size, not zero.
        is_constant = std <= 1e-12 * np.abs(steps).max(axis=0, initial=0.0)
        return cls(mean, np.where(is_constant, 1.0, std))

    @classmethod
    def none(cls, width: int) -> "Scaling":
        """The identity."""
        return cls(np.zeros(width), np.ones(width))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) / self.scale

    def invert(self, x: np.ndarray) -> np.ndarray:
        return x * self.scale + self.mean
