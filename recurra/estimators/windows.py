"""Windows of the forecaster: the past and the steps ahead as one input sequence, for training and prediction.

The columns of a step: the value minus the last known one (ahead: the linear forecast); whether the value is known; the
naive forecast, for steps ahead; the last known value, in two units; static features of the series; covariates, and the
covariates at the step that the naive forecast repeats. All are scaled; values are also divided by their spread in the
window, so that a series with growing amplitude stays in the range of the training data.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .linear import History
from .metrics import naive
from .panel import Panel
from .scaling import Scaling

T = TypeVar("T")
MIN_SPREAD = 0.1  # of a window, relative to its series, so that a flat window is not amplified


@dataclass(frozen=True)
class Origin:
    """A forecast origin: the first unknown step `at` of a series."""

    series: int
    at: int


@dataclass
class Windows:
    """Cuts windows of the last `context` steps before an origin, scaled series by series."""

    context: int
    season: int
    series: dict[str, Scaling]  # (1,) each, by the name of the series
    known: Scaling
    static: Scaling

    @classmethod
    def of(cls, given: Panel, context: int, season: int) -> "Windows":
        each = {name: Scaling.of([y[:, None]]) for name, y in zip(given.ids, given.y, strict=True)}
        return cls(context, season, each, Scaling.of(given.known), Scaling.of([given.static]))

    def scaling(self, given: Panel, k: int) -> Scaling:
        """The scaling of a series from `fit`, or for an unknown series that of its own past."""
        return self.series.get(given.ids[k]) or Scaling.of([given.y[k][:, None]])

    def history(self, given: Panel, origin: Origin, steps: int) -> History:
        k, first = origin.series, max(0, origin.at - self.context)
        past = self.scaling(given, k).apply(given.y[k][first : origin.at, None])[:, 0]
        known = self.known.apply(given.known[k][first : origin.at + steps])
        return self.history_of(past, known, self.static.apply(given.static[k]))

    def history_of(self, past: np.ndarray, known: np.ndarray, static: np.ndarray) -> History:
        """The window of scaled values (L,), covariates (L + steps, F) and static features (S,)."""
        level, spread = float(past[-1]), max(float(past.std()), MIN_SPREAD)
        repeated = known[naive_source(len(past), len(known) - len(past), self.season)]
        return History((past - level) / spread, level, spread, known, repeated, static)

    def targets(self, given: Panel, origins: list[Origin], pasts: list[History], steps: int) -> np.ndarray:
        """(n, steps): the values after each origin, minus the level, in spreads."""
        found = np.empty((len(origins), steps))
        for row, o, past in zip(found, origins, pasts, strict=True):
            values = given.y[o.series][o.at : o.at + steps, None]
            row[:] = (self.scaling(given, o.series).apply(values)[:, 0] - past.level) / past.spread
        return found

    def inputs(self, past: History, base: np.ndarray) -> np.ndarray:
        """(L + steps, columns): the input of the network; `base` (steps,) is the linear forecast."""
        length, steps = len(past.values), len(base)
        values = np.concatenate([past.values, base])
        seen = np.concatenate([np.ones(length), np.zeros(steps)])
        repeated = np.concatenate([np.zeros(length), naive(past.values, steps, self.season)])
        constants = np.array([past.level, past.level / past.spread, *past.static])
        every = np.broadcast_to(constants, (length + steps, len(constants)))
        return np.column_stack([values, seen, repeated, every, past.known, past.known_at_source])


def naive_source(past: int, steps: int, season: int) -> np.ndarray:
    """(past + steps,): the step that the naive forecast of each step repeats."""
    period = season if past >= season else 1
    return np.concatenate([np.maximum(np.arange(past) - period, 0), past - period + np.arange(steps) % period])


def window_width(known: int, static: int) -> int:
    """The number of columns of a window."""
    return 5 + static + 2 * known


def thin_evenly(origins: list[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced."""
    if len(origins) <= most:
        return origins
    return [origins[k] for k in np.linspace(0, len(origins) - 1, most).round().astype(int)]
