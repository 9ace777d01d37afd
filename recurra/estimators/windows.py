"""Windows of the forecaster: the past and the steps ahead as one input sequence, for training and prediction.

The columns of a step: the value minus the last known one (ahead: the base forecast); whether the value is known; the
naive forecast of every season, for steps ahead; the last known value, in two units; static features of the series;
covariates, and the covariates at the step that the naive forecast repeats; what is observed until the origin, minus its
last value, and that last value. All are scaled; values are also divided by their spread in the window, so that a
series with growing amplitude stays in the range of the training data. Text is a column of codes, which the
network embeds.
"""

from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from .covariates import Covariates, numbers_scaled, one_hot, one_hot_width
from .disturbances import Limits, calm
from .linear import History, Units
from .metrics import naive
from .panel import NO_COVARIATES, Panel
from .scaling import Scaling

T = TypeVar("T")
MIN_SPREAD = 0.1  # of a window, relative to its series, so that a flat window is not amplified
CALM_SPREAD = 0.03  # the same without disturbances: a flat window is then that of a series which became calm
LEAST_DEVIATION = 0.1  # of the start of a series, relative to the whole
MAX_OBSERVED = 256  # lags of observed numbers that the linear forecast reads, of all columns together


@dataclass(frozen=True)
class Origin:
    """A forecast origin: the first unknown step `at` of a series."""

    series: int
    at: int


class Window(NamedTuple):
    """The end of a series before an origin, scaled, and the covariates of the steps ahead."""

    values: np.ndarray  # (L,)
    known: np.ndarray  # (L + steps, F)
    static: np.ndarray  # (S,)
    observed: np.ndarray  # (L, P): all targets, if there are several, and the observed covariates
    target: int  # the number of the target
    name: str = ""  # of the series
    units: Units = Units()


class ScalingBefore:
    """Mean and deviation of a series before every step, and of its logarithms."""

    def __init__(self, y: np.ndarray, positive: bool):
        self._of_values, self._of_logs = RunningMoments(y), RunningMoments(np.log(y)) if positive else None

    def values(self, at: int) -> Scaling:
        return self._of_values.before(at)

    def logs(self, at: int) -> Scaling | None:
        return None if self._of_logs is None else self._of_logs.before(at)


class RunningMoments:
    """Mean and deviation of all steps before each; the deviation is at least a share of that of the whole series."""

    def __init__(self, y: np.ndarray):
        whole = Scaling.of([y[:, None]])
        self.whole, scaled = whole, whole.apply(y[:, None])[:, 0]
        count = np.arange(1, len(y) + 1)
        self.mean = np.cumsum(scaled) / count
        self.deviation = np.sqrt(np.maximum(np.cumsum(np.square(scaled)) / count - np.square(self.mean), 0.0))

    def before(self, at: int) -> Scaling:
        mean, deviation = self.mean[at - 1], max(self.deviation[at - 1], LEAST_DEVIATION)
        return Scaling(self.whole.mean + self.whole.scale * mean, self.whole.scale * deviation)


@dataclass
class Windows:
    """Cuts windows of the last `context` steps before an origin, scaled series by series."""

    context: int
    seasons: tuple[int, ...]  # the shortest first
    series: dict[str, Scaling]  # (1,) each, by the name of the series
    known: Scaling
    static: Scaling
    observed: dict[str, Scaling] = field(default_factory=dict)  # by the name of the series
    covariates: Covariates = NO_COVARIATES
    targets: int = 1
    logs: dict[str, Scaling] = field(default_factory=dict)  # of the logarithms of positive series
    before: dict[str, "ScalingBefore"] = field(default_factory=dict)  # of each origin, while forecasts are fitted
    limits: dict[str, Limits] | None = None  # beyond which a series is disturbed, by its name; None leaves it as it is

    @property
    def least_spread(self) -> float:
        """The least spread of a window."""
        return MIN_SPREAD if self.limits is None else CALM_SPREAD

    @property
    def season(self) -> int:
        """The shortest season; 1 if there is none."""
        return self.seasons[0]

    @classmethod
    def of(cls, given: Panel, context: int, seasons: tuple[int, ...]) -> "Windows":
        """Windows scaled by the steps of `given.y`, which may be fewer than those of the covariates."""
        about = given.covariates
        each = {name: Scaling.of([y[:, None]]) for name, y in zip(given.ids, given.y, strict=True)}
        observed = {
            name: numbers_scaled([x[: len(y)]], about.sizes("observed"))
            for name, x, y in zip(given.ids, given.observed, given.y, strict=True)
        }
        known = numbers_scaled(given.known, about.sizes("known"))
        static = numbers_scaled([given.static], about.sizes("static"))
        logs = {
            name: Scaling.of([np.log(y[:, None])]) for name, y in zip(given.ids, given.y, strict=True) if y.min() > 0
        }
        return cls(context, seasons, each, known, static, observed, about, len(given.targets), logs)

    def to_fit(self, given: Panel) -> "Windows":
        """The same windows for fitting: scaled by what came before each origin, as a forecast made there would be.

        A scaling by the whole series would tell the forecast where the series goes.
        """
        before = {name: ScalingBefore(y, name in self.logs) for name, y in zip(given.ids, given.y, strict=True)}
        return replace(self, before=before)

    def calmed(self, given: Panel) -> tuple["Windows", Panel]:
        """The panel without disturbances, and windows for it that have none either: forecasts read no wild values."""
        limits = {name: Limits.of(y, self.seasons) for name, y in zip(given.ids, given.y, strict=True)}
        calmed = [calm(y, limits[name], self.seasons) for name, y in zip(given.ids, given.y, strict=True)]
        panel = replace(given, y=calmed)
        return replace(Windows.of(panel, self.context, self.seasons), limits=limits), panel

    def past(self, given: Panel, k: int, at: int | None, first: int = 0) -> np.ndarray:
        """The steps `first` to `at` of a series, without disturbances; those of a fit have none any more."""
        y, name = given.y[k][first:at], given.ids[k]
        return y if self.limits is None or name in self.before else calm(y, self._limits(given, k, at), self.seasons)

    def _limits(self, given: Panel, k: int, at: int | None) -> Limits:
        assert self.limits is not None
        return self.limits.get(given.ids[k]) or Limits.of(given.y[k][:at], self.seasons)

    def never_below(self, given: Panel, k: int, at: int) -> bool:
        """Whether zero is a floor of a series."""
        return self.limits is not None and self._limits(given, k, at).floor == 0

    def scaling(self, given: Panel, k: int, at: int | None = None) -> Scaling:
        """The scaling of a series from `fit`, or for an unknown series that of its past before `at`."""
        name = given.ids[k]
        if at is not None and name in self.before:
            return self.before[name].values(at)
        return self.series.get(name) or Scaling.of([self.past(given, k, at)[:, None]])

    def units(self, given: Panel, k: int, at: int | None = None) -> Units:
        """Mean and scale of a series and of its logarithms, as in `scaling`."""
        own, name = self.scaling(given, k, at), given.ids[k]
        log = self.logs.get(name)
        if log is not None and at is not None and name in self.before:
            log = self.before[name].logs(at)
        if log is None and name not in self.series and self.logs and (past := self.past(given, k, at)).min() > 0:
            log = Scaling.of([np.log(past[:, None])])
        mean, scale = float(own.mean[0]), float(own.scale[0])
        return Units(mean, scale) if log is None else Units(mean, scale, float(log.mean[0]), float(log.scale[0]))

    # ------------------------------------------------------------------------------------------ cutting

    def window(self, given: Panel, origin: Origin, steps: int) -> Window:
        k, first = origin.series, max(0, origin.at - self.context)
        known = self.known.apply(given.known[k][first : origin.at + steps])
        values = self._past_values(given, k, first, origin.at)
        target, observed = k % self.targets, self._observed(given, k, first, origin.at)
        static, units = self.static.apply(given.static[k]), self.units(given, k, origin.at)
        return Window(values, known, static, observed, target, given.ids[k], units)

    def _past_values(self, given: Panel, k: int, first: int, at: int) -> np.ndarray:
        """The steps `first` to `at` of a series without disturbances, scaled as at the origin `at`."""
        return self.scaling(given, k, at).apply(self.past(given, k, at, first)[:, None])[:, 0]

    def _values(self, given: Panel, k: int, first: int, stop: int, at: int) -> np.ndarray:
        """The steps `first` to `stop` of a series, scaled as at the origin `at`."""
        return self.scaling(given, k, at).apply(given.y[k][first:stop, None])[:, 0]

    def _observed(self, given: Panel, k: int, first: int, at: int) -> np.ndarray:
        """(L, P): the targets of the group, if there are several, and the observed covariates, scaled."""
        group = range(k - k % self.targets, k - k % self.targets + self.targets) if self.targets > 1 else ()
        others = [self._past_values(given, j, first, at) for j in group]
        scaling = self.observed.get(given.ids[k]) or numbers_scaled(
            [given.observed[k]], self.covariates.sizes("observed")
        )
        return np.column_stack([*others, scaling.apply(given.observed[k][first:at])])

    def history(self, given: Panel, origin: Origin, steps: int) -> History:
        return self.history_of(self.window(given, origin, steps))

    def history_of(self, window: Window) -> History:
        """What the linear forecasts and the network read of a window."""
        found = self._relative_to_end(window)
        if not window.units.log_scale:
            return found
        log = self._relative_to_end(window._replace(values=window.units.to_log(window.values)))
        return found._replace(log=log)

    def _relative_to_end(self, window: Window) -> History:
        values, known, static, observed, target, name, units = window
        level, spread = float(values[-1]), max(float(values.std()), self.least_spread)
        at_source = known[naive_source(len(values), len(known) - len(values), self.season)]
        relative, last = self._relative(observed, spread)
        sizes = self.covariates.sizes("known")
        ahead = np.concatenate([one_hot(x, sizes) for x in (known, at_source)], axis=1)[len(values) :]
        constants = [one_hot(static, self.covariates.sizes("static")), *self._linear_observed(relative, last, observed)]
        number = (target + 1.0,) if self.targets > 1 else ()
        every = np.tile(np.concatenate([static, number]), (len(known), 1))
        held = relative[np.minimum(np.arange(len(known)), len(values) - 1)]
        inputs = np.column_stack([every, known, at_source, held, np.tile(last, (len(known), 1))])
        relative_values, every_constant = (values - level) / spread, np.concatenate(constants)
        return History(relative_values, level, spread, every_constant, ahead, inputs, target, name, units)

    @property
    def observed_sizes(self) -> tuple[int, ...]:
        """For all targets, if there are several, and every observed column: its categories, or 0 for numbers."""
        return (0,) * (self.targets if self.targets > 1 else 0) + self.covariates.sizes("observed")

    def _relative(self, observed: np.ndarray, spread: float) -> tuple[np.ndarray, np.ndarray]:
        """(L, P): numbers minus their last value, in spreads of the target; codes. And the last numbers."""
        is_number = ~np.array(self.observed_sizes, dtype=bool)
        relative = np.where(is_number, (observed - observed[-1]) / spread, observed)
        return relative, observed[-1, is_number]

    def _linear_observed(self, relative: np.ndarray, last: np.ndarray, observed: np.ndarray) -> list[np.ndarray]:
        """The lags of numbers, their last values, and the last categories one-hot."""
        sizes = self.observed_sizes
        is_number = ~np.array(sizes, dtype=bool)
        lags = np.zeros((self.observed_lags, len(last)))
        recent = relative[-len(lags) :, is_number]
        lags[len(lags) - len(recent) :] = recent
        categories = one_hot(observed[-1, ~is_number], tuple(size for size in sizes if size))
        return [lags.ravel(), last, categories]

    @property
    def observed_lags(self) -> int:
        """How many past steps of observed numbers the linear forecast reads."""
        numbers = self.observed_sizes.count(0)
        return min(self.context, max(1, MAX_OBSERVED // max(1, numbers)))

    # ------------------------------------------------------------------------------------------ widths

    @property
    def linear_width(self) -> int:
        """How many numbers the linear forecast reads."""
        observed = self.observed_sizes
        lags = observed.count(0) * self.observed_lags
        static, known = (one_hot_width(self.covariates.sizes(role)) for role in ("static", "known"))
        return self.context + 2 + static + lags + one_hot_width(observed) + 2 * known

    @property
    def column_sizes(self) -> tuple[int, ...]:
        """For every column of the network's input, its number of categories, or 0 for numbers."""
        static, known, observed = (
            (*self.covariates.sizes("static"),),
            self.covariates.sizes("known"),
            self.observed_sizes,
        )
        number = (self.targets,) if self.targets > 1 else ()
        return (0,) * (4 + len(self.seasons)) + static + number + known + known + observed + (0,) * observed.count(0)

    # ------------------------------------------------------------------------------------------ training pairs

    def targets_of(self, given: Panel, origins: list[Origin], pasts: list[History], steps: int) -> np.ndarray:
        """(n, steps): the values after each origin, minus the level, in spreads."""
        found = np.empty((len(origins), steps))
        for row, o, past in zip(found, origins, pasts, strict=True):
            values = self._values(given, o.series, o.at, o.at + steps, o.at)
            row[:] = (values - past.level) / past.spread
        return found

    def inputs(self, past: History, base: np.ndarray) -> np.ndarray:
        """(L + steps, columns): the input of the network; `base` (steps,) is the base forecast."""
        length, steps = len(past.values), len(base)
        values = np.concatenate([past.values, base])
        seen = np.concatenate([np.ones(length), np.zeros(steps)])
        repeated = [np.concatenate([np.zeros(length), naive(past.values, steps, s)]) for s in self.seasons]
        levels = np.tile([past.level, past.level / past.spread], (length + steps, 1))
        return np.column_stack([values, seen, *repeated, levels, past.inputs])


def last_origins(given: Panel, steps: int, apart: int, windows: int) -> list[Origin]:
    """The last `windows` origins of every series with `steps` steps after them; those of a group follow each other."""
    count, found = len(given.targets), []
    for k in range(0, len(given), count):
        places = (len(given.y[k]) - steps - apart * w for w in reversed(range(windows)))
        found += [Origin(k + target, at) for at in places if at >= 2 for target in range(count)]
    return found


def naive_source(past: int, steps: int, season: int) -> np.ndarray:
    """(past + steps,): the step that the naive forecast of each step repeats."""
    period = season if past >= season else 1
    return np.concatenate([np.maximum(np.arange(past) - period, 0), past - period + np.arange(steps) % period])


def thin_evenly(origins: list[T], most: int) -> list[T]:
    """At most `most` items, evenly spaced."""
    if len(origins) <= most:
        return origins
    return [origins[k] for k in np.linspace(0, len(origins) - 1, most).round().astype(int)]
