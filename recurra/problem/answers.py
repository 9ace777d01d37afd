"""The answers of a fitted estimator on labelled data, as blocks of the report page: the picture of its task."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from recurra.inspect.answers import (
    class_blocks,
    class_scores,
    forecast_blocks,
    number_blocks,
    step_label_blocks,
    step_number_block,
    tag_blocks,
    tag_scores,
    text_blocks,
    translation_block,
)
from recurra.inspect.page import Block, Section
from recurra.models.tagging.schemes import looks_chunked

SAMPLES = ((0.5, "careful"), (0.8, "freer"))  # temperatures of generated text
GENERATED, PASSAGE = 300, 400  # characters
MAX_WINDOWS = 20  # forecasts of one series

ScoreRow = tuple[str, float, float, float, int]  # name, precision, recall, F1, count


def answers(
    task: str,
    estimator: Any,
    X: Any,
    y: Any,
    schema: Mapping[str, Any] | None = None,
    windows: int = 1,
    ids: Sequence[str] = (),
) -> Section:
    """The section of the report page that shows what a model answers.

    **Arguments**

    - `task`: a key of `TASKS`.
    - `estimator`: fitted to that task.
    - `X`, `y`: labelled data in the form of a problem's `test`; series to forecast with their past.
    - `schema`: that of the problem; it has the names of the input columns and the characters of one-hot ones.
    - `windows`: how many forecasts are made at the end of every series.
    - `ids`: what the sequences of X are called.
    """
    blocks: list[Block] = []
    names, vocabulary = ((schema or {}).get(key, ()) for key in ("features", "vocabulary"))
    match task:
        case "classify":
            probabilities = estimator.predict_proba(X)
            found = np.asarray(estimator.classes_)[probabilities.argmax(axis=1)]
            texts = _texts(X, vocabulary)
            blocks = class_blocks(
                y, found, probabilities, estimator.classes_, *_numbers_only(_drawable(X), names), texts
            )
        case "regress":
            blocks = number_blocks(y, estimator.predict(X), *_numbers_only(_drawable(X), names), ids)
        case "classify_steps":
            found = estimator.predict(X)
            blocks = step_label_blocks(X, y, found, ids)
            flat = np.concatenate(y), np.concatenate(found)
            blocks += class_blocks(*flat, None, estimator.classes_, None)[:2]
        case "regress_steps":
            found = estimator.predict(X)
            blocks = [step_number_block(y, found, ids), *number_blocks(np.concatenate(y), np.concatenate(found), None)]
        case "forecast":
            made = estimator.backtest(X, windows=min(windows, MAX_WINDOWS))
            blocks = forecast_blocks(made.names, made.pasts, made.actual, made.quantiles, made.levels, made.naive)
        case "tag":
            blocks = tag_blocks(X, y, estimator.predict(X))
        case "translate":
            blocks = [translation_block(X, y, estimator.predict(X))]
        case "language":
            blocks = _language_blocks(estimator, X)
    return Section("Generated text" if task == "language" else "Predictions", blocks)


def score_rows(task: str, estimator: Any, X: Any, y: Any) -> list[ScoreRow]:
    """Scores per class, entity or tag; empty for other tasks."""
    if task == "classify":
        found = class_scores(y, estimator.predict(X))
        return [(one.name, one.precision, one.recall, one.f1, one.count) for one in found]
    if task == "classify_steps":
        scores = class_scores(np.concatenate(y), np.concatenate(estimator.predict(X)))
        return [(one.name, one.precision, one.recall, one.f1, one.count) for one in scores]
    if task == "tag":
        return tag_scores(y, estimator.predict(X), looks_chunked({tag for sentence in y for tag in sentence}))
    return []


def _drawable(X: Any) -> Any:
    """The sequences, if lines show them: not one-hot characters."""
    first = np.asarray(X[0])
    one_hot = first.shape[1] > 2 and bool(np.isin(first, (0.0, 1.0)).all() and (first.sum(axis=1) == 1).all())
    return None if one_hot else X


def _numbers_only(X: Any, names: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Sequences to draw without the columns of 0 and 1 that stand for categories, if there are others."""
    if X is None or len(names) != np.shape(X[0])[1]:
        return X, names
    kept = [k for k, name in enumerate(names) if "=" not in name]
    if not kept or len(kept) == len(names):
        return X, names
    return [np.asarray(x)[:, kept] for x in X], [names[k] for k in kept]


def _texts(X: Any, vocabulary: Sequence[str]) -> list[str] | None:
    """One-hot sequences as text."""
    if _drawable(X) is not None or len(vocabulary) != np.shape(X[0])[1]:
        return None
    return ["".join(vocabulary[k] for k in np.asarray(x).argmax(axis=1)) for x in X]


@torch.no_grad()
def _language_blocks(estimator: Any, text: str) -> list[Block]:
    model, prompt = estimator.model_, text.split("\n", 1)[0][:20]
    samples = [
        (
            f"A {name} sample (temperature {heat}) after {prompt!r}",
            estimator.generate(prompt, GENERATED, temperature=heat, seed=0),
        )
        for heat, name in SAMPLES
    ]
    tokens = model.vocabulary.encode(text[:PASSAGE])
    if len(tokens) < 2:
        return text_blocks(samples, (), ())
    log_probs = model(tokens[:-1, None])[0][:, 0].double()  # (T - 1, V)
    bits = -log_probs.gather(1, tokens[1:, None])[:, 0] / np.log(2)
    return text_blocks(samples, [model.vocabulary.decode(token[None]) for token in tokens[1:]], bits.tolist())
