"""Classes: the confusion matrix, scores per class, and the worst mistakes, drawn."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import figures
from ..page import Block, figure_block, table_block
from .sketch import drawn_columns, sequence_name, sketch, sketch_grid, standardised

WORST = 10  # mistakes to draw
MAX_MATRIX = 40  # classes in the confusion matrix
DARK_SHARE = 0.45  # shares from which on a cell is dark
MAX_NUMBERED = 20  # classes up to which its cells hold their numbers


@dataclass(frozen=True)
class ClassScores:
    """Precision, recall and F1 of one class, and how many of the data it has."""

    name: str
    precision: float
    recall: float
    f1: float
    count: int


def confusion_matrix(truth: np.ndarray, found: np.ndarray, classes: Sequence[Any]) -> np.ndarray:
    """(C, C): how many of class i (row) were given class j (column)."""
    order = {label: k for k, label in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for one, other in zip(truth.tolist(), found.tolist(), strict=True):
        counts[order[one], order[other]] += 1
    return counts


def class_scores(truth: Any, found: Any) -> list[ClassScores]:
    """The scores of every class that occurs, in the order of the labels."""
    truth, found = np.asarray(truth), np.asarray(found)
    classes = np.unique(np.concatenate([truth, found])).tolist()
    counts = confusion_matrix(truth, found, classes)
    scores = []
    for k, label in enumerate(classes):
        right, given, real = int(counts[k, k]), int(counts[:, k].sum()), int(counts[k].sum())
        precision, recall = right / given if given else 0.0, right / real if real else 0.0
        f1 = 2 * right / (given + real) if given + real else 0.0
        scores.append(ClassScores(str(label), precision, recall, f1, real))
    return scores


def class_blocks(
    truth: Any,
    found: Any,
    probabilities: np.ndarray | None,
    classes: Any,
    X: Sequence[np.ndarray] | None,
    names: Any = (),
    texts: Sequence[str] | None = None,
    ids: Sequence[str] = (),
) -> list[Block]:
    """The blocks of a classification.

    **Arguments**

    - `truth`, `found`: (n,) labels.
    - `probabilities`: (n, C) in the order of `classes`; with them the most confident mistakes come first.
    - `classes`: the labels the model knows.
    - `X`: n sequences (T, D) to draw; None draws none.
    - `names`: the names of the D columns.
    - `texts`: n texts to list where sequences cannot be drawn.
    - `ids`: the names of the n sequences.
    """
    truth, found = np.asarray(truth), np.asarray(found)
    blocks = [_matrix_block(truth, found), _score_table(truth, found)]
    wrong = np.flatnonzero(truth != found)
    if not len(wrong):
        right = f"All {len(truth):,} predictions are right."
        return [*blocks, Block("finding", right, "No mistakes.", good=True)]
    order = np.argsort(-_confidence(found, probabilities, classes)[wrong], kind="stable")
    worst = wrong[order][:WORST].tolist()
    if X is None:
        rows = [_mistake(k, truth, found, probabilities, classes, texts) for k in worst]
        header = ("number" if texts is None else "sequence", "truth", "prediction", "probability")
        return [
            *blocks,
            table_block(rows, header, f"{_which(len(worst), wrong, probabilities)} {len(truth):,} predictions."),
        ]
    scaled = standardised([X[k] for k in worst]) if np.shape(X[0])[1] > 1 else [X[k] for k in worst]
    sure = _confidence(found, probabilities, classes)
    drawn = [
        sketch(x, f"{truth[k]} taken for {found[k]}", f"{sequence_name(k, ids)}, {_detail(len(X[k]), sure[k])}")
        for x, k in zip(scaled, worst, strict=True)
    ]
    caption = f"{_which(len(worst), wrong, probabilities)} {len(truth):,} predictions.{drawn_columns(X, names)}"
    return [*blocks, sketch_grid(drawn, caption)]


def _which(shown: int, wrong: np.ndarray, probabilities: np.ndarray | None) -> str:
    if len(wrong) == 1:
        return "The only mistake in"
    return f"The {shown} {'most confident' if probabilities is not None else 'first'} mistakes of {len(wrong):,} in"


def _mistake(
    k: int, truth: np.ndarray, found: np.ndarray, probabilities: Any, classes: Any, texts: Sequence[str] | None
) -> list[Any]:
    confidence = _confidence(found, probabilities, classes)[k]
    sure = "" if probabilities is None else f"{100 * confidence:.0f} %"
    return [k + 1 if texts is None else texts[k], str(truth[k]), str(found[k]), sure]


def _confidence(found: np.ndarray, probabilities: np.ndarray | None, classes: Any) -> np.ndarray:
    """(n,): the probability of the label that was predicted; zeros without probabilities."""
    if probabilities is None:
        return np.zeros(len(found))
    order = {label: k for k, label in enumerate(np.asarray(classes).tolist())}
    return np.array([row[order[label]] for row, label in zip(probabilities, found.tolist(), strict=True)])


def _detail(steps: int, confidence: float) -> str:
    sure = f", {confidence:.0%} sure" if confidence else ""
    return f"{steps} step{'s' if steps != 1 else ''}{sure}"


def _matrix_block(truth: np.ndarray, found: np.ndarray) -> Block:
    go = figures.graph_objects()
    classes, counts = np.unique(np.concatenate([truth, found]), return_counts=True)
    most = np.sort(np.argsort(-counts, kind="stable")[:MAX_MATRIX])
    classes = classes[most].tolist()
    kept = np.isin(truth, classes) & np.isin(found, classes)
    matrix = confusion_matrix(truth[kept], found[kept], classes)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    names = [figures.escape(label) for label in classes]
    numbered = len(classes) <= MAX_NUMBERED
    fig = figures.figure(height=int(np.clip(150 + 30 * len(classes), 230, 820)))
    fig.add_trace(
        go.Heatmap(
            x=names,
            y=names,
            z=figures.rounded(share),
            customdata=matrix.tolist(),
            colorscale=figures.SHARE,
            zmin=0,
            zmax=1,
            xgap=1,
            ygap=1,
            showscale=False,
            hovertemplate="%{y} taken for %{x}: %{customdata} (%{z:.0%})<extra></extra>",
        )
    )
    if numbered:
        cells = [(names[i], names[j], int(n), share[i, j]) for (i, j), n in np.ndenumerate(matrix) if n]
        for dark, style in ((False, {}), (True, {"textfont": {"color": "#ffffff"}})):  # light cells: colour of the page
            shown = [cell for cell in cells if (cell[3] > DARK_SHARE) == dark]
            where = {
                "x": [x for _, x, *_ in shown],
                "y": [y for y, *_ in shown],
                "text": [str(n) for *_, n, _ in shown],
            }
            fig.add_trace(go.Scatter(**where, mode="text", hoverinfo="skip", showlegend=False, **style))
    fig.update_xaxes(title="prediction", type="category", showgrid=False, constrain="domain")
    fig.update_yaxes(title="truth", type="category", autorange="reversed", showgrid=False)
    left = f" The {len(classes)} most frequent classes." if len(most) < len(counts) else ""
    return figure_block(
        fig, f"Rows are the true classes, columns the predicted ones; right ones on the diagonal.{left}"
    )


def _score_table(truth: np.ndarray, found: np.ndarray) -> Block:
    rows = [
        [one.name, f"{100 * one.precision:.1f} %", f"{100 * one.recall:.1f} %", f"{100 * one.f1:.1f} %", one.count]
        for one in class_scores(truth, found)
    ]
    about = "Precision: how often a predicted class is right. Recall: how much of a class is found."
    return table_block(rows, ("class", "precision", "recall", "F1", "count"), about)
