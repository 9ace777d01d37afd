"""Which part of a sequence decides a prediction: parts are hidden one after the other."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..inspect import figures
from ..inspect.result import Result

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Explanation(Result):
    """What hiding each step of a sequence does to its prediction. Made by `explain` of a sequence estimator.

    `importance` (T,) is what the prediction loses without the step: log-odds of the predicted class, or the absolute
    change of the predicted number. `sequence` is (T, D), `prediction` what was predicted, `value` its probability or
    the number, `features` the names of the columns.
    """

    sequence: np.ndarray
    importance: np.ndarray
    prediction: Any
    value: float
    unit: str
    features: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return f"Predicted: {self.prediction}" + (f" ({self.value:.0%})" if self.unit == "log-odds" else "")

    def summary(self) -> str:
        """The prediction and the steps that matter most, in words."""
        top = self.importance.max()
        if top <= 0:
            return f"{self.title}. No single part of the sequence decides it."
        matters = np.flatnonzero(self.importance > top / 2)
        first = int(np.argmax(self.importance))
        low = high = first
        while low - 1 in matters:
            low -= 1
        while high + 1 in matters:
            high += 1
        return f"{self.title}. Steps {low} to {high} matter most: hidden, they change the {self.unit} by {top:.2g}."

    def figure(self) -> "Figure":
        """The sequence over bands, the darker the more a step matters."""
        go = figures.graph_objects()
        fig = figures.figure(figures.escape(self.title), 320)
        low, high = float(self.sequence.min()), float(self.sequence.max())
        pad = 0.06 * (high - low or 1.0)
        steps, rows = list(range(len(self.importance))), [low - pad, high + pad]
        fig.add_trace(
            go.Heatmap(
                x=steps,
                y=rows,  # the edges of the one row
                z=[np.maximum(self.importance, 0).tolist()],
                colorscale=[list(stop) for stop in figures.SHARE],
                zmin=0,
                zmax=max(float(self.importance.max()), 1e-9),
                colorbar={"title": {"text": f"loss of {self.unit}", "side": "right"}, "thickness": 12},
                hovertemplate="step %{x}: %{z:.3g}<extra></extra>",
            )
        )
        names = self.features or [f"feature {k + 1}" for k in range(self.sequence.shape[1])]
        for number, (name, column) in enumerate(zip(names, self.sequence.T, strict=True)):
            fig.add_trace(figures.line(name, steps, column, number + 1))
        fig.update_xaxes(title="step")
        fig.update_yaxes(title="value", range=rows)
        fig.update_layout(showlegend=self.sequence.shape[1] > 1)
        return fig


def occlude(x: np.ndarray, windows: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Copies of x (T, D), each with one part replaced by a straight line between its ends; the bounds of the parts.

    Parts overlap by half.
    """
    width = max(1, round(2 * len(x) / (windows + 1)))
    starts = np.unique(np.linspace(0, len(x) - width, min(windows, len(x) - width + 1)).round().astype(int))
    hidden = []
    for start in starts:
        copy, end = x.copy(), start + width
        before = x[start - 1] if start else x[min(end, len(x) - 1)]
        after = x[end] if end < len(x) else before
        share = np.arange(1, width + 1)[:, None] / (width + 1)
        copy[start:end] = before + share * (after - before)
        hidden.append(copy)
    return hidden, np.stack([starts, starts + width], axis=1)


def occlusion(x: np.ndarray, windows: int, change: Callable[[list[np.ndarray]], np.ndarray]) -> np.ndarray:
    """(T,): the mean, over the parts that hide a step, of what `change` finds for sequences with one part hidden."""
    if not isinstance(windows, int) or windows < 1:
        raise InputError("windows", windows, "a positive whole number")
    hidden, bounds = occlude(x, windows)
    lost, total, count = change(hidden), np.zeros(len(x)), np.zeros(len(x))
    for (start, end), loss in zip(bounds, lost, strict=True):
        total[start:end] += loss
        count[start:end] += 1
    return total / np.maximum(count, 1)
