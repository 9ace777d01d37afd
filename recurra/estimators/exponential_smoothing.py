"""Forecasts by exponential smoothing with fixed factors: a window's values times a matrix, since all of it is linear.

Values are smoothed without a trend; with half the slope of a straight line (the theta method, Assimakopoulos &
Nikolopoulos 2000; Hyndman & Billah 2003); or with a damped trend that is smoothed too (Gardner & McKenzie 1985).
"""

import functools
from dataclasses import dataclass

import numpy as np

TRENDS = "none", "half", "damped"
FEWEST = 3  # values from which a trend is read
FIRST = 4  # values whose slope a damped trend starts from


@dataclass(frozen=True)
class Smoothing:
    """(L,) values of a window → (horizon,) forecasts."""

    trend: str  # one of TRENDS
    level: float  # the share of a new error that moves the level
    slope: float  # the share of that which moves the trend
    damping: float
    horizon: int

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.matrix(len(values)) @ values

    def matrix(self, count: int) -> np.ndarray:
        """(horizon, count): what every value of so long a window adds to each forecast."""
        return _matrix(self, count)


#: trend, level, slope, damping: of fixed factors that differ, the mix takes what suits a series
KINDS = (
    ("none", 0.3, 0.0, 1.0),
    ("half", 0.3, 0.0, 1.0),
    ("half", 0.6, 0.0, 1.0),
    ("half", 0.9, 0.0, 1.0),
    ("damped", 0.5, 0.2, 0.9),
    ("damped", 0.8, 0.1, 0.95),
    ("damped", 0.9, 0.2, 0.9),
)


def smoothings(horizon: int) -> list[Smoothing]:
    """Every kind."""
    return [Smoothing(*kind, horizon) for kind in KINDS]


@functools.lru_cache(maxsize=1024)
def _matrix(how: Smoothing, count: int) -> np.ndarray:
    y, ahead = np.eye(count), np.arange(1, how.horizon + 1)[:, None]  # rows are steps: linear in unit series
    if how.trend == "half" and count >= FEWEST:
        return _half_slope(y, ahead, how.level)
    if how.trend == "damped" and count >= FEWEST:
        return _damped(y, ahead, how)
    return np.tile(_smoothed(y, how.level), (how.horizon, 1))


def _smoothed(y: np.ndarray, share: float) -> np.ndarray:
    level = y[0]
    for value in y[1:]:
        level = level + share * (value - level)
    return level


def _half_slope(y: np.ndarray, ahead: np.ndarray, share: float) -> np.ndarray:
    """The mean of a straight line and of a level smoothed where changes around that line are twice as large."""
    count = len(y)
    start, slope = np.linalg.pinv(np.stack([np.ones(count), np.arange(count)], axis=1)) @ y
    line = start + np.arange(count)[:, None] * slope
    return 0.5 * (_smoothed(2 * y - line, share) + start + (count - 1 + ahead) * slope)


def _damped(y: np.ndarray, ahead: np.ndarray, how: Smoothing) -> np.ndarray:
    first = min(FIRST, len(y)) - 1
    level, trend = y[0], (y[first] - y[0]) / first
    for value in y[1:]:
        expected = level + how.damping * trend
        level = expected + how.level * (value - expected)
        trend = how.damping * trend + how.level * how.slope * (value - expected)
    return level + np.cumsum(how.damping**ahead, axis=0) * trend
