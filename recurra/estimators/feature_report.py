"""What `rc.report` shows of an estimator that reads out random features and has no network to measure."""

from typing import Any

import numpy as np

from ..data.sequences import SequenceSet
from ..inspect.answers import class_blocks, number_blocks
from ..inspect.page import Block, Section, figure_block, table_block
from . import input_conversion
from .inspection import split_pair

EXPLAINED = 3  # sequences


def feature_sections(estimator: Any, data: Any) -> list[Section]:
    """Its predictions, if the data has targets, what decides some of them, and its members."""
    X, y = split_pair(data)
    if y is not None or (isinstance(X, SequenceSet) and X.task == estimator.task):
        X, y = input_conversion.split_targets(X, y, estimator.task)
    series = estimator._convert_for_predict(X)
    weights = table_block([(name, f"{weight:.3f}") for name, weight in estimator.members_.items()])
    about = Block("text", "How much each kind of random feature counts in a prediction.")
    return [
        Section("Predictions", _answers(estimator, series, y)),
        Section("What decides", _explanations(estimator, series[:EXPLAINED])),
        Section("Members", [about, weights]),
    ]


def _answers(estimator: Any, series: list[np.ndarray], y: Any) -> list[Block]:
    found, names = estimator.predict(series), estimator._names()
    if y is None or (estimator.task == "classification" and found.ndim > 1):  # several labels have no one mistake
        return []
    if estimator.task == "classification":
        return class_blocks(y, found, estimator.predict_proba(series), estimator.classes_, series, names)
    return number_blocks(y, found, series, names)


def _explanations(estimator: Any, series: list[np.ndarray]) -> list[Block]:
    caption = "The darker, the more the prediction loses when that part of the sequence is hidden. "
    found = [estimator.explain(x) for x in series]
    return [figure_block(one.figure(), caption + one.summary()) for one in found]
