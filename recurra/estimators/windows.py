"""A history and the steps to come as one sequence, the same for training and for forecasting.

A step has the columns: the value, less the last one known (to come: the linear forecast in its place); whether the
value is known; the naive forecast, where it is not; the last value known, in two units; constants of the series;
covariates, and how they were when the naive forecast was a value. All are scaled, the values once more by how they
spread in the window: a series whose swings grow stays inside what was learned, and its intervals grow with it.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from .linear import History
from .metrics import naive
from .panel import Panel
from .scaling import Scaling

T = TypeVar("T")
LEAST = 0.1  # the least spread of a window, in that of its series: stillness is not blown up


@dataclass(frozen=True)
class Origin:
    """A place to forecast from: the first step that is not known, in one series."""

    series: int
    at: int


@dataclass
class Windows:
    """How series are cut and scaled: the last `context` steps before an origin, each series by its own scaling."""

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
        """The stored scaling of a series, or for one that was not learned from, that of its past."""
        return self.series.get(given.ids[k]) or Scaling.of([given.y[k][:, None]])

    def history(self, given: Panel, origin: Origin, steps: int) -> History:
        k, first = origin.series, max(0, origin.at - self.context)
        past = self.scaling(given, k).apply(given.y[k][first : origin.at, None])[:, 0]
        known = self.known.apply(given.known[k][first : origin.at + steps])
        level, spread = float(past[-1]), max(float(past.std()), LEAST)
        then = known[source(len(past), steps, self.season)]
        return History((past - level) / spread, level, spread, known, then, self.static.apply(given.static[k]))

    def wanted(self, given: Panel, origins: list[Origin], pasts: list[History], steps: int) -> np.ndarray:
        """(n, steps): what followed, less the level, in spreads."""
        found = np.empty((len(origins), steps))
        for row, o, past in zip(found, origins, pasts, strict=True):
            values = given.y[o.series][o.at : o.at + steps, None]
            row[:] = (self.scaling(given, o.series).apply(values)[:, 0] - past.level) / past.spread
        return found

    def inputs(self, past: History, base: np.ndarray) -> np.ndarray:
        """(L + steps, columns) for the network; base (steps,) is the forecast to depart from."""
        length, steps = len(past.values), len(base)
        values = np.concatenate([past.values, base])
        seen = np.concatenate([np.ones(length), np.zeros(steps)])
        repeated = np.concatenate([np.zeros(length), naive(past.values, steps, self.season)])
        constants = np.array([past.level, past.level / past.spread, *past.static])
        every = np.broadcast_to(constants, (length + steps, len(constants)))
        return np.column_stack([values, seen, repeated, every, past.known, past.then])


def source(past: int, steps: int, season: int) -> np.ndarray:
    """(past + steps,): which step the naive forecast of a step repeats."""
    period = season if past >= season else 1
    return np.concatenate([np.maximum(np.arange(past) - period, 0), past - period + np.arange(steps) % period])


def width(known: int, static: int) -> int:
    """Columns of a window."""
    return 5 + static + 2 * known


def thinned(origins: list[T], most: int) -> list[T]:
    """At most so many, evenly spaced."""
    if len(origins) <= most:
        return origins
    return [origins[k] for k in np.linspace(0, len(origins) - 1, most).round().astype(int)]
