"""Views of a sequence that the banks read: it is scaled by itself or by the training set, with the changes of both.

Of several features, a view mixes a few, with random signs. Every view has mean square 1 over the training set.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..scaling import Scaling
from .sequences import Sequences

MIXTURES = 8  # random mixtures of several features
ALREADY_SCALED = 0.02  # means and deviations of sequences differ by less: both scalings would give the same views


@dataclass(frozen=True)
class Views:
    """From sequences (T, D) to their views, (V, T) each."""

    scaling: Scaling  # of the training set
    mixing: np.ndarray  # (D, M)
    by_set: bool  # whether views scaled by the training set stand beside those scaled by the sequence itself
    sizes: np.ndarray  # (V,): the root mean square of each view

    @classmethod
    def of(cls, series: Sequence[np.ndarray], random: np.random.Generator) -> "Views":
        """Fitted to training sequences."""
        scaling, width = Scaling.of(series), series[0].shape[1]
        mixing = np.ones((1, 1)) if width == 1 else _mixing(width, random)
        blank = cls(scaling, mixing, not _is_scaled(series, scaling), np.ones(1))
        square = sum(np.square(x).sum(axis=1, dtype=np.float64) for x in blank.apply(series).items)
        sizes = np.sqrt(square / sum(len(x) for x in series))
        return cls(scaling, mixing, blank.by_set, np.where(sizes > 1e-12, sizes, 1.0))

    @property
    def count(self) -> int:
        return self.mixing.shape[1] * (4 if self.by_set else 2)

    def apply(self, series: Sequence[np.ndarray]) -> Sequences:
        return Sequences([(self._views(x) / self.sizes[:, None]).astype(np.float32) for x in series])

    def _views(self, x: np.ndarray) -> np.ndarray:
        own = Scaling.of([x]).apply(x) @ self.mixing  # (T, M)
        values = [own, self.scaling.apply(x) @ self.mixing] if self.by_set else [own]
        return np.concatenate([view.T for value in values for view in (value, _changes(value))])


def _mixing(width: int, random: np.random.Generator) -> np.ndarray:
    """(D, M): each column adds and subtracts a few features, most often one or two."""
    found = np.zeros((width, MIXTURES))
    for column in found.T:
        size = min(width, int(2 ** random.uniform(0, np.log2(width + 1))))
        column[random.choice(width, size, replace=False)] = random.choice([-1.0, 1.0], size)
    return found


def _changes(x: np.ndarray) -> np.ndarray:
    """First differences, as many as steps: the first is repeated."""
    return np.diff(x, axis=0, prepend=2 * x[:1] - x[1:2]) if len(x) > 1 else np.zeros_like(x)


def _is_scaled(series: Sequence[np.ndarray], scaling: Scaling) -> bool:
    scaled = [scaling.apply(x) for x in series]
    means, deviations = np.stack([x.mean(axis=0) for x in scaled]), np.stack([x.std(axis=0) for x in scaled])
    return bool(np.abs(means).max() < ALREADY_SCALED and np.abs(deviations - 1).max() < ALREADY_SCALED)
