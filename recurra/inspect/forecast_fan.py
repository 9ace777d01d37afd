"""Forecasts as a fan of intervals after the past, with the truth beside it where it is known."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import figures
from .answers.forecasts import CONTEXT, MAX_SERIES, band

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

OPACITY = {0.95: 0.15, 0.8: 0.25, 0.4: 0.4}  # of the intervals drawn, where their levels are known


def fan_figure(
    names: Sequence[str],
    pasts: Sequence[np.ndarray],
    quantiles: np.ndarray,
    levels: Sequence[float],
    actual: np.ndarray | None = None,
) -> "Figure":
    """One panel per forecast, at most four; a single one has no title.

    **Arguments**

    - `names`, `pasts`: the title of every forecast and the values before it.
    - `quantiles`: (n, steps, Q) at `levels`, among them 0.5.
    - `actual`: (n, steps), what came.
    """
    names = list(names)[:MAX_SERIES]
    fig = figures.panels(names if len(names) > 1 else [""], height=270)
    ahead, middle = list(range(1, quantiles.shape[1] + 1)), list(levels).index(0.5)
    for k in range(len(names)):
        place, legend = {"row": k + 1, "col": 1}, {"showlegend": k == 0}
        for width, low, high in _intervals(levels):
            edges = quantiles[k, :, low], quantiles[k, :, high]
            fig.add_traces(band(ahead, *edges, f"{width:.0%} interval", k == 0, OPACITY[width]), k + 1, 1)
        before = pasts[k][-CONTEXT * len(ahead) :]
        x, truth = list(range(1 - len(before), 1)), before.tolist()
        if actual is not None:
            x, truth = x + ahead, truth + actual[k].tolist()
        name = "past" if actual is None else "truth"
        fig.add_trace(figures.line(name, x, truth, line={"color": figures.INK}, **legend), **place)
        fig.add_trace(figures.line("forecast", ahead, quantiles[k, :, middle], 3, **legend), **place)
        fig.add_vline(x=0.5, line={"color": figures.INK, "dash": "dot", "width": 1}, **place)
    fig.update_xaxes(title="steps after the forecast was made", row=len(names), col=1)
    return fig


def _intervals(levels: Sequence[float]) -> list[tuple[float, int, int]]:
    """The intervals to draw, widest first: their width and the positions of their levels."""
    known = {round(level, 6): k for k, level in enumerate(levels)}
    pairs = ((width, round((1 - width) / 2, 6), round((1 + width) / 2, 6)) for width in OPACITY)
    return [(width, known[low], known[high]) for width, low, high in pairs if low in known and high in known]
