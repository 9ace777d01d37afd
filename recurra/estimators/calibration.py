"""Calibration of intervals: conformalised quantile regression (Romano, Patterson & Candès 2019).

On windows held out from training, every interval is widened or narrowed until it covers its share of the values,
separately for each step ahead.
"""

import numpy as np


def error_quantiles(errors: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(steps, Q): the quantiles of errors (n, steps), further out by the share of one window, for the next to come."""
    asked = 0.5 + (np.asarray(levels) - 0.5) * (1 + 1 / len(errors))
    return np.quantile(errors, np.clip(asked, 0.0, 1.0), axis=0).T


def interval_corrections(actual: np.ndarray, quantiles: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(steps, Q): what to add to quantiles (n, steps, Q), given the actual values (n, steps).

    A level without its mirror (0.1 without 0.9) has no correction.
    """
    found = np.zeros(quantiles.shape[1:])
    for low, level in enumerate(levels):
        high = _mirror(level, levels)
        if level >= 0.5 or high is None:
            continue
        outside = np.maximum(quantiles[:, :, low] - actual, actual - quantiles[:, :, high])  # (n, steps)
        share = min(1.0, (1 - 2 * level) * (1 + 1 / len(actual)))
        widen = np.quantile(outside, share, axis=0, method="higher")
        half = (quantiles[:, :, high] - quantiles[:, :, low]).min(axis=0) / 2
        found[:, low], found[:, high] = -np.maximum(widen, -half), np.maximum(widen, -half)
    return found


def apply_corrections(quantiles: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """Corrected quantiles (n, steps, Q), in order; steps beyond the calibrated ones take the last correction."""
    steps = np.minimum(np.arange(quantiles.shape[1]), len(shifts) - 1)
    return np.sort(quantiles + shifts[steps], axis=-1)


def interpolate_levels(quantiles: np.ndarray, levels: tuple[float, ...], asked: np.ndarray) -> np.ndarray:
    """(n, steps, len(asked)): quantiles at other levels, by linear interpolation."""
    right = np.clip(np.searchsorted(levels, asked), 1, len(levels) - 1)
    known = np.asarray(levels)
    weight = (asked - known[right - 1]) / (known[right] - known[right - 1])
    return quantiles[..., right - 1] * (1 - weight) + quantiles[..., right] * weight


def _mirror(level: float, levels: tuple[float, ...]) -> int | None:
    return next((k for k, other in enumerate(levels) if abs(other - (1 - level)) < 1e-9), None)
