"""Exponential smoothing with a damped trend and an additive season, for many series and many settings at once."""

from itertools import product

import numpy as np

MAX_STEPS = 600  # of the past that are smoothed
BATCH = 2**21  # numbers of one array

ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.99)  # smoothing of the level
TRENDS = ((0.0, 0.0), (0.02, 0.9), (0.02, 0.98), (0.1, 0.9), (0.1, 0.98), (0.3, 0.9))  # of the trend, and its damping
GAMMAS = (0.02, 0.1, 0.3)  # of the season


def smoothed_forecasts(pasts: list[np.ndarray], steps: int, season: int) -> np.ndarray:
    """(n, steps): every past (T,) forecast by the setting with the smallest squared error one step ahead in it."""
    found = np.empty((len(pasts), steps))
    ends = [past[-MAX_STEPS:] for past in pasts]
    settings = _settings(season)
    size = max(1, BATCH // (len(settings) * max(1, season)))
    for length in sorted({len(end) for end in ends}):
        where = [k for k, end in enumerate(ends) if len(end) == length]
        period = season if length >= 2 * season else 1
        for first in range(0, len(where), size):
            some = where[first : first + size]
            found[some] = _forecast(np.stack([ends[k] for k in some]), steps, period, settings)
    return found


def _settings(season: int) -> np.ndarray:
    """(P, 4): level, trend, damping, season."""
    gammas = GAMMAS if season > 1 else (0.0,)
    return np.array([(a, b, phi, g) for a, (b, phi), g in product(ALPHAS, TRENDS, gammas)])


def _forecast(y: np.ndarray, steps: int, season: int, settings: np.ndarray) -> np.ndarray:
    """(n, steps) for pasts (n, T) of one length."""
    alpha, beta, phi, gamma = settings.T  # (P,) each
    shape = len(y), len(settings)
    level = np.repeat(y[:, :season].mean(axis=1)[:, None], len(settings), axis=1)  # (n, P)
    trend, errors = np.zeros(shape), np.zeros(shape)
    offsets = np.repeat((y[:, :season] - level[:, :1])[:, None], len(settings), axis=1)  # (n, P, season)
    for t in range(y.shape[1]):
        at, seen = t % season, y[:, t, None]
        predicted = level + phi * trend
        error = seen - predicted - offsets[:, :, at]
        if t >= season:
            errors += error**2
        new_level = predicted + alpha * error
        trend = phi * trend + alpha * beta * error
        offsets[:, :, at] += gamma * (1 - alpha) * error * (season > 1)
        level = new_level
    best = errors.argmin(axis=1)
    rows = np.arange(len(y))
    damped = np.cumsum(phi[best][:, None] ** np.arange(1, steps + 1), axis=1)  # (n, steps)
    repeated = offsets[rows, best][:, (y.shape[1] + np.arange(steps)) % season]
    return level[rows, best][:, None] + damped * trend[rows, best][:, None] + repeated * (season > 1)
