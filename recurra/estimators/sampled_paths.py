"""Forecasts beyond the horizon: paths drawn from the forecaster's own quantiles, each continued by its next forecast.

Every path is a possible course of the series. Its steps within one forecast hang together as the errors on held-out
windows did (the ranks of those errors are drawn row by row, as in the Schaake shuffle of Clark et al. 2004). The
quantiles of a later step are those of the mixture of the forecasts from all paths, widened as in `wandering.py`.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from .wandering import widen_beyond

PATHS = 200
MAX_RANKS = 400  # held-out windows whose ranks are kept
MIXTURE_LEVELS = 20  # at which the forecast of each path enters the mixture

Continue = Callable[[np.ndarray, int], np.ndarray]


def equal_ranks(steps: int) -> np.ndarray:
    """(PATHS, steps): ranks of errors that are equally large at all steps, where nothing is known of them."""
    return np.repeat(np.arange(float(PATHS))[:, None], steps, axis=1)


def error_ranks(actual: np.ndarray, quantiles: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(n, steps): the ranks from 0 of the actual values (n, steps) in the quantiles (n, steps, Q), at each step."""
    kept = np.linspace(0, len(actual) - 1, min(len(actual), MAX_RANKS)).round().astype(int)
    middle, width = quantiles[..., levels.index(0.5)], quantiles[..., -1] - quantiles[..., 0]
    errors = ((actual - middle) / np.maximum(width, 1e-12))[kept]
    return errors.argsort(axis=0).argsort(axis=0).astype(np.float64)


def forecast_beyond(
    continue_paths: Continue,
    steps: int,
    levels: tuple[float, ...],
    ranks: np.ndarray,
    targets: int,
    season: int,
    variances: np.ndarray,
) -> np.ndarray:
    """Quantiles (targets, steps, Q) at `levels`, also beyond the horizon.

    **Arguments**

    - `continue_paths`: from paths (n, targets, t) after the origin and a number of steps to the quantiles
      (n, targets, steps, Q) of the steps after them.
    - `ranks`: (m, targets · horizon), of `error_ranks`.
    - `season`, `variances`: of `widen_beyond`; no step beyond the horizon has a narrower interval than the step one
      season before.
    """
    random, ranks = np.random.default_rng(0), ranks.reshape(len(ranks), targets, -1)
    paths, found, horizon = np.zeros((PATHS, targets, 0)), [], ranks.shape[2]
    while paths.shape[2] < steps:
        ahead = min(horizon, steps - paths.shape[2])
        ends = continue_paths(paths if found else paths[:1], ahead)
        found.append(np.stack([_mixture(ends[:, k], levels) for k in range(targets)]) if found else ends[0])
        drawn = _draw(np.broadcast_to(ends, (PATHS, *ends.shape[1:])), levels, ranks[..., :ahead], random)
        paths = np.concatenate([paths, drawn], axis=2)
    every = np.concatenate(found, axis=1)
    return np.stack([widen_beyond(one, levels, horizon, season, variances) for one in every])


def draw_paths(
    continue_paths: Continue,
    steps: int,
    levels: tuple[float, ...],
    ranks: np.ndarray,
    targets: int,
    paths: int,
    random: np.random.Generator,
) -> np.ndarray:
    """(paths, targets, steps): possible courses, each drawn from the forecasts that its own steps give.

    The arguments are those of `forecast_beyond`.
    """
    ranks, found = ranks.reshape(len(ranks), targets, -1), np.zeros((paths, targets, 0))
    while found.shape[2] < steps:
        ahead = min(ranks.shape[2], steps - found.shape[2])
        ends = continue_paths(found if found.shape[2] else found[:1], ahead)
        drawn = _draw(np.broadcast_to(ends, (paths, *ends.shape[1:])), levels, ranks[..., :ahead], random)
        found = np.concatenate([found, drawn], axis=2)
    return found


def _draw(
    quantiles: np.ndarray, levels: tuple[float, ...], ranks: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """(n, targets, steps): one path from each of the forecasts (n, targets, steps, Q)."""
    rows = random.permutation(np.linspace(0, len(ranks) - 1, len(quantiles)).round().astype(int))
    chosen = ranks[rows] + random.uniform(0.01, 0.99, (len(rows), 1, 1))
    return _quantile_at(quantiles, levels, (chosen / len(ranks))[..., None])[..., 0]


def _mixture(quantiles: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(steps, Q): the quantiles of the mixture of forecasts (n, steps, Q)."""
    count, steps, _ = quantiles.shape
    every = (np.arange(MIXTURE_LEVELS) + (np.arange(count)[:, None] + 0.5) / count) / MIXTURE_LEVELS  # (n, levels)
    values = _quantile_at(quantiles, levels, np.repeat(every[:, None], steps, axis=1))
    pooled = values.transpose(1, 0, 2).reshape(steps, -1)
    return np.quantile(pooled, levels, axis=1).T


def _quantile_at(quantiles: np.ndarray, levels: tuple[float, ...], asked: np.ndarray) -> np.ndarray:
    """(…, k): quantiles (…, Q) at the levels `asked` (…, k), between and beyond those known as of a normal."""
    known, wanted = ndtri(np.asarray(levels)), ndtri(asked)
    right = np.clip(np.searchsorted(known, wanted), 1, len(known) - 1)
    weight = (wanted - known[right - 1]) / (known[right] - known[right - 1])
    low, high = (np.take_along_axis(quantiles, at, axis=-1) for at in (right - 1, right))
    return low * (1 - weight) + high * weight
