"""Prequential evaluation: every step is predicted before it is learned from, so that no data is set aside."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..argument_checks import positive_int
from ..inspect import figures
from .online import OnlineClassifier

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass
class Prequential:
    """Errors of predictions made before each step: mean absolute error, or the share of wrong labels.

    `naive` is the error of the last target as prediction.

    **Example**

        >>> stream = [({}, t % 2) for t in range(40)]
        >>> found = rc.estimators.prequential(rc.OnlineForecaster(hidden_size=4), stream, window=10)
        >>> found.count, found.naive, len(found.recent)
        (40, 0.975, 4)
    """

    window: int
    steps: list[int] = field(default_factory=list)
    recent: list[float] = field(default_factory=list)  # mean error of the last `window` steps
    recent_naive: list[float] = field(default_factory=list)
    count: int = 0
    total: float = 0.0
    total_naive: float = 0.0

    @property
    def error(self) -> float:
        """Mean error of all steps."""
        return self.total / max(self.count, 1)

    @property
    def naive(self) -> float:
        return self.total_naive / max(self.count, 1)

    def summary(self) -> str:
        """The errors in a line."""
        last = f", {self.recent[-1]:.4g} in the last {self.window}" if self.recent else ""
        return f"{self.count:,} steps: error {self.error:.4g}{last}; last value as prediction {self.naive:.4g}"

    def figure(self) -> "Figure":
        """The error over the last `window` steps, and that of the last value, over time."""
        fig = figures.figure(f"Error before learning, mean of {self.window} steps", 360)
        fig.add_trace(figures.line("network", self.steps, self.recent, 0))
        fig.add_trace(figures.line("last value", self.steps, self.recent_naive, 1))
        fig.update_xaxes(title="step")
        fig.update_yaxes(title="error", rangemode="tozero")
        return fig


def prequential(model: Any, stream: Iterable[tuple[Mapping[str, Any], Any]], window: int = 100) -> Prequential:
    """Predict, then learn, every step of a stream.

    **Arguments**

    - `model`: an `OnlineForecaster` or `OnlineClassifier`, or anything with `predict_one` and `learn_one`.
    - `stream`: pairs (features by name, target).
    - `window`: steps over which recent errors are averaged.

    **Returns** a `Prequential`: errors over time, `.summary()` and `.figure()`.

    **Example**

        >>> stream = (({}, float(t % 3)) for t in range(300))
        >>> found = rc.estimators.prequential(rc.OnlineForecaster(hidden_size=8, lr=0.01), stream)
        >>> found.count, found.recent[-1] < found.naive
        (300, True)
    """
    result = Prequential(positive_int("window", window))
    for _ in predictions(model, stream, result):
        pass
    return result


def predictions(model: Any, stream: Iterable[tuple[Mapping[str, Any], Any]], result: Prequential) -> Iterator[Any]:
    """The prediction of every step, which is then learned and counted in `result`."""
    wrong = isinstance(model, OnlineClassifier)
    errors: deque[tuple[float, float]] = deque(maxlen=result.window)
    last: Any = None
    for x, y in stream:
        predicted = model.predict_one(x)
        naive = last if last is not None else predicted
        errors.append((float(predicted != y), float(naive != y)) if wrong else (abs(predicted - y), abs(naive - y)))
        model.learn_one(x, y)
        last, result.count = y, result.count + 1
        result.total += errors[-1][0]
        result.total_naive += errors[-1][1]
        if result.count % result.window == 0:
            result.steps.append(result.count)
            result.recent.append(sum(e for e, _ in errors) / len(errors))
            result.recent_naive.append(sum(e for _, e in errors) / len(errors))
        yield predicted
