"""A label or a number for every step: labels as coloured bands over the signal, numbers against the truth."""

from collections.abc import Sequence

import numpy as np

from .. import figures
from ..page import Block, figure_block
from .sketch import sequence_name, standardised

SEQUENCES = 4
MAX_STEPS = 1500  # of one sequence
MAX_LINES = 3


def step_label_blocks(
    X: Sequence[np.ndarray], truth: Sequence[np.ndarray], found: Sequence[np.ndarray], ids: Sequence[str] = ()
) -> list[Block]:
    """The signals of the sequences with the most wrong steps, with the true and the predicted labels as bands."""
    go = figures.graph_objects()
    wrong = [float(np.mean(np.asarray(a) != np.asarray(b))) for a, b in zip(truth, found, strict=True)]
    chosen = sorted(range(len(X)), key=lambda k: (-wrong[k], k))[:SEQUENCES]
    classes = np.unique(np.concatenate([*truth, *found])).tolist()
    scaled = standardised([X[k] for k in chosen])
    titles = [f"{sequence_name(k, ids)}: {100 * (1 - wrong[k]):.1f} % of the steps are right" for k in chosen]
    fig = figures.panels(titles, height=230, shared_xaxes=False)
    colours = [figures.PALETTE[(k + 1) % len(figures.PALETTE)] for k in range(len(classes))]
    for row, (k, x) in enumerate(zip(chosen, scaled, strict=True), start=1):
        x = x[:MAX_STEPS]
        steps, low, high = list(range(1, len(x) + 1)), float(x.min()), float(x.max())
        size = max(high - low, 1e-9)
        for column in range(min(x.shape[1], MAX_LINES)):
            line = {"color": figures.INK, "width": 1.2}
            signal = go.Scatter(x=steps, y=figures.rounded(x[:, column]), mode="lines", line=line, showlegend=False)
            fig.add_trace(signal, row=row, col=1)
        for offset, labels in ((0.22, found[k]), (0.42, truth[k])):
            for number, label in enumerate(classes):
                level = [low - offset * size if one == label else None for one in np.asarray(labels)[: len(x)].tolist()]
                style = {"symbol": "square", "size": 7, "color": colours[number]}
                named = row == 1 and offset < 0.3
                fig.add_trace(
                    go.Scatter(
                        x=steps,
                        y=level,
                        mode="markers",
                        marker=style,
                        name=figures.escape(label),
                        legendgroup=str(label),
                        showlegend=named,
                        hovertemplate=f"step %{{x}}: {figures.escape(label)}<extra></extra>",
                    ),
                    row=row,
                    col=1,
                )
        marks = {"tickvals": [low - 0.22 * size, low - 0.42 * size], "ticktext": ["predicted", "true"]}
        fig.update_yaxes(**marks, showgrid=False, zeroline=False, row=row, col=1)
    fig.update_xaxes(title="step", row=len(chosen), col=1)
    caption = (
        "The signal, and below it the predicted and the true label of every step; the sequences with the most mistakes."
    )
    return [figure_block(fig, caption)]


def step_number_block(truth: Sequence[np.ndarray], found: Sequence[np.ndarray], ids: Sequence[str] = ()) -> Block:
    """Predictions against the truth along the sequences with the largest errors."""
    errors = [float(np.abs(np.asarray(a) - np.asarray(b)).mean()) for a, b in zip(truth, found, strict=True)]
    chosen = sorted(range(len(truth)), key=lambda k: (-errors[k], k))[:SEQUENCES]
    fig = figures.panels([f"{sequence_name(k, ids)}: mean absolute error {errors[k]:.3g}" for k in chosen], height=230)
    for row, k in enumerate(chosen, start=1):
        real, given = (np.asarray(one).reshape(len(one), -1)[:MAX_STEPS, 0] for one in (truth[k], found[k]))
        steps = list(range(1, len(real) + 1))
        fig.add_trace(
            figures.line("truth", steps, real, 0, line={"color": figures.INK}, showlegend=row == 1), row=row, col=1
        )
        fig.add_trace(figures.line("prediction", steps, given, 3, showlegend=row == 1), row=row, col=1)
    fig.update_xaxes(title="step", row=len(chosen), col=1)
    return figure_block(fig, "The sequences with the largest errors.")
