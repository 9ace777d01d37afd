"""Intervals that hold what they promise: conformalised quantile regression (Romano, Patterson & Candès 2019).

On windows the training has not learned from, every interval is widened by as much as makes it hold the share of values
it should; for every step ahead of its own. None is narrowed: that one stretch was calm is no promise for the next.
"""

import numpy as np


def corrections(wanted: np.ndarray, quantiles: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(steps, Q), to be added to quantiles (n, steps, Q) of wanted (n, steps); zero for a level without its mirror."""
    found = np.zeros(quantiles.shape[1:])
    for low, level in enumerate(levels):
        high = _mirror(level, levels)
        if level >= 0.5 or high is None:
            continue
        outside = np.maximum(quantiles[:, :, low] - wanted, wanted - quantiles[:, :, high])  # (n, steps)
        share = min(1.0, (1 - 2 * level) * (1 + 1 / len(wanted)))
        widen = np.maximum(0.0, np.quantile(outside, share, axis=0, method="higher"))
        found[:, low], found[:, high] = -widen, widen
    return found


def corrected(quantiles: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Quantiles (n, steps, Q) in order; steps beyond the calibrated ones are shifted as the last of them."""
    steps = np.minimum(np.arange(quantiles.shape[1]), len(shifts) - 1)
    return np.sort(quantiles + shifts[steps], axis=-1)


def at_levels(quantiles: np.ndarray, levels: tuple[float, ...], asked: np.ndarray) -> np.ndarray:
    """(n, steps, len(asked)): between the levels that were learned, quantiles lie on straight lines."""
    right = np.clip(np.searchsorted(levels, asked), 1, len(levels) - 1)
    known = np.asarray(levels)
    weight = (asked - known[right - 1]) / (known[right] - known[right - 1])
    return quantiles[..., right - 1] * (1 - weight) + quantiles[..., right] * weight


def _mirror(level: float, levels: tuple[float, ...]) -> int | None:
    return next((k for k, other in enumerate(levels) if abs(other - (1 - level)) < 1e-9), None)
