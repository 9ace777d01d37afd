"""Features without memory: the sequence written out as one row, and its mean and deviation."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np


class WrittenOut:
    """All steps of all features, stretched to one length: what a linear model reads."""

    arrays: ClassVar[tuple[str, ...]] = ()
    weight: ClassVar[float] = 1.0
    longest: ClassVar[int] = 2000  # numbers in a row

    def __init__(self, length: int):
        self.places = np.linspace(0, 1, length)

    def features(self, series: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.stack([self._row(x) for x in series])]

    def width(self, features: int) -> int:
        return len(self.places) * features

    def _row(self, x: np.ndarray) -> np.ndarray:
        at = np.linspace(0, 1, len(x))
        return np.concatenate([np.interp(self.places, at, column) for column in x.T])


class Summary:
    """Mean and deviation of every feature, and the logarithm of the length."""

    arrays: ClassVar[tuple[str, ...]] = ()
    weight: ClassVar[float] = 1.0

    def features(self, series: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.stack([np.concatenate([x.mean(axis=0), x.std(axis=0), [np.log(len(x))]]) for x in series])]

    def width(self, features: int) -> int:
        return 2 * features + 1
