"""Saves a fitted estimator together with the schema of its data, both in one model folder."""

from pathlib import Path
from typing import Any

from recurra.errors import ModelFileError
from recurra.problem.problem import TASKS, Problem
from recurra.problem.training_file import describe
from recurra.storage import CONFIG, FolderContents, read_config, write_folder
from recurra.tensor_files import read_json

SECTION = "problem"  # in config.json
FILE_OF_0_1_0 = "question.json"  # where format 1 kept the section, with the schema under "reading"


def save_problem(
    problem: Problem, estimator: Any, folder: str | Path, measures: dict[str, float] | None = None
) -> None:
    """Save the estimator and, in the same transaction, the problem's schema and metric.

    `measures`: the scores on the test set, kept for display.

    **Example**

        >>> from pathlib import Path
        >>> steps = [f"{k},{k % 2},{'up' if k % 2 else 'down'}" for k in range(12) for _ in range(3)]
        >>> _ = Path("old.csv").write_text("\\n".join(["id,x,label", *steps]))
        >>> problem = rc.infer_problem("old.csv")
        >>> model = problem.estimator("gru", hidden_size=4, epochs=1).fit(*problem.train)
        >>> rc.problem.save_problem(problem, model, "model", {"accuracy": problem.score(model)})
        >>> type(rc.load("model")).__name__
        'SequenceClassifier'
    """
    section = {"source": problem.source, "metric": problem.metric, "measures": measures or {}, "schema": problem.schema}
    section["training_file"] = describe(problem)
    contents = estimator.folder_contents()
    write_folder(folder, FolderContents(contents.kind, {**contents.config, SECTION: section}, contents.tensors))


def load_problem(folder: str | Path, task: str) -> tuple[dict[str, Any], str | None]:
    """The schema and the metric that `save_problem` wrote; ({}, None) for an estimator saved without a problem.

    **Example**

        >>> from pathlib import Path
        >>> steps = [f"{k},{k % 2},{'up' if k % 2 else 'down'}" for k in range(12) for _ in range(3)]
        >>> _ = Path("old.csv").write_text("\\n".join(["id,x,label", *steps]))
        >>> problem = rc.infer_problem("old.csv")
        >>> model = problem.estimator("gru", hidden_size=4, epochs=1).fit(*problem.train)
        >>> rc.problem.save_problem(problem, model, "model")
        >>> rc.problem.load_problem("model", problem.task)[1]
        'accuracy'
    """
    path, config = Path(folder) / CONFIG, read_config(folder, *TASKS.values())
    section: Any = config.get(SECTION)
    if config["format"] == 1:
        path = path.with_name(FILE_OF_0_1_0)
        section = read_json(path) if path.is_file() else None
    if section is None:
        return {}, None
    found = section if isinstance(section, dict) else {}
    schema = found.get("schema", found.get("reading"))
    if not isinstance(schema, dict) or schema.get("task") != task:
        raise ModelFileError(path, "no schema for this model", f"the schema of the data for the task {task!r}")
    return schema, str(found.get("metric"))


def load_training_file(folder: str | Path, task: str) -> dict[str, Any]:
    """What `save_problem` wrote about the training file; {} if it wrote nothing."""
    section = read_config(folder, TASKS[task]).get(SECTION)
    found = section.get("training_file") if isinstance(section, dict) else None
    return found if isinstance(found, dict) and {"fraction", "seed", "sequences", "sha256"} <= found.keys() else {}
