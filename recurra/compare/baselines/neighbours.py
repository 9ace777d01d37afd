"""The nearest neighbour among the training sequences, step by step or with dynamic time warping."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from recurra.estimators.input_conversion import arrays
from recurra.estimators.scaling import Scaling

MAX_STEPS = 64  # longer sequences are resampled
BAND = 0.1  # of the steps: how far warping may shift a step (Sakoe & Chiba 1978)
MAX_OPERATIONS = 3e10  # of warping; with more, a random part of the training sequences is compared
SEED = 0


class NearestNeighbour:
    """Predicts the target of the nearest training sequence; sequences are resampled to one length.

    `warping` allows each step to match a step nearby: dynamic time warping in a band.
    """

    def __init__(self, warping: bool):
        self.warping = warping

    def fit(self, X: Any, y: Any) -> Self:
        series = arrays(X)
        self.scaling_ = Scaling.of(series)
        self.steps_ = int(min(MAX_STEPS, max(2, np.median([len(x) for x in series]))))
        self.known_, self.targets_ = self._resample(series), np.asarray(y)
        self.classes_, self.n_parameters_ = np.unique(self.targets_), 0
        return self

    def _resample(self, series: Sequence[np.ndarray]) -> np.ndarray:
        """(n, steps, D): standardised, linear between the steps."""
        at = np.linspace(0, 1, self.steps_)
        return np.stack([_interpolate(self.scaling_.apply(x), at) for x in series])

    def _nearest(self, X: Any) -> np.ndarray:
        asked, chosen = self._resample(arrays(X)), np.arange(len(self.known_))
        if not self.warping:
            return _squared_distances(asked.reshape(len(asked), -1), self.known_.reshape(len(self.known_), -1)).argmin(
                1
            )
        band = max(1, round(BAND * self.steps_))
        each = len(asked) * self.steps_ * (2 * band + 1) * asked.shape[2]
        most = max(1, int(MAX_OPERATIONS / each))
        if most < len(chosen):
            chosen = np.sort(np.random.default_rng(SEED).permutation(len(chosen))[:most])
        return chosen[warped_distances(asked, self.known_[chosen], band).argmin(axis=1)]

    def predict(self, X: Any) -> np.ndarray:
        return self.targets_[self._nearest(X)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Nearly all of the probability for the neighbour's class."""
        found = np.full((len(X), len(self.classes_)), 0.01 / len(self.classes_))
        found[np.arange(len(X)), np.searchsorted(self.classes_, self.predict(X))] += 0.99
        return found


def warped_distances(one: np.ndarray, other: np.ndarray, band: int) -> np.ndarray:
    """(n, m): dynamic time warping between all pairs of sequences (n, T, D) and (m, T, D)."""
    steps = one.shape[1]
    infinite = np.full((len(one), len(other)), np.inf)
    before: dict[int, np.ndarray] = {}
    for i in range(steps):
        now: dict[int, np.ndarray] = {}
        for j in range(max(0, i - band), min(steps, i + band + 1)):
            cost = _squared_distances(one[:, i], other[:, j])
            if i or j:
                ways = before.get(j, infinite), before.get(j - 1, infinite), now.get(j - 1, infinite)
                cost += np.minimum(np.minimum(ways[0], ways[1]), ways[2])
            now[j] = cost
        before = now
    return np.sqrt(before[steps - 1].clip(0.0))


def _squared_distances(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T


def _interpolate(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    if len(x) == 1:
        return np.repeat(x, len(at), axis=0)
    where = at * (len(x) - 1)
    low = np.minimum(where.astype(int), len(x) - 2)
    share = (where - low)[:, None]
    return (1 - share) * x[low] + share * x[low + 1]
