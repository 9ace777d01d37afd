"""Metrics of a saved model on a file."""

from recurra.cli.model_folder import SavedModel
from recurra.data.data_errors import FormatError
from recurra.problem import Problem
from recurra.problem.problem import forecast_metrics
from recurra.problem.series import series_lengths


def evaluate_file(model: SavedModel, source: str, windows: int | None = None) -> tuple[dict[str, float], int]:
    """All metrics by name, and the number of predictions they are computed from."""
    data = model.read(source)
    if model.task == "forecast":
        horizon = model.estimator.horizon
        windows = windows or max(1, int(model.schema.get("held", 0)) // horizon)
        scores = model.estimator.backtest(data.X, windows=windows).scores
        return forecast_metrics(scores), windows * horizon * len(series_lengths(data.X))
    if data.y is None and model.task != "language":
        target = model.schema.get("target")
        raise FormatError(source, "no targets", f"the column {target!r}" if target else "a file with targets")
    problem = Problem(model.task, source, (None, None), None, model.metric, ())
    return problem.evaluate(model.estimator, (data.X, data.y)), len(data.X)
