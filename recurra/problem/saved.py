"""Saves a fitted estimator together with the schema of its data."""

import json
import os
from pathlib import Path
from typing import Any

from recurra.errors import InputError
from recurra.problem.problem import Problem
from recurra.train.tensorfile import read_json

NAME = "question.json"


def save_problem(
    problem: Problem, estimator: Any, folder: str | Path, measures: dict[str, float] | None = None
) -> None:
    """Save the estimator, and the problem's schema and metric next to it."""
    estimator.save(folder)
    content = {"format": 1, "source": problem.source, "metric": problem.metric, "measures": measures or {}}
    draft = Path(folder) / f".{NAME}"
    text = json.dumps({**content, "reading": problem.schema}, ensure_ascii=False, indent=1)
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, Path(folder) / NAME)


def load_problem(folder: str | Path, task: str) -> tuple[dict[str, Any], str | None]:
    """The schema and the metric that `save_problem` wrote; ({}, None) for an estimator saved without a problem."""
    path = Path(folder) / NAME
    if not path.is_file():
        return {}, None
    content = read_json(path)
    schema = content.get("reading") if isinstance(content, dict) else None
    if not isinstance(schema, dict) or schema.get("task") != task:
        raise InputError(str(path), "no reading of this model", f"how the data to {task} is read")
    return schema, str(content.get("metric"))
