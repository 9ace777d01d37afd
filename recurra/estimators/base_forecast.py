"""The base forecast: linear and naive forecasts, mixed series by series, from which the network departs.

Members are linear forecasts of the values and of their logarithms, with all lags and with a quarter of them, whose
errors are weighted in several units; naive forecasts of every season; exponential smoothing of values and logarithms,
where series are short and without a season; and, where windows are too few to learn a trend from, naive forecasts with
the trend of the last steps. `mixing.py` weighs them: a series that follows last week takes it, one with a trend its
level.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from .exponential_smoothing import Smoothing, smoothings
from .kept_parts import Arrays, KeptParts
from .linear import History, LinearForecast, LinearForecasts
from .linear_fit import LinearFit, is_few
from .metrics import naive
from .mixing import Errors, have_few_windows, mixed_weights

LONGEST = 128  # steps of windows that are smoothed: regressions on longer ones learn as much

Progress = Callable[[Sequence[tuple[int, int]]], Iterable[tuple[int, int]]]

BASE_PARTS = "base-forecast"  # the folder of a run where fitted members are kept
LEAST_UNIT = 1e-4  # of errors, in spreads of the window
PRIOR_WINDOWS = 4  # the errors of all series count as so many windows of each
SHORT = 4  # the share of lags that members with few lags read, as a divisor


@dataclass(frozen=True)
class Member:
    """A forecast of the values, or of their logarithms."""

    log: bool
    linear: LinearForecasts
    smoothing: Smoothing | None = None  # adds to the linear forecast

    def __call__(self, past: History) -> np.ndarray:
        """(steps,): forecasts minus the level, in spreads."""
        if not self.log:
            return self._of_view(past)
        if past.log is None:
            return np.zeros(len(past.covariates))
        return past.from_log(self._of_view(past.log))

    def _of_view(self, past: History) -> np.ndarray:
        found = self.linear(past)
        return found if self.smoothing is None else found + self.smoothing(past.values)[: len(found)]


@dataclass(frozen=True)
class Shares:
    """The weights (members,) of a series, and the size of its errors in spreads of the window."""

    weights: np.ndarray
    unit: float = 1.0


@dataclass(frozen=True)
class BaseForecast:
    """Members and their shares by the name of the series; `usual` are those of a series that `fit` did not have."""

    members: tuple[Member, ...]
    usual: Shares
    series: Mapping[str, Shares] = field(default_factory=dict)

    @classmethod
    def of_one(cls, linear: LinearForecasts) -> "BaseForecast":
        """One linear forecast, the same for all series."""
        return cls((Member(False, linear),), Shares(np.ones(1)))

    def shares(self, past: History) -> Shares:
        found = self.series.get(past.name, self.usual)
        if past.log is not None or not any(member.log for member in self.members):
            return found
        weights = np.where([member.log for member in self.members], 0.0, found.weights)
        return (
            Shares(weights / weights.sum(), found.unit) if weights.sum() else Shares(_first(self.members), found.unit)
        )

    def __call__(self, past: History) -> np.ndarray:
        """(steps,): the mixed forecast, minus the level, in spreads."""
        found = np.zeros(len(past.covariates))
        for member, weight in zip(self.members, self.shares(past).weights, strict=True):
            if weight:
                found += weight * member(past)
        return found


def _first(members: tuple[Member, ...]) -> np.ndarray:
    """All weight on the first member that is not of logarithms."""
    at = next(k for k, member in enumerate(members) if not member.log)
    return np.eye(len(members))[at]


# ---------------------------------------------------------------------------------------------------- fitting


def fit_base(
    pasts: list[History],
    actual: np.ndarray,
    seasons: tuple[int, ...],
    context: int,
    targets: int,
    apart: np.ndarray,
    progress: Progress = iter,
) -> tuple[BaseForecast, np.ndarray]:
    """Fit on windows in the order of time and the values after them (n, horizon); `progress` shows how far it is.

    `apart` (n,) is the share of the steps ahead of every window that the window before it, of its series, has not.

    **Returns** the forecast, and for every window the out-of-fold forecast (n, horizon).
    """
    found = [
        *_linear_members(pasts, actual, seasons, context, targets, progress),
        *_naive_members(pasts, actual, seasons, context),
    ]
    names = np.array([past.name for past in pasts])
    rows = {name: np.flatnonzero(names == name) for name in dict.fromkeys(names.tolist())}
    is_short = max(seasons) == 1 and context <= LONGEST and have_few_windows(apart, list(rows.values()))
    if is_short:
        found += _smoothing_members(pasts, actual, context)
    if is_few(len(pasts) // targets, actual.shape[1]):
        found += _trend_members(pasts, actual, seasons, context)
    members = tuple(member for member, _ in found)
    unseen = np.stack([one for _, one in found])  # (members, n, horizon)
    spread = np.array([past.spread * past.units.scale for past in pasts])
    weights, usual = mixed_weights(Errors(unseen, actual, spread, apart, list(rows.values())), is_short)
    base = np.zeros_like(actual)
    for at, mix in zip(rows.values(), weights, strict=True):
        base[at] = np.einsum("m,mnk->nk", mix, np.where(mix[:, None, None] > 0, unseen[:, at], 0.0))
    size = np.abs(actual - base).mean(axis=1)
    units = {name: max(_shrunk(size[at], size), LEAST_UNIT) for name, at in rows.items()}
    shares = {name: Shares(mix, units[name]) for name, mix in zip(rows, weights, strict=True)}
    return BaseForecast(members, Shares(usual, max(float(size.mean()), LEAST_UNIT)), shares), base


def _shrunk(own: np.ndarray, every: np.ndarray) -> float:
    """The mean error of a series, with those of all series as a few windows more."""
    return float((own.sum() + PRIOR_WINDOWS * every.mean()) / (len(own) + PRIOR_WINDOWS))


def _naive_members(
    pasts: list[History], actual: np.ndarray, seasons: tuple[int, ...], context: int
) -> list[tuple[Member, np.ndarray]]:
    horizon, found = actual.shape[1], []
    columns = context + 2 + len(pasts[0].constants) + pasts[0].covariates.shape[1]
    targets = 1 + max(past.target for past in pasts)
    for season in sorted({1, *seasons}):
        one = LinearForecast(np.zeros((horizon, columns)), season, context)
        unseen = np.stack([naive(past.values, horizon, season) for past in pasts])
        found.append((Member(False, LinearForecasts((one,) * targets)), unseen))
    return found


def _smoothing_members(pasts: list[History], actual: np.ndarray, context: int) -> list[tuple[Member, np.ndarray]]:
    horizon, still = actual.shape[1], _standstill(pasts, actual.shape[1], context)
    usable, found = np.array([past.log is not None for past in pasts]), []
    for smoothing in smoothings(horizon):
        found.append((Member(False, still, smoothing), _smoothed([past.values for past in pasts], smoothing)))
        if usable.any():
            unseen = np.full_like(actual, np.inf)
            some = [past for past in pasts if past.log is not None]
            logs = _smoothed([past.log.values for past in some if past.log is not None], smoothing)
            unseen[usable] = np.stack([past.from_log(one) for past, one in zip(some, logs, strict=True)])
            found.append((Member(True, still, smoothing), unseen))
    return found


def _standstill(pasts: list[History], horizon: int, context: int) -> LinearForecasts:
    """The last value, for every target."""
    width = context + 2 + len(pasts[0].constants) + pasts[0].covariates.shape[1]
    targets = 1 + max(past.target for past in pasts)
    return LinearForecasts((LinearForecast(np.zeros((horizon, width)), 1, context),) * targets)


def _smoothed(windows: list[np.ndarray], smoothing: Smoothing) -> np.ndarray:
    """(n, horizon): the forecasts of windows (L,), those of one length at once."""
    lengths, found = np.array([len(values) for values in windows]), np.empty((len(windows), smoothing.horizon))
    for length in np.unique(lengths):
        at = np.flatnonzero(lengths == length)
        found[at] = np.stack([windows[k] for k in at]) @ smoothing.matrix(int(length)).T
    return found


def _trend_members(
    pasts: list[History], actual: np.ndarray, seasons: tuple[int, ...], context: int
) -> list[tuple[Member, np.ndarray]]:
    """The naive forecasts of values and of logarithms, moved on by the change over whole seasons: as many as cover the
    horizon, or as all windows have; a window that has none has no trend."""
    horizon, found = actual.shape[1], []
    targets = 1 + max(past.target for past in pasts)
    shortest = min(len(past.values) for past in pasts)
    width = context + 2 + len(pasts[0].constants) + pasts[0].covariates.shape[1]
    for season in sorted({1, *seasons}):
        reach = season * max(1, min(-(-horizon // season), (shortest - 1) // season))
        if reach >= context:
            continue
        weights = np.zeros((horizon, width))
        weights[:, context - 1 - reach] = -np.arange(1, horizon + 1) / reach  # lags are relative to the last value
        linear = LinearForecasts((LinearForecast(weights, season, context),) * targets)
        for log in (False, True) if all(past.log is not None for past in pasts) else (False,):
            member = Member(log, linear)
            found.append((member, np.stack([member(past) for past in pasts])))
    return found


class _Views(NamedTuple):
    """Windows of values or of their logarithms, and the values after each (n, horizon), of the windows `usable`."""

    log: bool
    usable: np.ndarray
    pasts: list[History]
    views: list[History]
    actual: np.ndarray


def _linear_members(
    pasts: list[History], actual: np.ndarray, seasons: tuple[int, ...], context: int, targets: int, progress: Progress
) -> list[tuple[Member, np.ndarray]]:
    """Linear forecasts of values and logarithms, by the unit of errors and by lags, of every target."""
    groups = [
        (views, importance)
        for views in _views(pasts, actual, targets)
        for importance in _importances(views.pasts, views.log, seasons)
    ]
    of, numbers, lags = [past.target for past in pasts], range(targets), sorted({context, max(1, context // SHORT)})
    units = [(views, importance, target) for views, importance in groups for target in numbers]
    kept, fit, found = KeptParts.of_run(BASE_PARTS), None, []
    for k, count in progress([(k, count) for k in range(len(units)) for count in lags]):
        views, importance, target = units[k]
        at = np.flatnonzero(np.array(of)[views.usable] == target)
        if fit is None or count == lags[0]:
            fit = LinearFit([views.views[j] for j in at], views.actual[at], seasons, context, importance[at])
        found.append((at, *_fit_kept(kept, fit, count)))
    members = []
    for k, (views, _) in enumerate(groups):
        for which in range(len(lags)):
            parts = [found[(k * targets + target) * len(lags) + which] for target in numbers]
            unseen = np.zeros_like(views.actual)
            for at, _, one in parts:
                unseen[at] = one
            member = Member(views.log, LinearForecasts(tuple(linear for _, linear, _ in parts)))
            members.append((member, _of_all_windows(views, unseen, actual)))
    return members


def _views(pasts: list[History], actual: np.ndarray, targets: int) -> list[_Views]:
    found = [_Views(False, np.ones(len(pasts), dtype=bool), pasts, pasts, actual)]
    usable = np.array([past.log is not None for past in pasts])
    if {past.target for past, use in zip(pasts, usable, strict=True) if use} == set(range(targets)):
        some = [past for past in pasts if past.log is not None]
        values = np.stack([past.to_log(one) for past, one in zip(some, actual[usable], strict=True)])
        found.append(_Views(True, usable, some, [past.log for past in some if past.log is not None], values))
    return found


def _fit_kept(kept: KeptParts, fit: LinearFit, lags: int) -> tuple[LinearForecast, np.ndarray]:
    """A linear forecast and the out-of-fold forecasts of its windows, from an earlier start of this fit if it got to
    them."""

    def compute() -> Arrays:
        linear, unseen = fit.fit(lags)
        return {"weights": linear.weights, "season": np.array(linear.season), "unseen": unseen}

    found = kept.get([*fit.given, np.array(lags)], compute)
    return LinearForecast(found["weights"], int(found["season"]), fit.context), found["unseen"]


def _of_all_windows(views: _Views, unseen: np.ndarray, actual: np.ndarray) -> np.ndarray:
    """(n, horizon): out-of-fold forecasts of values, infinite where there are no logarithms."""
    found = np.full_like(actual, np.inf)
    if not views.log:
        return unseen
    found[views.usable] = np.stack([past.from_log(one) for past, one in zip(views.pasts, unseen, strict=True)])
    return found


def _importances(pasts: list[History], log: bool, seasons: tuple[int, ...]) -> list[np.ndarray]:
    """Weights (n,) of errors in spreads: in units of the naive forecast's error on each series; and equal ones, or for
    logarithms relative errors."""
    views = [past.log for past in pasts] if log else pasts
    scale = [past.units.log_scale if log else past.units.scale for past in pasts]
    spread = np.array([view.spread * one for view, one in zip(views, scale, strict=True) if view is not None])
    usual: dict[str, list[float]] = {}
    for past, view, unit in zip(pasts, views, spread, strict=True):
        assert view is not None
        usual.setdefault(past.name, []).append(unit * max(_naive_error(view.values, seasons), 1e-3))
    scaled = spread / np.array([np.mean(usual[past.name]) for past in pasts])
    plain = spread if log else np.ones_like(spread)
    return [plain, scaled] if np.ptp(scaled) > 1e-9 or log else [plain]


def _naive_error(values: np.ndarray, seasons: tuple[int, ...]) -> float:
    """The smallest mean absolute error of the naive forecasts inside a window."""
    errors = [np.abs(values[s:] - values[:-s]).mean() for s in seasons if s < len(values)]
    return float(min(errors, default=1.0))
