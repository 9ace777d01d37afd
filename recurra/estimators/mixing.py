"""The weights of forecasts in the mix of every series, from their errors on windows they were not fitted to.

A forecast has the weight e^-8 of its error e. A short series has few windows that tell anything: there errors move
towards those of all series. How far is chosen by the last window of every series, forecast with the weights that follow
from the windows before it.
"""

from typing import NamedTuple

import numpy as np

SHARPNESS = 8  # how fast the weight of a forecast falls with its error
RECENCY = 1.0  # the errors of the last windows of a series count e^RECENCY times those of the first
LEAST_WEIGHT = 0.01  # smaller weights are zero
WORST = 1e6  # times the smallest error: beyond, a forecast is out of use
PULLS = (4.0, 0.0, 1.0, 16.0)  # the errors of all series count as so many windows of each; the first by default
FEWEST_SERIES = 10  # to choose among them
ENOUGH = 7  # windows of a series that share no step: with as many, it goes by its own errors


class Errors(NamedTuple):
    """Errors of members on windows in the order of time, in the units of the data of each series."""

    unseen: np.ndarray  # (members, n, horizon): out-of-fold forecasts; infinite where a member has none
    actual: np.ndarray  # (n, horizon)
    spread: np.ndarray  # (n,): the unit of both
    apart: np.ndarray  # (n,): the share of the steps ahead that the window before, of the same series, has not
    rows: list[np.ndarray]  # the windows of every series

    @property
    def sizes(self) -> np.ndarray:
        """(members, n): mean absolute errors."""
        return np.abs(self.actual - self.unseen).mean(axis=2) * self.spread


def have_few_windows(apart: np.ndarray, rows: list[np.ndarray]) -> bool:
    """Whether most series have fewer windows that share no step than their own errors need."""
    return bool(np.median(_alone(apart, rows)) < ENOUGH)


def mixed_weights(errors: Errors, is_short: bool) -> tuple[np.ndarray, np.ndarray]:
    """**Returns** the weights of every series (series, members), and those of a series that is not known (members,).

    Errors of short series move towards those of all.
    """
    relative, alone = _relative(errors.sizes, errors.rows), _alone(errors.apart, errors.rows)
    usual = weights_of(np.exp(_logs(relative).mean(axis=0))[None])[0]
    return _pulled(relative, alone, _choose_pull(errors) if is_short else 0.0), usual


def weights_of(errors: np.ndarray) -> np.ndarray:
    """(series, members): weights that add up to 1, from errors relative to the smallest of each series."""
    found = np.maximum(errors, 1e-12) ** -float(SHARPNESS)
    found = found / found.sum(axis=1, keepdims=True)
    found = np.where(found < np.minimum(LEAST_WEIGHT, found.max(axis=1, keepdims=True)), 0.0, found)
    return found / found.sum(axis=1, keepdims=True)


def _choose_pull(errors: Errors) -> float:
    early, last = [], []
    for at in errors.rows:
        to_come = np.cumsum(errors.apart[at][::-1])[::-1]  # windows without common steps, from each to the end
        if len(before := at[to_come >= 2 - 1e-9]):
            early.append(before)
            last.append(at[-1])
    if len(early) < FEWEST_SERIES:
        return PULLS[0]
    sizes = errors.sizes
    relative, alone = _relative(sizes, early), _alone(errors.apart, early)
    ahead = np.where(np.isfinite(errors.unseen[:, last]), errors.unseen[:, last], 0.0)
    unit = np.maximum(np.median(sizes[:, last], axis=0), 1e-12)

    def missed(pull: float) -> float:
        mixed = np.einsum("sm,msk->sk", _pulled(relative, alone, pull), ahead)
        return float((np.abs(errors.actual[last] - mixed).mean(axis=1) * errors.spread[last] / unit).mean())

    return min(PULLS, key=missed)


def _pulled(relative: np.ndarray, windows: np.ndarray, pull: float) -> np.ndarray:
    """(series, members): weights where the errors of all series count as some windows of each."""
    own, windows = _logs(relative), windows[:, None]
    found = (windows * own + pull * own.mean(axis=0)) / (windows + pull)
    found = np.exp(found - found.min(axis=1, keepdims=True))
    return weights_of(np.where(relative < WORST, found, np.inf))


def _relative(sizes: np.ndarray, rows: list[np.ndarray]) -> np.ndarray:
    """(series, members): the mean error on these windows of every series, relative to the smallest."""
    by_series = np.stack([sizes[:, at] @ _recent(len(at)) for at in rows])
    return by_series / np.maximum(by_series.min(axis=1, keepdims=True), 1e-12)


def _alone(apart: np.ndarray, rows: list[np.ndarray]) -> np.ndarray:
    """(series,): how many windows share no step."""
    return np.array([max(1.0, apart[at].sum()) for at in rows])


def _logs(relative: np.ndarray) -> np.ndarray:
    return np.log(np.clip(relative, 1.0, WORST))


def _recent(windows: int) -> np.ndarray:
    """Weights of windows in the order of time, which add up to 1."""
    found = np.exp(RECENCY * np.linspace(0, 1, windows))
    return found / found.sum()
