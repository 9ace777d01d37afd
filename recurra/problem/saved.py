"""A model with its question: the estimator's folder, and beside its files how its data is read."""

import json
import os
from pathlib import Path
from typing import Any

from recurra.errors import InputError
from recurra.problem.problem import Question
from recurra.train.tensorfile import read_json

NAME = "question.json"


def keep(question: Question, estimator: Any, folder: str | Path, measures: dict[str, float] | None = None) -> None:
    """Save the estimator, and how another file is read for it."""
    estimator.save(folder)
    content = {"format": 1, "source": question.source, "metric": question.metric, "measures": measures or {}}
    draft = Path(folder) / f".{NAME}"
    text = json.dumps({**content, "reading": question.reading}, ensure_ascii=False, indent=1)
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, Path(folder) / NAME)


def kept(folder: str | Path, task: str) -> tuple[dict[str, Any], str | None]:
    """The reading and the metric that `keep` wrote; nothing where an estimator was saved alone."""
    path = Path(folder) / NAME
    if not path.is_file():
        return {}, None
    content = read_json(path)
    reading = content.get("reading") if isinstance(content, dict) else None
    if not isinstance(reading, dict) or reading.get("task") != task:
        raise InputError(str(path), "no reading of this model", f"how the data to {task} is read")
    return reading, str(content.get("metric"))
