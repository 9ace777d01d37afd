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
    """Every feature in ten numbers, and the logarithm of the length: what a linear model reads of ragged sequences.

    The numbers are the mean, the deviation, the least, the largest, the first, the last, the mean size of changes, and
    the quartiles. Older models have the first `numbers`.
    """

    arrays: ClassVar[tuple[str, ...]] = ()
    weight: ClassVar[float] = 1.0
    most: ClassVar[int] = 10

    def __init__(self, numbers: int = most):
        self.numbers = numbers

    def features(self, series: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.stack([self._row(x) for x in series])]

    def width(self, features: int) -> int:
        return self.numbers * features + 1

    def _row(self, x: np.ndarray) -> np.ndarray:
        found = [x.mean(axis=0), x.std(axis=0)]
        if self.numbers > len(found):
            changes = np.abs(np.diff(x, axis=0)).mean(axis=0) if len(x) > 1 else np.zeros(x.shape[1])
            found += [x.min(axis=0), x.max(axis=0), x[0], x[-1], changes, *np.quantile(x, [0.25, 0.5, 0.75], axis=0)]
        return np.concatenate([*found, [np.log(len(x))]])
