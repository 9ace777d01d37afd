"""Metrics of a saved model on a file."""

from recurra.cli.model_folder import SavedModel
from recurra.data.data_errors import FormatError
from recurra.problem import LoadedData, Problem
from recurra.problem.problem import forecast_metrics
from recurra.problem.series import series_lengths


def evaluate_file(
    model: SavedModel, source: str, data: LoadedData, windows: int | None = None
) -> tuple[dict[str, float], int]:
    """All metrics by name, and the number of predictions they are computed from."""
    if model.task == "forecast":
        windows = windows or held_out_windows(model)
        scores = model.estimator.backtest(data.X, windows=windows).scores
        return forecast_metrics(scores), windows * model.estimator.horizon * len(series_lengths(data.X))
    if data.y is None and model.task != "language":
        target = model.schema.get("target")
        raise FormatError(source, "no targets", f"the column {target!r}" if target else "a file with targets")
    problem = Problem(model.task, source, (None, None), None, model.metric, ())
    count = sum(map(len, data.X)) if model.task in ("classify_steps", "regress_steps") else len(data.X)
    return problem.evaluate(model.estimator, (data.X, data.y)), count


def held_out_windows(model: SavedModel) -> int:
    """How many forecasts fit into the steps that were held out for testing, at least 1."""
    return max(1, int(model.schema.get("held", 0)) // model.estimator.horizon)


def is_labelled(model: SavedModel, data: LoadedData) -> bool:
    """Whether a file has what a score needs."""
    return data.y is not None or model.task in ("forecast", "language")


def in_words(model: SavedModel, metrics: dict[str, float], count: int) -> str:
    """The score as a sentence: "accuracy 0.973 on 370 predictions"."""
    unit = {"language": "character", "tag": "sentence"}.get(model.task, "prediction")
    name = model.metric.upper() if model.metric in ("f1", "mae", "mase") else model.metric
    return f"{name} {metrics[model.metric]:.4g} on {count:,} {unit}{'s' if count != 1 else ''}"
