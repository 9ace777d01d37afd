"""Forecasting baselines: last value or season, with drift, smoothing, linear autoregression, echo state network.

Each has the `fit` and `backtest` of `rc.Forecaster`, so that both are scored from the same origins.
"""

from abc import ABC, abstractmethod
from itertools import product
from typing import Any, Self

import numpy as np
from sklearn.linear_model import RidgeCV

from recurra.compare.baselines.smoothing import smoothed_forecasts
from recurra.estimators.backtest import Backtest, compare_with_naive
from recurra.estimators.metrics import naive
from recurra.estimators.panel import to_panel
from recurra.estimators.scaling import Scaling
from recurra.estimators.seasons import seasons
from recurra.reservoir import EchoStateNetwork

MAX_WINDOWS = 5000  # training windows
MAX_WARMUP = 500  # steps an echo state network reads before it forecasts
RIDGE_PENALTIES = np.logspace(-6, 5, 23)
UNITS = 100
TUNED_SERIES = 20  # series on which an echo state network is tuned
CANDIDATES = tuple(product((0.3, 1.0), (0.6, 0.95), (1e-4, 1e-2, 1.0)))  # leak, spectral radius, penalty


class PointForecaster(ABC):
    """A point forecast from the past of a series; subclasses define it."""

    def __init__(self, options: dict[str, Any]):
        self.horizon, self.season = int(options.get("horizon", 12)), seasons(options.get("season", 1))[0]
        self.targets: tuple[str, ...] = ()
        self.context = int(options.get("context") or max(2 * self.season, self.horizon, 16))
        self.n_parameters_ = 0

    def fit(self, data: Any, y: Any = None) -> Self:
        self.targets = tuple([y] if isinstance(y, str) else y or ())
        given = to_panel(data, target=self.targets)
        series = {name: one[:, None] for name, one in zip(given.ids, given.y, strict=True)}  # (T, 1) each
        self.scalings_ = {name: Scaling.of([one]) for name, one in series.items()}
        self._fit_scaled([self.scalings_[name].apply(one) for name, one in series.items()])
        return self

    @abstractmethod
    def _fit_scaled(self, series: list[np.ndarray]) -> None:
        """Fit to scaled series, (T, 1) each."""

    @abstractmethod
    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        """(n, steps) forecasts of scaled pasts, (T, 1) each."""

    def backtest(self, data: Any, h: int | None = None, windows: int = 10, step: int | None = None) -> Backtest:
        """From the last `windows` origins of every series, as `rc.Forecaster.backtest`."""
        given, steps = to_panel(data, target=self.targets), self.horizon if h is None else h
        stride = steps if step is None else step
        origins = [
            (k, at)
            for k, one in enumerate(given.y)
            for at in (len(one) - steps - stride * w for w in reversed(range(windows)))
            if at >= 2
        ]
        pasts = [given.y[k][:at] for k, at in origins]
        actual = np.stack([given.y[k][at : at + steps] for k, at in origins])
        scalings = [self.scalings_.get(given.ids[k]) or Scaling.of([given.y[k][:at, None]]) for k, at in origins]
        scaled = [scaling.apply(past[:, None]) for scaling, past in zip(scalings, pasts, strict=True)]
        found = self._forecast(scaled, steps)
        points = np.stack([scaling.invert(row[:, None]) for scaling, row in zip(scalings, found, strict=True)])
        names = [given.ids[k] for k, _ in origins]
        return compare_with_naive(pasts, actual, points, (0.5,), self.season, (), names)


class NaiveForecaster(PointForecaster):
    """Repeats the last `period` values."""

    def __init__(self, options: dict[str, Any], period: int):
        super().__init__(options)
        self.period = period

    def _fit_scaled(self, series: list[np.ndarray]) -> None:
        self.n_parameters_ = 0

    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        return np.stack([naive(past[:, 0], steps, self.period) for past in pasts])


class DriftForecaster(NaiveForecaster):
    """The last `period` values, and the mean change per step of the past added to them."""

    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        drifts = np.array([self._drift(past[:, 0]) for past in pasts])
        return super()._forecast(pasts, steps) + drifts[:, None] * (np.arange(steps) // self.period + 1)

    def _drift(self, past: np.ndarray) -> float:
        """The mean change over one period, between the first and the last one."""
        period = self.period if len(past) > self.period else 1
        return (
            float((past[-period:].mean() - past[:period].mean()) * period / (len(past) - period))
            if len(past) > 1
            else 0.0
        )


class SmoothingForecaster(PointForecaster):
    """Exponential smoothing with damped trend and season, its setting chosen on the past of every forecast."""

    def _fit_scaled(self, series: list[np.ndarray]) -> None:
        self.n_parameters_ = 4  # level, trend, damping, season

    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        return smoothed_forecasts([past[:, 0] for past in pasts], steps, self.season)


class LinearForecaster(PointForecaster):
    """Ridge regression of every step ahead on the last values, both relative to the last one; leave-one-out penalty."""

    def _fit_scaled(self, series: list[np.ndarray]) -> None:
        origins = [(k, at) for k, one in enumerate(series) for at in range(2, len(one) - self.horizon + 1)]
        origins = [origin for origin in origins if origin[1] >= self.context] or origins  # full contexts, if any
        chosen = np.linspace(0, len(origins) - 1, min(len(origins), MAX_WINDOWS)).round().astype(int)
        pasts = [series[origins[c][0]][: origins[c][1]] for c in chosen]
        ahead = np.stack([series[origins[c][0]][origins[c][1] :][: self.horizon, 0] for c in chosen])
        rows, levels = self._rows(pasts)
        self.model_ = RidgeCV(RIDGE_PENALTIES).fit(rows, ahead - levels)
        self.n_parameters_ = int(np.size(self.model_.coef_) + np.size(self.model_.intercept_))

    def _rows(self, pasts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(n, context) last values, padded in front with the first one, less the last value; and (n, 1) last values."""
        ends = [past[-self.context :, 0] for past in pasts]
        rows = np.stack([np.pad(end, (self.context - len(end), 0), mode="edge") for end in ends])
        return rows - rows[:, -1:], rows[:, -1:]

    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        """Beyond the horizon, forecasts are fed back as inputs."""
        found = np.zeros((len(pasts), 0))
        while found.shape[1] < steps:
            grown = [np.concatenate([past, row[:, None]]) for past, row in zip(pasts, found, strict=True)]
            rows, levels = self._rows(grown)
            found = np.concatenate([found, self.model_.predict(rows).reshape(len(rows), -1) + levels], axis=1)
        return found[:, :steps]


class EchoStateForecaster(PointForecaster):
    """An echo state network trained on the next value, which runs freely on its own forecasts.

    Leak, spectral radius and penalty are those with the smallest error on the end of the training series. Forecasts are
    held within the range of the training values, widened by half: a free run may otherwise grow without bound.
    """

    def __init__(self, options: dict[str, Any], seed: int):
        super().__init__(options)
        self.seed = seed

    def _fit_scaled(self, series: list[np.ndarray]) -> None:
        values = np.concatenate(series)
        low, high = float(values.min()), float(values.max())
        self.bounds_ = low - (high - low) / 2, high + (high - low) / 2
        self.network_ = self._network(series, *self._tuned(series))
        self.n_parameters_ = sum(int(np.size(member.readout)) for member in self.network_.members_)

    def _network(self, series: list[np.ndarray], leak: float, radius: float, penalty: float) -> EchoStateNetwork:
        washout = min(100, min(map(len, series)) // 4)
        options = {"leak": leak, "spectral_radius": radius, "ridge": penalty, "bias": 0.5, "washout": washout}
        return EchoStateNetwork(UNITS, **options, random_state=self.seed).fit(series)

    def _tuned(self, series: list[np.ndarray]) -> tuple[float, float, float]:
        """The candidate whose free runs over the held-out end of the training series are best."""
        held = self.horizon
        usable = [one for one in series if len(one) >= 3 * held + 8][:TUNED_SERIES]
        if not usable:
            return CANDIDATES[0]
        ahead = np.stack([one[-held:, 0] for one in usable])
        pasts = [one[:-held] for one in usable]
        errors = {}
        for candidate in CANDIDATES:
            self.network_ = self._network(pasts, *candidate)
            errors[candidate] = float(np.abs(self._forecast(pasts, held) - ahead).mean())
        return min(errors, key=lambda candidate: errors[candidate])

    def _forecast(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        warmups = [past[-MAX_WARMUP:] for past in pasts]
        found = np.empty((len(pasts), steps))
        for length in sorted({len(warmup) for warmup in warmups}):  # a batch has one length
            where = [k for k, warmup in enumerate(warmups) if len(warmup) == length]
            found[where] = self.network_.generate(steps, warmup=[warmups[k] for k in where])[:, :, 0]
        return np.nan_to_num(found, posinf=np.inf, neginf=-np.inf).clip(*self.bounds_)
