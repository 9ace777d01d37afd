"""A question: data to learn from, data held out, and the measure of an answer."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from recurra.errors import InputError, OptionError, nearest

#: task → the estimator that answers it
TASKS = {
    "classify": "SequenceClassifier",
    "regress": "SequenceRegressor",
    "forecast": "Forecaster",
    "tag": "SequenceTagger",
    "language": "LanguageModelEstimator",
}

#: metric → whether more of it is better
METRICS = {"accuracy": True, "f1": True, "mae": False, "mase": False, "bits per character": False}


@dataclass(frozen=True)
class Question:
    """What `ask` found. `estimator.fit(*question.train)` learns, `question.score(estimator)` judges.

    X and y by task: classify and regress, a list of (T, D) arrays and an array; forecast, an Arrow table `unique_id,
    ds, y` with covariates, and None; tag, lists of words and of tags; language, a text and None. In a forecast, `test`
    holds the steps that follow those of `train`.
    """

    task: str
    source: str
    train: tuple[Any, Any]
    test: tuple[Any, Any] | None
    metric: str
    facts: tuple[tuple[str, str], ...]
    options: dict[str, Any] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)  # how another file is read in the same way; plain JSON

    @property
    def higher_is_better(self) -> bool:
        return METRICS[self.metric]

    def estimator(self, cell: str = "lstm", **settings: Any) -> BaseEstimator:
        """An estimator that is yet to learn; settings are its options."""
        kind = estimator_kind(self.task)
        known = kind().get_params(deep=False)
        for name in settings:
            if name not in known:
                raise OptionError(name, f"no option of {kind.__name__}", nearest(name, known))
        return kind(**({"cell": cell} | self.options | settings))

    def score(self, estimator: Any, data: tuple[Any, Any] | None = None) -> float:
        """How good its answers are in `metric`, on `data` or on what was held out."""
        data = self.test if data is None else data
        if data is None:
            raise InputError("test", "nothing held out", "a share or a file to test on")
        return self.measures(estimator, data)[self.metric]

    def measures(self, estimator: Any, data: tuple[Any, Any]) -> dict[str, float]:
        """Every measure of its answers, `metric` among them."""
        return _MEASURES[self.task](self, estimator, *data)


def estimator_kind(task: str) -> type[BaseEstimator]:
    """The class of the estimators that answer this kind of question."""
    from recurra import estimators

    return getattr(estimators, TASKS[task])


def _classification(question: Question, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import f1_score, log_loss

    y, probabilities = np.asarray(y), estimator.predict_proba(X)
    found = estimator.classes_[probabilities.argmax(axis=1)]
    measures = {
        "accuracy": float(np.mean(found == y)),
        "balanced accuracy": float(np.mean([np.mean(found[y == label] == label) for label in np.unique(y)])),
        "macro f1": float(f1_score(y, found, average="macro", zero_division=0)),
    }
    if set(np.unique(y).tolist()) <= set(estimator.classes_.tolist()):
        measures["log loss"] = float(log_loss(y, probabilities, labels=estimator.classes_))
    return measures


def _regression(question: Question, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import r2_score

    found, wanted = estimator.predict(X), np.asarray(y)
    errors = found - wanted
    measures = {"mae": float(np.abs(errors).mean()), "rmse": float(np.sqrt((errors**2).mean()))}
    return measures | ({"r2": float(r2_score(wanted, found))} if len(wanted) > 1 else {})


def _forecast(question: Question, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from recurra.problem.series import joined, windows_in

    windows = windows_in(X, estimator.horizon)
    return forecast_measures(estimator.backtest(joined(question.train[0], X), windows=windows).scores)


def forecast_measures(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    """The scores of a backtest by name, naive forecasts after the model's own."""
    found = {name.lower(): value for name, value in scores["model"].items()}
    for method in ("naive", "seasonal naive"):
        if method in scores:
            found[f"mase of {method}"] = scores[method]["MASE"]
    return found


def _tagging(question: Question, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from recurra.models.tagging import accuracy, entity_scores

    found = estimator.predict(X)
    measures = {"accuracy": float(accuracy(y, found))}
    if question.metric == "f1":
        scores = entity_scores(y, found)
        measures = {"f1": scores.f1, "precision": scores.precision, "recall": scores.recall, **measures}
    return measures


def _language(question: Question, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    found = estimator.measure(X)
    return {"bits per character": found["bits_per_character"], "perplexity": found["perplexity"], "nats": found["nats"]}


_MEASURES = {
    "classify": _classification,
    "regress": _regression,
    "forecast": _forecast,
    "tag": _tagging,
    "language": _language,
}
