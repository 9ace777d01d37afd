"""The linear forecast: a ridge regression for every step ahead, whose deviations the network learns.

A regression reads the window of `windows.py` (values minus the last one, divided by their spread), the last value,
constants and covariates. It is shrunk towards the naive forecast: the last value or the last season. The penalty, the
number of lags and the weighting of windows are chosen by cross-validation over blocks of time. The network is trained
on the out-of-fold forecasts of the regressions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from .metrics import naive

PENALTIES = (0.01, 0.1, 1.0, 10.0, np.inf)  # times the number of windows; infinity is the naive forecast
FOLDS = 4
MAX_WINDOWS = 8000  # for the regressions; of more, evenly spaced ones are used


class History(NamedTuple):
    """One window: the past values of a series, and what else the linear forecast and the network read; all scaled."""

    values: np.ndarray  # (L,): (value - level) / spread
    level: float  # the last value
    spread: float
    constants: np.ndarray  # (S,): static features and observed covariates, for the linear forecast
    covariates: np.ndarray  # (steps, F): of the steps ahead, for the linear forecast
    inputs: np.ndarray  # (L + steps, columns): covariates of all steps, for the network
    target: int = 0  # the number of the target


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
    def of(
        cls, pasts: list[History], actual: np.ndarray, season: int, context: int, targets: int
    ) -> tuple["LinearForecasts", np.ndarray]:
        """Fit on windows in the order of time and the values after them (n, horizon), target by target.

        **Returns** the forecasts, and for every window the out-of-fold forecast (n, horizon).
        """
        each, unseen, of = [], np.zeros_like(actual), np.array([past.target for past in pasts])
        for target in range(targets):
            chosen = np.flatnonzero(of == target)
            found, unseen[chosen] = fit_linear([pasts[k] for k in chosen], actual[chosen], season, context)
            each.append(found)
        return cls(tuple(each)), unseen

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


def fit_linear(
    pasts: list[History], actual: np.ndarray, season: int, context: int
) -> tuple[LinearForecast, np.ndarray]:
    """Fit on windows in the order of time and the values after them (n, horizon).

    **Returns** the forecast, and for every window the out-of-fold forecast (n, horizon).
    """
    shared = np.stack([shared_features(past.values, past, context) for past in pasts])
    covariates = np.stack([past.covariates for past in pasts])  # (n, horizon, F)
    spread = np.array([past.spread for past in pasts])
    parts = np.arange(len(pasts)) * FOLDS // len(pasts)
    weightings = np.ones_like(spread), spread / np.sqrt(np.mean(spread**2))  # equal weights, or weights by the spread
    best, chosen, unseen = np.inf, (1, np.inf, context, 0), np.zeros_like(actual)
    for centre, lags, by in product({1, season}, _lag_choices(context), range(len(weightings))):
        start = np.stack([naive(past.values, actual.shape[1], centre) for past in pasts])
        rows = _with_lags(shared, context, lags)
        for penalty, found in _cross_validate(rows, covariates, actual - start, weightings[by], parts):
            error = float((np.abs(actual - start - found).mean(axis=1) * spread).mean())
            if error < best:
                best, chosen, unseen = error, (centre, penalty, lags, by), start + found
    centre, penalty, lags, by = chosen
    start = np.stack([naive(past.values, actual.shape[1], centre) for past in pasts])
    rows = _with_lags(shared, context, lags)
    weights = next(_ridge_weights(rows, covariates, actual - start, weightings[by], (penalty,)))
    return LinearForecast(weights, centre, context), unseen


def _lag_choices(context: int) -> list[int]:
    return sorted({context, max(1, context // 2), max(1, context // 4)}, reverse=True)


def _with_lags(rows: np.ndarray, context: int, lags: int) -> np.ndarray:
    """The rows with all but the last `lags` values set to zero."""
    cut = rows.copy()
    cut[:, : context - lags] = 0
    return cut


def _cross_validate(
    rows: np.ndarray, covariates: np.ndarray, actual: np.ndarray, importance: np.ndarray, parts: np.ndarray
) -> Iterator[tuple[float, np.ndarray]]:
    """For every penalty, the forecasts of each part by regressions on the other parts."""
    found = np.zeros((len(PENALTIES), *actual.shape))
    for part in range(FOLDS):
        held, kept = parts == part, parts != part
        if not held.any() or not kept.any():
            continue
        solutions = _ridge_weights(rows[kept], covariates[kept], actual[kept], importance[kept], PENALTIES)
        for k, weights in enumerate(solutions):
            found[k, held] = predict_linear(weights, rows[held], covariates[held])
    yield from zip(PENALTIES, found, strict=True)


def predict_linear(weights: np.ndarray, rows: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """(n, horizon): the forecasts of weights (horizon, columns)."""
    lags, more = weights[:, : rows.shape[1]], weights[:, rows.shape[1] :]
    return rows @ lags.T + (covariates * more).sum(axis=2)


def _ridge_weights(
    rows: np.ndarray,
    covariates: np.ndarray,
    actual: np.ndarray,
    importance: np.ndarray,
    penalties: tuple[float, ...],
) -> Iterator[np.ndarray]:
    """Ridge weights (horizon, columns) for every penalty; `importance` (n,) are the weights of the windows."""
    rows, actual, covariates = (
        rows * importance[:, None],
        actual * importance[:, None],
        covariates * importance[:, None, None],
    )
    horizon, columns = actual.shape[1], rows.shape[1] + covariates.shape[2]
    square, onto = rows.T @ rows, rows.T @ actual
    for penalty in penalties:
        if not np.isfinite(penalty):
            yield np.zeros((horizon, columns))
        elif not covariates.shape[2]:
            yield np.linalg.solve(square + penalty * len(rows) * np.eye(columns), onto).T
        else:
            each = [np.concatenate([rows, covariates[:, k]], axis=1) for k in range(horizon)]
            shrink = penalty * len(rows) * np.eye(columns)
            yield np.stack([np.linalg.solve(x.T @ x + shrink, x.T @ actual[:, k]) for k, x in enumerate(each)])
