"""The HTML report of a comparison: verdict, leaderboard, the best cell's answers, learning curves, measurements."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurra.compare.leaderboard import Leaderboard
from recurra.compare.plan import RunConfig
from recurra.compare.run_folder import Row, RunFolder
from recurra.data.sequences import SequenceSet
from recurra.estimators.inspection import SourceReader
from recurra.inspect import report
from recurra.inspect.page import Section
from recurra.problem import Problem
from recurra.problem.answers import answers
from recurra.problem.problem import estimator_class, fitted_network
from recurra.problem.series import append_steps, count_windows

MAX_MODELS = 4  # models whose gradients are drawn in one figure
SEQUENCES = 8  # sequences to measure on
CHARACTERS = 200  # of a text


def write_report(
    folder: RunFolder, board: Leaderboard, rows: Sequence[Row], problem: Problem, config: RunConfig
) -> Path | None:
    """Write report.html and return its path; None if this machine has no fitted model."""
    kind: Any = estimator_class(problem.task)
    entries = [entry for entry in board.entries if not entry.baseline and folder.model_path(entry.name).is_dir()]
    models = {entry.name: kind.load(folder.model_path(entry.name)) for entry in entries[:MAX_MODELS]}
    if not models:
        return None
    histories = {entry.name: _history(rows, entry.name) for entry in entries}
    best, best_model = next(iter(models.items()))
    settings = {**dict(problem.summary), "budget": _budget(config), "seeds": _seeds(rows), "measured model": best}
    return report(
        {name: _measured_network(problem, model) for name, model in models.items()},
        sample_inputs(problem, best_model),
        folder.path / "report.html",
        title=f"{Path(problem.source).name}: {len(entries)} cell{'s' * (len(entries) != 1)} compared, best cell {best}",
        history={name: history for name, history in histories.items() if history},
        leaderboard=_leaderboard_rows(board),
        settings=settings,
        verdict=board.verdict.replace(" %", "\N{NO-BREAK SPACE}%").replace(
            " ± ", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"
        ),
        answers=best_answers(problem, best_model, best),
    )


def _measured_network(problem: Problem, model: Any) -> Any:
    """The network of a model; of an encoder–decoder its encoder, since what the decoder reads it writes itself."""
    return SourceReader(model.model_) if problem.task == "translate" else fitted_network(model)


def best_answers(problem: Problem, model: Any, name: str) -> Section:
    """The answers of one model on the test data; its name stands in the title."""
    X, y = problem.test or problem.train
    windows = 1
    if problem.task == "forecast":
        windows, X = count_windows(X, model.horizon), append_steps(problem.train[0], X)
    section = answers(problem.task, model, X, y, problem.schema, windows)
    section.title = f"{section.title} of {name}"
    return section


def _leaderboard_rows(board: Leaderboard) -> list[dict[str, Any]]:
    """The rows of the table with the scores of all seeds, for the figure."""
    factor = board.unit[0]
    return [
        {key: text for key, text in row.items() if key not in ("", "seeds")}
        | {"scores": [factor * score for score in entry.scores]}
        for row, entry in zip(board.table_rows(), board.entries, strict=True)
    ]


def _history(rows: Sequence[Row], name: str) -> list[dict[str, Any]]:
    return next((row["history"] for row in rows if row["name"] == name and row.get("history")), [])


def _seeds(rows: Sequence[Row]) -> str:
    return str(1 + max(row["seed"] for row in rows))


def _budget(config: RunConfig) -> str:
    if config.budget == "time":
        return f"{config.seconds:g} seconds of training per cell and seed"
    return f"the parameters of an LSTM with {config.hidden_size} units"


def sample_inputs(problem: Problem, estimator: Any) -> Any:
    """A few sequences in the form the network takes."""
    X, y = problem.test or problem.train
    match problem.task:
        case "classify":
            return _set(estimator, X[:SEQUENCES], np.searchsorted(estimator.classes_, np.asarray(y)[:SEQUENCES]))
        case "regress":
            targets = np.asarray(y, dtype=np.float64)[:SEQUENCES]
            return _set(estimator, X[:SEQUENCES], estimator.target_scaling_.apply(targets.reshape(len(targets), -1)))
        case "classify_steps":
            return _set(estimator, X[:SEQUENCES], [np.searchsorted(estimator.classes_, row) for row in y[:SEQUENCES]])
        case "regress_steps":
            return _set(
                estimator, X[:SEQUENCES], [estimator.target_scaling_.apply(row[:, None]) for row in y[:SEQUENCES]]
            )
        case "tag":
            return estimator.tagger_.encode(X[:SEQUENCES], y[:SEQUENCES])
        case "translate":
            return estimator.inspection_inputs(X, SEQUENCES)[1]
        case "language":
            return estimator.model_.vocabulary.encode(X[:CHARACTERS])
        case _:
            return estimator.inspection_inputs(problem.train[0], SEQUENCES)[1]


def _set(estimator: Any, X: list[Any], targets: Any) -> SequenceSet:
    return estimator._to_sequence_set(estimator._convert_for_predict(X), targets)
