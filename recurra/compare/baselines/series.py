"""Baselines for what comes next: the last value, the last season, a linear autoregression, an echo state network.

Each has `fit` and `backtest` as `rc.Forecaster` has them, so that both are judged from the same origins.
"""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.linear_model import RidgeCV

from recurra.estimators.backtest import Backtest, compare
from recurra.estimators.metrics import naive
from recurra.estimators.panel import panel
from recurra.estimators.scaling import Scaling
from recurra.reservoir import EchoStateNetwork

MOST = 5000  # windows to learn from
LONGEST = 500  # steps a reservoir hears before it goes on
PENALTIES = np.logspace(-6, 5, 23)
UNITS = 100


class PointForecaster(ABC):
    """One forecast from a past; subclasses say which."""

    def __init__(self, options: dict[str, Any]):
        self.horizon, self.season = int(options.get("horizon", 12)), int(options.get("season", 1))
        self.columns = tuple(options.get("known", ())), tuple(options.get("static", ()))
        self.context = int(options.get("context") or max(2 * self.season, self.horizon, 16))
        self.learned_ = 0

    def fit(self, data: Any, y: Any = None) -> Self:
        given = panel(data, *self.columns)
        series = {name: one[:, None] for name, one in zip(given.ids, given.y, strict=True)}  # (T, 1) each
        self.scalings_ = {name: Scaling.of([one]) for name, one in series.items()}
        self._learn([self.scalings_[name].apply(one) for name, one in series.items()])
        return self

    @abstractmethod
    def _learn(self, series: list[np.ndarray]) -> None:
        """From scaled series, (T, 1) each."""

    @abstractmethod
    def _ahead(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        """(n, steps) forecasts of scaled pasts, (T, 1) each."""

    def backtest(self, data: Any, h: int | None = None, windows: int = 10, step: int | None = None) -> Backtest:
        """From the last `windows` origins of every series, as `rc.Forecaster.backtest`."""
        given, steps = panel(data, *self.columns), self.horizon if h is None else h
        apart = steps if step is None else step
        places = [
            (k, at)
            for k, one in enumerate(given.y)
            for at in (len(one) - steps - apart * w for w in reversed(range(windows)))
            if at >= 2
        ]
        pasts = [given.y[k][:at] for k, at in places]
        wanted = np.stack([given.y[k][at : at + steps] for k, at in places])
        scalings = [self.scalings_.get(given.ids[k]) or Scaling.of([given.y[k][:at, None]]) for k, at in places]
        scaled = [scaling.apply(past[:, None]) for scaling, past in zip(scalings, pasts, strict=True)]
        found = self._ahead(scaled, steps)
        points = np.stack([scaling.invert(row[:, None]) for scaling, row in zip(scalings, found, strict=True)])
        return compare(pasts, wanted, points, (0.5,), self.season, ())


class NaiveForecaster(PointForecaster):
    """The last `period` values again and again."""

    def __init__(self, options: dict[str, Any], period: int):
        super().__init__(options)
        self.period = period

    def _learn(self, series: list[np.ndarray]) -> None:
        self.learned_ = 0

    def _ahead(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        return np.stack([naive(past[:, 0], steps, self.period) for past in pasts])


class LinearForecaster(PointForecaster):
    """Every step ahead as a linear function of the last values, all less the last one; ridge by leave-one-out."""

    def _learn(self, series: list[np.ndarray]) -> None:
        places = [(k, at) for k, one in enumerate(series) for at in range(2, len(one) - self.horizon + 1)]
        places = [place for place in places if place[1] >= self.context] or places  # whole pasts, if there are any
        chosen = np.linspace(0, len(places) - 1, min(len(places), MOST)).round().astype(int)
        pasts = [series[places[c][0]][: places[c][1]] for c in chosen]
        ahead = np.stack([series[places[c][0]][places[c][1] :][: self.horizon, 0] for c in chosen])
        rows, levels = self._rows(pasts)
        self.model_ = RidgeCV(PENALTIES).fit(rows, ahead - levels)
        self.learned_ = int(np.size(self.model_.coef_) + np.size(self.model_.intercept_))

    def _rows(self, pasts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(n, context), the first value standing in for what was before it, and (n, 1) levels."""
        ends = [past[-self.context :, 0] for past in pasts]
        rows = np.stack([np.pad(end, (self.context - len(end), 0), mode="edge") for end in ends])
        return rows - rows[:, -1:], rows[:, -1:]

    def _ahead(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        """Beyond the horizon, forecasts are forecast from."""
        found = np.zeros((len(pasts), 0))
        while found.shape[1] < steps:
            grown = [np.concatenate([past, row[:, None]]) for past, row in zip(pasts, found, strict=True)]
            rows, levels = self._rows(grown)
            found = np.concatenate([found, self.model_.predict(rows).reshape(len(rows), -1) + levels], axis=1)
        return found[:, :steps]


class EchoForecaster(PointForecaster):
    """An echo state network that learns the next value and goes on alone."""

    def __init__(self, options: dict[str, Any], seed: int):
        super().__init__(options)
        self.seed = seed

    def _learn(self, series: list[np.ndarray]) -> None:
        washout = min(100, min(map(len, series)) // 4)
        network = EchoStateNetwork(UNITS, leak=0.5, bias=0.5, washout=washout, ridge="loo", random_state=self.seed)
        self.network_ = network.fit(series)
        self.learned_ = sum(int(np.size(member.readout)) for member in self.network_.members_)

    def _ahead(self, pasts: list[np.ndarray], steps: int) -> np.ndarray:
        heard = [past[-LONGEST:] for past in pasts]
        found = np.empty((len(pasts), steps))
        for length in sorted({len(past) for past in heard}):  # a batch has one length
            where = [k for k, past in enumerate(heard) if len(past) == length]
            found[where] = self.network_.generate(steps, warmup=[heard[k] for k in where])[:, :, 0]
        return found
