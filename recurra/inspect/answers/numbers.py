"""Numbers: predictions against the truth, and the worst mistakes, drawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import figures
from ..page import Block, figure_block
from .sketch import drawn_columns, sequence_name, sketch, sketch_grid, standardised

WORST = 10
MAX_POINTS = 2000


def number_blocks(
    truth: Any, found: Any, X: Sequence[np.ndarray] | None, names: Any = (), ids: Any = ()
) -> list[Block]:
    """The blocks of a regression: truth and predictions (n,) or (n, q), and n sequences (T, D) to draw."""
    truth, found = (np.asarray(y, dtype=np.float64).reshape(len(y), -1) for y in (truth, found))
    blocks = [_scatter(truth, found)]
    if X is None:
        return blocks
    worst = np.argsort(-np.abs(truth - found).mean(axis=1), kind="stable")[:WORST].tolist()
    scaled = standardised([X[k] for k in worst]) if np.shape(X[0])[1] > 1 else [X[k] for k in worst]
    drawn = [
        sketch(
            x, f"{_numbers(truth[k])}, predicted {_numbers(found[k])}", f"{sequence_name(k, ids)}, {len(X[k])} steps"
        )
        for x, k in zip(scaled, worst, strict=True)
    ]
    caption = f"The {len(worst)} largest errors of {len(truth):,} predictions.{drawn_columns(X, names)}"
    return [*blocks, sketch_grid(drawn, caption)]


def _answer(truth: np.ndarray, found: np.ndarray) -> str:
    return f"{_numbers(truth)}, predicted {_numbers(found)}"


def _numbers(row: np.ndarray) -> str:
    return ", ".join(f"{value:.4g}" for value in row[:3]) + (", …" if len(row) > 3 else "")


def _scatter(truth: np.ndarray, found: np.ndarray) -> Block:
    go = figures.graph_objects()
    chosen = np.linspace(0, len(truth) - 1, min(len(truth), MAX_POINTS)).round().astype(int)
    low, high = float(min(truth.min(), found.min())), float(max(truth.max(), found.max()))
    fig = figures.figure(height=420, showlegend=truth.shape[1] > 1)
    diagonal = {"color": figures.INK, "dash": "dot"}
    fig.add_trace(go.Scatter(x=[low, high], y=[low, high], mode="lines", line=diagonal, showlegend=False))
    for k in range(truth.shape[1]):
        fig.add_trace(
            go.Scatter(
                x=figures.rounded(truth[chosen, k]),
                y=figures.rounded(found[chosen, k]),
                mode="markers",
                name=f"target {k + 1}",
                marker={"color": figures.PALETTE[k % len(figures.PALETTE)], "size": 6, "opacity": 0.6},
                hovertemplate="truth %{x}, predicted %{y}<extra></extra>",
            )
        )
    fig.update_xaxes(title="truth")
    fig.update_yaxes(title="prediction")
    return figure_block(fig, "Each dot is one sequence; on the dotted line the prediction is exact.")
