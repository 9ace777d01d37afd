"""Metrics of a saved model on a file."""

from typing import Any

import numpy as np

from recurra.cli.model_folder import SavedModel
from recurra.data.data_errors import FormatError
from recurra.problem import LoadedData, Problem
from recurra.problem.problem import forecast_metrics

MAX_GROUPS = 6  # of steps ahead


def evaluate_file(
    model: SavedModel, source: str, data: LoadedData, windows: int | None = None
) -> tuple[dict[str, float], int]:
    """All metrics by name, and the number of predictions they are computed from."""
    if model.task == "forecast":
        return forecast_scores(backtest_file(model, data, windows))
    if data.y is None and model.task != "language":
        target = model.schema.get("target")
        raise FormatError(source, "no targets", f"the column {target!r}" if target else "a file with targets")
    problem = Problem(model.task, source, (None, None), None, model.metric, ())
    count = sum(map(len, data.X)) if model.task in ("classify_steps", "regress_steps") else len(data.X)
    return problem.evaluate(model.estimator, (data.X, data.y)), count


def backtest_file(model: SavedModel, data: LoadedData, windows: int | None = None) -> Any:
    """Forecasts of the last windows of the data: by default as many as were held out for testing."""
    return model.estimator.backtest(data.X, windows=windows or held_out_windows(model))


def forecast_scores(found: Any) -> tuple[dict[str, float], int]:
    """All metrics of a backtest by name, and the number of values that were forecast."""
    return forecast_metrics(found.scores), found.actual.size


def coverage_rows(found: Any) -> tuple[list[str], list[tuple[str, list[float]]]]:
    """The intervals of a backtest, and their coverage: of all steps, then of up to six groups of steps ahead."""
    covered = found.coverage_by_step()
    groups = np.array_split(np.arange(found.steps), min(found.steps, MAX_GROUPS))
    rows = [("all", [float(shares.mean()) for shares in covered.values()])]
    for group in groups if len(groups) > 1 else ():
        first, last = group[0] + 1, group[-1] + 1
        name = f"{first}" if first == last else f"{first}–{last}"
        rows.append((name, [float(shares[group].mean()) for shares in covered.values()]))
    return [f"{width:.0%}" for width in covered], rows


def held_out_windows(model: SavedModel) -> int:
    """How many forecasts fit into the steps that were held out for testing, at least 1."""
    return max(1, int(model.schema.get("held", 0)) // model.estimator.horizon)


def is_labelled(model: SavedModel, data: LoadedData) -> bool:
    """Whether a file has what a score needs."""
    return data.y is not None or model.task in ("forecast", "language")


def in_words(model: SavedModel, metrics: dict[str, float], count: int) -> str:
    """The score as a sentence: "accuracy 0.973 on 370 predictions"."""
    unit = {"language": "character", "tag": "sentence", "translate": "text"}.get(model.task, "prediction")
    name = model.metric.upper() if model.metric in ("f1", "mae", "mase") else model.metric
    return f"{name} {metrics[model.metric]:.4g} on {count:,} {unit}{'s' if count != 1 else ''}"
