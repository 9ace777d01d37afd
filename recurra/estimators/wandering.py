"""How far series wander: the variance of their changes by the number of steps, a measure that no model biases.

A regression on a random walk finds a return to the mean that is not there, so that a model fed with its own forecasts
has intervals that hardly grow, around a median that drifts. The variance of changes tells both apart: it grows in
proportion to the steps in a random walk and stays where a series returns to its mean or its season (the variance ratio
of Lo & MacKinlay 1988, with their correction for overlapping changes). So far as the series wandered, intervals beyond
the horizon gain at least the variance of the changes since, and that of the drift of their median.
"""

import numpy as np
from scipy.special import ndtri

MAX_LAGS, MAX_SERIES = 512, 200
MIN_CHANGES = 8  # changes of a series from which a variance is taken


def wandering(series: list[np.ndarray], season: int) -> np.ndarray:
    """(L,): the mean variance of changes over 1, 2, … L steps of scaled series (T,), rounded up to whole seasons."""
    chosen = [series[k] for k in np.linspace(0, len(series) - 1, min(len(series), MAX_SERIES)).round().astype(int)]
    found: list[float] = []
    for whole in range(season, MAX_LAGS + season, season):
        parts = [_variance(y, whole) for y in chosen if len(y) >= max(4 * whole, whole + MIN_CHANGES)]
        if not parts:
            break
        found += [float(np.mean(parts))] * season
    return np.maximum.accumulate(found[:MAX_LAGS]) if found else np.ones(1)


def _variance(y: np.ndarray, lag: int) -> float:
    """The variance of changes over `lag` steps; overlapping ones underestimate it, which is corrected."""
    return float((y[lag:] - y[:-lag]).var() / (1 - lag / len(y)))


def wandering_until(known: np.ndarray, steps: int) -> np.ndarray:
    """(steps,): the variances of `wandering`; beyond those known they grow as over the last half of these."""
    further = np.arange(1, max(0, steps - len(known)) + 1)
    slope = (known[-1] - known[len(known) // 2]) / max(1, len(known) - 1 - len(known) // 2)
    return np.concatenate([known, known[-1] + slope * further])[:steps]


def widen_beyond(
    quantiles: np.ndarray, levels: tuple[float, ...], horizon: int, season: int, known: np.ndarray
) -> np.ndarray:
    """Quantiles (steps, Q) of a scaled series with intervals beyond the horizon that grow at least as series wander.

    Each step is compared with the last one of the same season inside the horizon; `known` is from `wandering`.
    """
    middle = quantiles[:, [levels.index(0.5)]]
    away, normal, variance = np.abs(quantiles - middle), np.abs(ndtri(levels)), wandering_until(known, len(quantiles))
    for step in range(horizon, len(quantiles)):
        near = step - season * -(-(step - horizon + 1) // season)
        near = near if near >= 0 else horizon - 1
        gained = variance[step] - variance[near]
        share = np.clip(
            gained / max(variance[near], 1e-12) / ((step + 1) / (near + 1) - 1), 0.0, 1.0
        )  # 1: a random walk
        drift = (middle[step] - middle[near]) ** 2
        least = np.maximum(away[step] ** 2, away[near] ** 2 + share * gained * normal**2)
        away[step] = np.maximum(np.sqrt(least + share * drift * normal**2), away[max(step - season, near)])
    return middle + np.sign(np.asarray(levels) - 0.5) * away
