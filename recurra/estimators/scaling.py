"""Numbers brought to mean 0 and variance 1 and back, kept with the model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scaling:
    """x ↦ (x - mean) / scale, column by column, in float64: a float32 network then sees no large offsets."""

    mean: np.ndarray  # (D,)
    scale: np.ndarray  # (D,)

    @classmethod
    def of(cls, series: Sequence[np.ndarray]) -> "Scaling":
        """Over all steps of all series; a column that never changes is only shifted."""
        steps = np.concatenate(series)  # (ΣT, D)
        mean, std = steps.mean(axis=0), steps.std(axis=0)
        # Rounding leaves a constant column a spread of about 1e-16 of its size, which must not be blown up to 1.
        still = std <= 1e-12 * np.abs(steps).max(axis=0, initial=0.0)
        return cls(mean, np.where(still, 1.0, std))

    @classmethod
    def none(cls, width: int) -> "Scaling":
        return cls(np.zeros(width), np.ones(width))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return (x - self.mean) / self.scale

    def invert(self, x: np.ndarray) -> np.ndarray:
        return x * self.scale + self.mean
