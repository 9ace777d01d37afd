"""Forecasts: with their intervals against the truth, and errors and coverage by steps ahead."""

from collections.abc import Sequence

import numpy as np

from .. import figures
from ..page import Block, figure_block

MAX_SERIES = 4
CONTEXT = 3  # times the steps of a forecast: how much of the past is drawn


def forecast_blocks(
    names: Sequence[str],
    pasts: Sequence[np.ndarray],
    actual: np.ndarray,
    quantiles: np.ndarray,
    levels: Sequence[float],
    naive: np.ndarray,
) -> list[Block]:
    """The blocks of forecasts from n origins.

    **Arguments**

    - `names`: the series of every origin.
    - `pasts`: the values before every origin.
    - `actual`: (n, steps), the true values.
    - `quantiles`: (n, steps, Q) at `levels`, among them 0.5.
    - `naive`: (n, steps), a naive forecast to compare with.
    """
    last = {name: k for k, name in enumerate(names)}  # the last origin of every series
    chosen = list(last.values())[:MAX_SERIES]
    blocks = [_forecast_figure([(names[k], pasts[k], actual[k], quantiles[k]) for k in chosen], levels, len(last))]
    blocks.append(_error_by_step(actual, quantiles[:, :, list(levels).index(0.5)], naive))
    low, high = outer_levels(levels)
    if low < high:
        blocks.append(_coverage_by_step(actual, quantiles, levels, low, high))
    return blocks


def outer_levels(levels: Sequence[float]) -> tuple[int, int]:
    """The positions of the widest central interval, up to 90 %."""
    pairs = [
        (k, len(levels) - 1 - k)
        for k in range(len(levels) // 2)
        if abs(levels[k] + levels[len(levels) - 1 - k] - 1) < 1e-9 and levels[k] >= 0.05 - 1e-9
    ]
    return pairs[0] if pairs else (0, 0)


def _forecast_figure(
    shown: Sequence[tuple[str, np.ndarray, np.ndarray, np.ndarray]], levels: Sequence[float], series: int
) -> Block:
    fig = figures.panels([name for name, *_ in shown], height=250)
    low, high = outer_levels(levels)
    middle = list(levels).index(0.5)
    width = levels[high] - levels[low]
    for row, (_, past, actual, quantiles) in enumerate(shown, start=1):
        steps = len(actual)
        before = past[-CONTEXT * steps :]
        x, ahead = list(range(1 - len(before), 1)), list(range(1, steps + 1))
        style = {"row": row, "col": 1}
        legend = {"showlegend": row == 1}
        if low < high:
            fig.add_traces(
                band(ahead, quantiles[:, low], quantiles[:, high], f"{width:.0%} interval", row == 1), row, 1
            )
        truth = [*before.tolist(), *actual.tolist()]
        fig.add_trace(figures.line("truth", x + ahead, truth, 0, line={"color": figures.INK}, **legend), **style)
        fig.add_trace(
            figures.line(
                "forecast", ahead, quantiles[:, middle], 3, mode="lines+markers", marker={"size": 4}, **legend
            ),
            **style,
        )
        fig.add_vline(x=0.5, line={"color": figures.INK, "dash": "dot", "width": 1}, row=row, col=1)
    fig.update_xaxes(title="steps after the forecast was made", row=len(shown), col=1)
    some = f" {len(shown)} of {series} series." if series > len(shown) else ""
    return figure_block(fig, f"The last forecast of every series and what came.{some}")


def band(x: list[int], low: np.ndarray, high: np.ndarray, name: str, named: bool, opacity: float = 0.22) -> list:
    """The area between two curves (steps,), as two traces."""
    go = figures.graph_objects()
    edge = {"width": 0, "color": figures.PALETTE[3]}
    lower = go.Scatter(x=x, y=figures.rounded(low), mode="lines", line=edge, showlegend=False, hoverinfo="skip")
    upper = go.Scatter(
        x=x,
        y=figures.rounded(high),
        mode="lines",
        line=edge,
        fill="tonexty",
        fillcolor=f"rgba(213,94,0,{opacity})",
        name=name,
        showlegend=named,
        hoverinfo="skip",
    )
    return [lower, upper]


def _error_by_step(actual: np.ndarray, points: np.ndarray, naive: np.ndarray) -> Block:
    steps = list(range(1, actual.shape[1] + 1))
    fig = figures.figure("Error by steps ahead", 320)
    fig.add_trace(figures.line("model", steps, np.abs(actual - points).mean(axis=0), 3, mode="lines+markers"))
    other = np.abs(actual - naive).mean(axis=0)
    fig.add_trace(figures.line("naive", steps, other, 0, mode="lines+markers", line={"dash": "dot"}))
    fig.update_xaxes(title="steps ahead", **figures.count_axis(len(steps)))
    fig.update_yaxes(title="mean absolute error", rangemode="tozero")
    count = f"{len(actual):,} forecast{'s' if len(actual) != 1 else ''}"
    return figure_block(
        fig, f"Averages of {count}. Where the curves meet, the model knows no more than the last season."
    )


def _coverage_by_step(actual: np.ndarray, quantiles: np.ndarray, levels: Sequence[float], low: int, high: int) -> Block:
    inside = (quantiles[:, :, low] <= actual) & (actual <= quantiles[:, :, high])
    steps, promised = list(range(1, actual.shape[1] + 1)), levels[high] - levels[low]
    fig = figures.figure("Share of true values inside the interval", 300, showlegend=False)
    fig.add_trace(figures.line("inside", steps, inside.mean(axis=0), 3, mode="lines+markers"))
    fig.add_hline(y=promised, line={"color": figures.INK, "dash": "dot"})
    fig.update_xaxes(title="steps ahead", **figures.count_axis(len(steps)))
    fig.update_yaxes(range=[0, 1.02], tickformat=".0%")
    caption = (
        f"The dotted line is what the interval promises, {promised:.0%}; over all steps it holds {inside.mean():.0%}."
    )
    return figure_block(fig, caption)
