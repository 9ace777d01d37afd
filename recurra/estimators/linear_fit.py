"""Fits linear forecasts: ridge regressions towards a naive forecast, with the loss of absolute errors.

The penalty and the naive forecast (the last value or a season) are chosen by cross-validation over blocks of time.
Absolute errors are minimised by least squares with the weight of every window divided by its last error (iteratively
reweighted least squares). All forecasts that later choices see are out of fold.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .linear import History, LinearForecast, predict_linear, shared_features
from .metrics import naive

PENALTIES = (1e-4, 1e-3, 0.01, 0.1, 1.0, 10.0, np.inf)  # times the number of windows; infinity is the naive forecast
CAUTIOUS = 0.1  # the least penalty for windows that mostly overlap, of which cross-validation tells little
FOLDS = 4
REWEIGHTED = 3  # regressions in which large errors count less
LEAST_ERROR = 0.1  # of the median error: the smallest that a weight is divided by


@dataclass(frozen=True)
class Moments:
    """The sums over windows that a ridge regression needs; those of parts add up."""

    windows: float
    square: np.ndarray  # (p, p): of the features that all steps share
    onto: np.ndarray  # (p, horizon)
    cross: np.ndarray  # (horizon, p, F): with the covariates of each step
    own: np.ndarray  # (horizon, F, F)
    own_onto: np.ndarray  # (horizon, F)

    @classmethod
    def of(cls, rows: np.ndarray, covariates: np.ndarray, actual: np.ndarray, weight: np.ndarray) -> "Moments":
        weighted = rows * weight[:, None]
        own = covariates * weight[:, None, None]
        return cls(
            len(rows),
            rows.T @ weighted,
            weighted.T @ actual,
            np.tensordot(covariates, weighted, axes=(0, 0)).transpose(0, 2, 1),
            np.einsum("nkf,nkg->kfg", own, covariates),
            np.einsum("nkf,nk->kf", own, actual),
        )

    def towards(self, rows: np.ndarray, covariates: np.ndarray, actual: np.ndarray, weight: np.ndarray) -> "Moments":
        """The same features with other targets."""
        onto = rows.T @ (actual * weight[:, None])
        own_onto = np.einsum("nkf,nk->kf", covariates * weight[:, None, None], actual)
        return replace(self, onto=onto, own_onto=own_onto)

    def without(self, first: int) -> "Moments":
        """Without the first features."""
        return replace(self, square=self.square[first:, first:], onto=self.onto[first:], cross=self.cross[:, first:])

    def solve(self, penalty: float) -> np.ndarray:
        """(horizon, columns): the weights of the regression with this penalty."""
        horizon, shared, more = self.cross.shape
        if not np.isfinite(penalty):
            return np.zeros((horizon, shared + more))
        shrink = max(penalty * self.windows, 1e-9)
        if not more:
            return np.linalg.solve(self.square + shrink * np.eye(shared), self.onto).T
        found = np.empty((horizon, shared + more))
        for k in range(horizon):
            matrix = np.block([[self.square, self.cross[k]], [self.cross[k].T, self.own[k]]])
            onto = np.concatenate([self.onto[:, k], self.own_onto[k]])
            found[k] = np.linalg.solve(matrix + shrink * np.eye(shared + more), onto)
        return found


def is_few(windows: int, horizon: int) -> bool:
    """Whether windows mostly overlap, so that they tell little about trends and penalties."""
    return windows < 2 * horizon


class LinearFit:
    """Windows in the order of time and the values after them (n, horizon), to fit linear forecasts to.

    `importance` (n,) is the weight of the windows' errors.
    """

    def __init__(
        self,
        pasts: list[History],
        actual: np.ndarray,
        seasons: tuple[int, ...],
        context: int,
        importance: np.ndarray | None = None,
    ):
        self.context = context
        self.rows = np.stack([shared_features(past.values, past, context) for past in pasts])
        self.covariates = np.stack([past.covariates for past in pasts])  # (n, horizon, F)
        self.weight = np.ones(len(pasts)) if importance is None else importance / importance.mean()
        self.parts = _parts(pasts)
        horizon = actual.shape[1]
        self.penalties = [p for p in PENALTIES if p >= CAUTIOUS or not is_few(len(pasts), horizon)]
        self.starts = {s: np.stack([naive(past.values, horizon, s) for past in pasts]) for s in sorted({1, *seasons})}
        self.changes = {season: actual - start for season, start in self.starts.items()}

    @property
    def given(self) -> list[np.ndarray]:
        """The numbers that the forecasts follow from."""
        seasons = np.array([self.context, *self.starts])
        return [self.rows, self.covariates, self.changes[1], self.weight, self.parts, seasons]

    @cached_property
    def moments(self) -> dict[int, list[Moments]]:
        """Of every naive forecast and part; those of the features are shared between naive forecasts."""
        found: dict[int, list[Moments]] = {}
        for season in self.starts:
            found[season] = []
            for number in range(1 + int(self.parts.max())):
                at = self.parts == number
                given = self.rows[at], self.covariates[at], self.changes[season][at], self.weight[at]
                found[season].append(found[1][number].towards(*given) if season > 1 else Moments.of(*given))
        return found

    def fit(self, lags: int | None = None) -> tuple[LinearForecast, np.ndarray]:
        """Fit with the last `lags` values, by default all of the context.

        **Returns** the forecast, and for every window the out-of-fold forecast (n, horizon).
        """
        first = self.context - (lags or self.context)
        season, penalty = min(self._cross_validate(first), key=lambda one: one[0])[1:]
        unseen, parts = self.starts[season].copy(), [one.without(first) for one in self.moments[season]]
        for number in range(len(parts) if len(parts) > 1 else 0):
            held = self.parts == number
            weights = self._reweighted(_total(parts, number), ~held, first, season, penalty)
            unseen[held] += predict_linear(weights, self.rows[held, first:], self.covariates[held])
        weights = self._reweighted(_total(parts), self.parts >= 0, first, season, penalty)
        unread = np.zeros((len(weights), first))
        return LinearForecast(np.concatenate([unread, weights], axis=1), season, self.context), unseen

    def least_squares(self) -> tuple[LinearForecast, np.ndarray]:
        """Fit for least squared errors, so that forecasts are means. **Returns** as `fit` does."""
        best = np.inf, 1, np.inf, next(iter(self.starts.values()))
        for season, parts in self.moments.items():
            for penalty in self.penalties if len(parts) > 1 else (np.inf,):
                unseen = self.starts[season].copy()
                for number in range(len(parts)):
                    held = self.parts == number
                    others = _total(parts, number) if len(parts) > 1 else parts[0]
                    unseen[held] += predict_linear(others.solve(penalty), self.rows[held], self.covariates[held])
                missed = self.changes[season] + self.starts[season] - unseen
                error = float((self.weight[:, None] * missed**2).mean())
                if error < best[0]:
                    best = error, season, penalty, unseen
        _, season, penalty, unseen = best
        return LinearForecast(_total(self.moments[season]).solve(penalty), season, self.context), unseen

    def _cross_validate(self, first: int) -> list[tuple[float, int, float]]:
        """The mean absolute error on each part of regressions on the others, for every naive forecast and penalty."""
        found = []
        for season, of_parts in self.moments.items():
            parts = [one.without(first) for one in of_parts]
            others = [_total(parts, number) for number in range(len(parts))] if len(parts) > 1 else parts
            for penalty in self.penalties if len(parts) > 1 else (np.inf,):
                error = 0.0
                for number, moments in enumerate(others):
                    held = self.parts == number
                    weights = moments.solve(penalty)
                    change = predict_linear(weights, self.rows[held, first:], self.covariates[held])
                    missed = np.abs(self.changes[season][held] - change).mean(axis=1)
                    error += float((missed * self.weight[held]).sum()) / len(self.rows)
                found.append((error, season, penalty))
        return found

    def _reweighted(self, moments: Moments, at: np.ndarray, first: int, season: int, penalty: float) -> np.ndarray:
        """Weights (horizon, columns) for which the weighted absolute errors of the windows `at` are small."""
        found = moments.solve(penalty)
        if not np.isfinite(penalty):
            return found
        rows, covariates, actual = self.rows[at, first:], self.covariates[at], self.changes[season][at]
        for _ in range(REWEIGHTED):
            error = np.abs(actual - predict_linear(found, rows, covariates)).mean(axis=1)
            weight = self.weight[at] / np.maximum(error, max(LEAST_ERROR * float(np.median(error)), 1e-9))
            found = Moments.of(rows, covariates, actual, weight / max(weight.mean(), 1e-12)).solve(penalty)
        return found


def _parts(pasts: list[History]) -> np.ndarray:
    """(n,): the part of every window, from early to late windows of its series; no part is empty."""
    names = np.array([past.name for past in pasts])
    found = np.zeros(len(pasts), dtype=int)
    for name in set(names.tolist()):
        at = np.flatnonzero(names == name)
        found[at] = np.arange(len(at)) * FOLDS // len(at)
    return np.unique(found, return_inverse=True)[1]


def _total(parts: list[Moments], but: int = -1) -> Moments:
    """The sums over all parts but one."""
    kept = [vars(one).values() for number, one in enumerate(parts) if number != but]
    sums: list[Any] = [sum(values) for values in zip(*kept, strict=True)]
    return Moments(*sums)
