"""Knows the file again that a model was trained on, so that a score leaves out what the model has seen."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recurra.problem.holdout import random_split
from recurra.problem.problem import LoadedData, Problem
from recurra.problem.sequences import STEP_TASKS

BLOCK = 1 << 20


def describe(problem: Problem) -> dict[str, Any]:
    """The content of the training file, how many sequences it has and which were held out, as plain JSON."""
    if not problem.split or not Path(problem.source).is_file():
        return {}
    parts = [problem.train, problem.test] if problem.split["fraction"] else [problem.train]
    count = sum(len(part[0]) for part in parts if part)
    return {**problem.split, "sequences": count, "sha256": _digest(Path(problem.source))}


def is_training_file(described: dict[str, Any], source: str | Path) -> bool:
    """Whether a file has the content of the one that was described."""
    return bool(described) and Path(source).is_file() and _digest(Path(source)) == described["sha256"]


def held_out_part(data: LoadedData, task: str, described: dict[str, Any]) -> LoadedData | None:
    """What was held out of the training file; None if that was nothing, or if the file is now read in another way."""
    fraction, count = described["fraction"], len(data.X)
    if not fraction or count != described["sequences"]:
        return None
    if task == "language":
        return replace(data, X=data.X[count - int(fraction * count) :])
    if task in STEP_TASKS and count == 1:
        cut = len(data.X[0]) - max(1, round(fraction * len(data.X[0])))
        return replace(data, X=[data.X[0][cut:]], y=[data.y[0][cut:]])
    rows = random_split(count, fraction, described["seed"], data.y if task == "classify" else None)[1]
    if not rows:
        return None
    chosen = data.y[rows] if isinstance(data.y, np.ndarray) else [data.y[k] for k in rows]
    return replace(data, X=[data.X[k] for k in rows], y=chosen, names=[data.names[k] for k in rows])


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            found.update(block)
    return found.hexdigest()
