"""A model on disk, as the command line keeps it: an estimator's folder, and beside it how its data is read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurra.estimators import storage
from recurra.problem import TASKS, Found, ask, kept, read_again
from recurra.problem.problem import estimator_kind

#: what an estimator that was saved alone is judged by
USUAL = {
    "classify": "accuracy",
    "regress": "mae",
    "forecast": "mase",
    "tag": "accuracy",
    "language": "bits per character",
}


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


def load(folder: Path) -> Model:
    """A model of the command line, or one that Python's `estimator.save` wrote."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise storage.ModelFileError(str(folder), found, "a folder that `recurra fit` wrote")
    config = storage.read_config(folder, tuple(TASKS.values()))
    task = next(task for task, kind in TASKS.items() if kind == config["kind"])
    kind: Any = estimator_kind(task)
    reading, metric = kept(folder, task)
    return Model(folder, kind.load(folder), task, metric or USUAL[task], reading)


def weights(estimator: Any) -> int:
    """How many numbers it has learned."""
    module = next(getattr(estimator, name) for name in ("network_", "tagger_", "model_") if hasattr(estimator, name))
    return sum(parameter.numel() for parameter in module.parameters())
