"""A model's measures on a file."""

from recurra.cli.models import Model
from recurra.data.data_errors import FormatError
from recurra.problem import Question
from recurra.problem.problem import forecast_measures
from recurra.problem.series import lengths_of


def judged(model: Model, source: str, windows: int | None = None) -> tuple[dict[str, float], int]:
    """All measures, and of how many answers."""
    found = model.read(source)
    if model.task == "forecast":
        horizon = model.estimator.horizon
        windows = windows or max(1, int(model.reading.get("held", 0)) // horizon)
        scores = model.estimator.backtest(found.X, windows=windows).scores
        return forecast_measures(scores), windows * horizon * len(lengths_of(found.X))
    if found.y is None and model.task != "language":
        target = model.reading.get("target")
        expected = f"the column {target!r}, to hold answers against" if target else "a file with the right answers"
        raise FormatError(source, "no answers", expected)
    question = Question(model.task, source, (None, None), None, model.metric, ())
    return question.measures(model.estimator, (found.X, found.y)), len(found.X)
