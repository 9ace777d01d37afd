"""The linear forecast: ridge regressions from the last values to every step ahead, from which the network departs.

A step's regression reads the window as windows.py has it (values less the last one, in their own spread), the last
value, constants and covariates, and is shrunk towards the naive forecast: the last value, or the last season. How far,
from how many values, and whether restless windows count for more, is chosen by cross-validation over stretches of time,
as are the forecasts the network learns from: none comes from a regression that has seen its answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from .metrics import naive

PENALTIES = (0.01, 0.1, 1.0, 10.0, np.inf)  # times the number of windows; the last leaves the naive forecast
FOLDS = 4
MOST = 8000  # windows to regress on, evenly spaced where there would be more


class History(NamedTuple):
    """One window before it is laid out for the network; values in the scale of their series."""

    values: np.ndarray  # (L,), less the level, in units of the spread
    level: float
    spread: float
    known: np.ndarray  # (L + steps, F)
    then: np.ndarray  # (L + steps, F): the same when the naive forecast was a value
    static: np.ndarray  # (S,)

    @property
    def covariates(self) -> np.ndarray:
        """(steps, 2F) to come."""
        return np.concatenate([self.known, self.then], axis=1)[len(self.values) :]


@dataclass(frozen=True)
class LinearForecast:
    """weights (horizon, context + 2 + S + 2F, …): from the row of `features` to the departure from a naive forecast."""

    weights: np.ndarray
    season: int  # of the naive forecast it departs from; 1: the last value
    context: int

    @classmethod
    def none(cls, horizon: int, context: int, static: int, known: int, season: int = 1) -> "LinearForecast":
        return cls(np.zeros((horizon, context + 2 + static + 2 * known)), season, context)

    def __call__(self, past: History) -> np.ndarray:
        """(steps,): the departures from the level, in spreads. Beyond the horizon, forecasts are taken for values."""
        found, horizon = np.zeros(0), len(self.weights)
        while len(found) < len(past.covariates):
            values = np.concatenate([past.values, found])
            covariates = past.covariates[len(found) : len(found) + horizon]
            row = common(values, past, self.context)
            change = answers(self.weights[: len(covariates)], row[None], covariates[None])[0]
            found = np.concatenate([found, naive(values, len(covariates), self.season) + change])
        return found


def common(values: np.ndarray, past: History, context: int) -> np.ndarray:
    """(context + 2 + S,): what all steps read; before the first value, the level."""
    lags = np.zeros(context)
    lags[max(0, context - len(values)) :] = values[-context:]
    return np.concatenate([lags, [1.0, past.level / past.spread], past.static])


def fit_linear(
    pasts: list[History], wanted: np.ndarray, season: int, context: int
) -> tuple[LinearForecast, np.ndarray]:
    """From windows in the order of time and what followed, (n, horizon): the forecast, and for each of the windows
    that of a regression which did not see it."""
    shared = np.stack([common(past.values, past, context) for past in pasts])
    covariates = np.stack([past.covariates for past in pasts])  # (n, horizon, 2F)
    spread = np.array([past.spread for past in pasts])
    parts = np.arange(len(pasts)) * FOLDS // len(pasts)
    even = np.ones_like(spread), spread / np.sqrt(np.mean(spread**2))  # windows count alike, or by their size
    best, chosen, unseen = np.inf, (1, np.inf, context, 0), np.zeros_like(wanted)
    for centre, lags, by in product({1, season}, _lags(context), range(len(even))):
        start = np.stack([naive(past.values, wanted.shape[1], centre) for past in pasts])
        rows = _with_lags(shared, context, lags)
        for penalty, found in _left_out(rows, covariates, wanted - start, even[by], parts):
            error = float((np.abs(wanted - start - found).mean(axis=1) * spread).mean())
            if error < best:
                best, chosen, unseen = error, (centre, penalty, lags, by), start + found
    centre, penalty, lags, by = chosen
    start = np.stack([naive(past.values, wanted.shape[1], centre) for past in pasts])
    rows = _with_lags(shared, context, lags)
    weights = next(_solutions(rows, covariates, wanted - start, even[by], (penalty,)))
    return LinearForecast(weights, centre, context), unseen


def _lags(context: int) -> list[int]:
    return sorted({context, max(1, context // 2), max(1, context // 4)}, reverse=True)


def _with_lags(rows: np.ndarray, context: int, lags: int) -> np.ndarray:
    """The same rows, as if only the last values were known."""
    cut = rows.copy()
    cut[:, : context - lags] = 0
    return cut


def _left_out(
    rows: np.ndarray, covariates: np.ndarray, wanted: np.ndarray, counts: np.ndarray, parts: np.ndarray
) -> Iterator[tuple[float, np.ndarray]]:
    """For every penalty, what regressions on the other parts say of each part."""
    found = np.zeros((len(PENALTIES), *wanted.shape))
    for part in range(FOLDS):
        held, kept = parts == part, parts != part
        if not held.any() or not kept.any():
            continue
        solutions = _solutions(rows[kept], covariates[kept], wanted[kept], counts[kept], PENALTIES)
        for k, weights in enumerate(solutions):
            found[k, held] = answers(weights, rows[held], covariates[held])
    yield from zip(PENALTIES, found, strict=True)


def answers(weights: np.ndarray, rows: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """(n, horizon)."""
    lags, more = weights[:, : rows.shape[1]], weights[:, rows.shape[1] :]
    return rows @ lags.T + (covariates * more).sum(axis=2)


def _solutions(
    rows: np.ndarray, covariates: np.ndarray, wanted: np.ndarray, counts: np.ndarray, penalties: tuple[float, ...]
) -> Iterator[np.ndarray]:
    """Ridge weights (horizon, columns) for every penalty; counts (n,): by how much each window counts."""
    rows, wanted, covariates = rows * counts[:, None], wanted * counts[:, None], covariates * counts[:, None, None]
    horizon, columns = wanted.shape[1], rows.shape[1] + covariates.shape[2]
    square, onto = rows.T @ rows, rows.T @ wanted
    for penalty in penalties:
        if not np.isfinite(penalty):
            yield np.zeros((horizon, columns))
        elif not covariates.shape[2]:
            yield np.linalg.solve(square + penalty * len(rows) * np.eye(columns), onto).T
        else:
            each = [np.concatenate([rows, covariates[:, k]], axis=1) for k in range(horizon)]
            shrink = penalty * len(rows) * np.eye(columns)
            yield np.stack([np.linalg.solve(x.T @ x + shrink, x.T @ wanted[:, k]) for k, x in enumerate(each)])
