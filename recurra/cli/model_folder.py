"""A model folder: a fitted estimator and the schema of its data."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recurra.cli import printing
from recurra.cli.own_cells import import_kept_cells
from recurra.errors import ModelFileError
from recurra.problem import TASKS, LoadedData, infer_problem, load_problem, read_like_training
from recurra.problem.problem import estimator_class, fitted_network
from recurra.problem.saved import load_training_file
from recurra.problem.training_file import held_out_part, is_training_file
from recurra.storage import read_config

#: task → metric, for an estimator that was saved without a problem
DEFAULT_METRICS = {
    "classify": "accuracy",
    "regress": "mae",
    "classify_steps": "accuracy",
    "regress_steps": "mae",
    "forecast": "mase",
    "tag": "accuracy",
    "language": "bits per character",
    "translate": "accuracy",
}


@dataclass(frozen=True)
class SavedModel:
    """A fitted estimator, its task and metric, and how to read data for it."""

    folder: Path
    estimator: Any
    task: str
    metric: str
    schema: dict[str, Any]
    cleaning: dict[str, Any] = field(default_factory=dict)  # options of the command that replace those of training
    training_file: dict[str, Any] = field(default_factory=dict)

    def read(self, source: str) -> LoadedData:
        """Another file, read like the training file; what a person should be told of it is printed."""
        schema = self.schema or infer_problem(source, task=self.task, test=0, **self.cleaning).schema
        found = read_like_training(source, schema | self.cleaning)
        for note in found.notes:
            printing.stderr_console().print(f"{Path(source).name}: {note}.", markup=False, soft_wrap=True)
        return found

    def read_unseen(self, source: str) -> tuple[LoadedData, str]:
        """A file to score a model on, and a note: of the training file, only what was held out is scored.

        A forecast is scored on the last steps of any file, as many as were held out.
        """
        data, name = self.read(source), Path(source).name
        if self.task == "forecast" or not is_training_file(self.training_file, source):
            return data, ""
        part = held_out_part(data, self.task, self.training_file)
        if part is None:
            return data, f"{name} is what the model was trained on: this score says little about other data."
        return (
            part,
            f"{name} has the training data: the score is that of the {self.training_file['fraction']:.0%} held out.",
        )

    def cleaned(self, **cleaning: Any) -> "SavedModel":
        """The model with other options of the reader: those that are given."""
        if cleaning.get("na"):
            cleaning["na"] = [value.strip() for given in cleaning["na"] for value in given.split(",")]
        return replace(self, cleaning={name: value for name, value in cleaning.items() if value is not None})

    def require_task(self, task: str) -> None:
        if self.task != task:
            expected = "a language model" if task == "language" else f"a model to {task}"
            raise ModelFileError(self.folder, f"a model to {self.task}", expected)


def load_model(folder: Path) -> SavedModel:
    """A model written by `recurra fit`, by `recurra compare`, or by an estimator's `save`."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise ModelFileError(folder, found, "a model folder written by `recurra fit`")
    config = read_config(folder, *TASKS.values())
    task = next(task for task, kind in TASKS.items() if kind == config["kind"])
    kind: Any = estimator_class(task)
    schema, metric = load_problem(folder, task)
    import_kept_cells(folder, config)
    described = load_training_file(folder, task)
    metric = metric or DEFAULT_METRICS[task]
    return SavedModel(folder, kind.load(folder), task, metric, schema, training_file=described)


def count_weights(estimator: Any) -> int:
    """The number of trained weights."""
    return sum(parameter.numel() for parameter in fitted_network(estimator).parameters())
