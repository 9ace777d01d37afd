"""A linear forecast: for every step ahead, a regression on the window, added to a naive forecast.

It reads the window of `windows.py` (values minus the last one, divided by their spread), the last value, constants and
covariates. `linear_fit.py` finds its weights.
"""

from dataclasses import dataclass
from typing import NamedTuple, Optional

import numpy as np

from .metrics import naive

LOG_RANGE = 8.0  # standard deviations from the mean that logarithms are kept within


class Units(NamedTuple):
    """Mean and scale of a series, and of its logarithms; a log_scale of 0 marks a series that is not positive."""

    mean: float = 0.0
    scale: float = 1.0
    log_mean: float = 0.0
    log_scale: float = 0.0

    def to_log(self, scaled: np.ndarray) -> np.ndarray:
        """Scaled values as scaled logarithms."""
        floor = np.exp(self.log_mean - LOG_RANGE * self.log_scale)
        return (np.log(np.maximum(scaled * self.scale + self.mean, floor)) - self.log_mean) / self.log_scale

    def from_log(self, scaled: np.ndarray) -> np.ndarray:
        """Scaled logarithms as scaled values."""
        value = np.exp(self.log_mean + self.log_scale * np.clip(scaled, -LOG_RANGE, LOG_RANGE))
        return (value - self.mean) / self.scale


class History(NamedTuple):
    """One window: the past values of a series, and what else the linear forecast and the network read; all scaled."""

    values: np.ndarray  # (L,): (value - level) / spread
    level: float  # the last value
    spread: float
    constants: np.ndarray  # (S,): static features and observed covariates, for the linear forecast
    covariates: np.ndarray  # (steps, F): of the steps ahead, for the linear forecast
    inputs: np.ndarray  # (L + steps, columns): covariates of all steps, for the network
    target: int = 0  # the number of the target
    name: str = ""  # of the series
    units: Units = Units()
    log: Optional["History"] = None  # the same window of logarithms, if the series is positive

    def to_log(self, relative: np.ndarray) -> np.ndarray:
        """Values minus the level, in spreads, as logarithms minus theirs."""
        assert self.log is not None
        return (self.units.to_log(self.level + self.spread * relative) - self.log.level) / self.log.spread

    def from_log(self, relative: np.ndarray) -> np.ndarray:
        """The inverse of `to_log`."""
        assert self.log is not None
        return (self.units.from_log(self.log.level + self.log.spread * relative) - self.level) / self.spread


@dataclass(frozen=True)
class LinearForecast:
    """weights (horizon, context + 2 + S + F): from features to the deviation from a naive forecast."""

    weights: np.ndarray
    season: int  # of the naive forecast; 1 is the last value
    context: int

    def __call__(self, past: History) -> np.ndarray:
        """(steps,): forecasts minus the level, in spreads, of at most `horizon` steps."""
        row, covariates = shared_features(past.values, past, self.context), past.covariates
        change = predict_linear(self.weights[: len(covariates)], row[None], covariates[None])[0]
        return naive(past.values, len(covariates), self.season) + change


@dataclass(frozen=True)
class LinearForecasts:
    """A linear forecast for every target."""

    each: tuple[LinearForecast, ...]

    @classmethod
    def from_weights(cls, weights: np.ndarray, seasons: list[int], context: int) -> "LinearForecasts":
        """From the weights (targets · horizon, columns) of `weights`."""
        parts = np.split(weights, len(seasons))
        return cls(tuple(LinearForecast(part, season, context) for part, season in zip(parts, seasons, strict=True)))

    @property
    def weights(self) -> np.ndarray:
        """(targets · horizon, columns)."""
        return np.concatenate([one.weights for one in self.each])

    @property
    def seasons(self) -> list[int]:
        return [one.season for one in self.each]

    def __call__(self, past: History) -> np.ndarray:
        """(steps,): the forecast of the window's target."""
        return self.each[past.target](past)


def shared_features(values: np.ndarray, past: History, context: int) -> np.ndarray:
    """(context + 2 + S,): the features that all steps share; lags before the first value are zero, the level."""
    lags = np.zeros(context)
    lags[max(0, context - len(values)) :] = values[-context:]
    return np.concatenate([lags, [1.0, past.level / past.spread], past.constants])


def predict_linear(weights: np.ndarray, rows: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """(n, horizon): the forecasts of weights (horizon, columns)."""
    lags, more = weights[:, : rows.shape[1]], weights[:, rows.shape[1] :]
    return rows @ lags.T + (covariates * more).sum(axis=2)
