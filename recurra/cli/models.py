"""A model on disk, as the command line keeps it: an estimator's folder, and beside it how its data is read."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurra.estimators import storage
from recurra.questions import TASKS, Found, Question, ask, read_again
from recurra.questions.question import estimator_kind
from recurra.train.tensorfile import read_json

READING = "question.json"


@dataclass(frozen=True)
class Model:
    """A fitted estimator and the question it answers."""

    folder: Path
    estimator: Any
    task: str
    metric: str
    reading: dict[str, Any]

    def read(self, source: str) -> Found:
        """Another file, read as the one it learned from was."""
        if self.reading:
            return read_again(source, self.reading)
        return read_again(source, ask(source, task=self.task, test=0).reading)

    def only(self, *tasks: str) -> None:
        if self.task not in tasks:
            expected = f"a model that can {' or '.join(tasks)}" if tasks != ("language",) else "a language model"
            raise storage.ModelFileError(str(self.folder), f"a model to {self.task}", expected)


def save(question: Question, estimator: Any, folder: Path, measures: dict[str, float]) -> None:
    """The estimator's own files, and how its data is read."""
    estimator.save(folder)
    content = {"format": 1, "source": question.source, "metric": question.metric, "measures": measures}
    content |= {"reading": question.reading}
    draft = folder / f".{READING}"
    draft.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, folder / READING)


def load(folder: Path) -> Model:
    """A model of the command line, or one that Python's `estimator.save` wrote."""
    if not folder.is_dir():
        raise storage.ModelFileError(str(folder), "no such folder", "a folder that `recurra fit` wrote")
    config = storage.read_config(folder, tuple(TASKS.values()))
    task = next(task for task, kind in TASKS.items() if kind == config["kind"])
    kind: Any = estimator_kind(task)
    estimator, path = kind.load(folder), folder / READING
    usual = {
        "classify": "accuracy",
        "regress": "mae",
        "forecast": "mase",
        "tag": "f1",
        "language": "bits per character",
    }
    if not path.is_file():
        return Model(folder, estimator, task, usual[task], {})
    content = read_json(path)
    reading = content.get("reading") if isinstance(content, dict) else None
    if not isinstance(reading, dict) or reading.get("task") != task:
        raise storage.ModelFileError(str(path), "no reading of this model", f"how the data to {task} is read")
    return Model(folder, estimator, task, str(content.get("metric", usual[task])), reading)


def weights(estimator: Any) -> int:
    """How many numbers it has learned."""
    module = next(getattr(estimator, name) for name in ("network_", "tagger_", "model_") if hasattr(estimator, name))
    return sum(parameter.numel() for parameter in module.parameters())
