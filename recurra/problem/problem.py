"""`Problem`: training data, test data, a metric, and the estimator for its task."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from recurra.data.html_table import html_table
from recurra.data.readers.column_roles import ColumnRole
from recurra.errors import InputError, UnknownNameError
from recurra.problem.column_table import TITLES, column_rows
from recurra.problem.edit_distance import edit_distance

#: task → estimator class
TASKS = {
    "classify": "SequenceClassifier",
    "regress": "SequenceRegressor",
    "classify_steps": "StepClassifier",
    "regress_steps": "StepRegressor",
    "forecast": "Forecaster",
    "tag": "SequenceTagger",
    "language": "LanguageModelEstimator",
    "translate": "SequenceToSequence",
}

#: metric → whether higher is better
METRICS = {"accuracy": True, "f1": True, "mae": False, "mase": False, "bits per character": False}


@dataclass(frozen=True)
class LoadedData:
    """The content of a file in the form of a problem's `train`. `y` is None if the file has no targets.

    `names` are those of the sequences: the values of the id column, else 0, 1, … `categories` are the values of text
    columns that are inputs, `features` the names of the input columns, and `notes` say what the reader changed.

    **Example**

        >>> from pathlib import Path
        >>> steps = [f"{k},{k % 2},{'up' if k % 2 else 'down'}" for k in range(12) for _ in range(3)]
        >>> _ = Path("old.csv").write_text("\\n".join(["id,x,label", *steps]))
        >>> problem = rc.infer_problem("old.csv")
        >>> _ = Path("new.csv").write_text("id,x\\na,1\\na,0\\n")
        >>> data = rc.problem.read_like_training("new.csv", problem.schema)
        >>> data.names, data.features, data.X[0].tolist(), data.y
        (['a'], ['x'], [[1.0], [0.0]], None)
    """

    X: Any
    y: Any
    names: list[str]
    categories: dict[str, list[str]] = field(default_factory=dict)
    features: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """A data file as a learning problem; made by `infer_problem`.

    `train` and `test` are pairs (X, y) in the form the estimators take:

    | task | X | y |
    |---|---|---|
    | classify, regress | list of (T, D) arrays | array (n,) |
    | classify_steps, regress_steps | list of (T, D) arrays | list of (T,) arrays |
    | forecast | Arrow table `unique_id, ds, y` and covariates; `test` continues `train` | None |
    | tag | list of lists of words | list of lists of tags |
    | language | text | None |

    `metric` names the score that ranks models, `summary` says in words what was inferred, `options` are estimator
    arguments that follow from the data, and `schema` (plain JSON) says how to read another file the same way. `columns`
    has the role of each column of a table and the reason for it. `split` has the fraction held out and the seed.

    **Example**

    >>> import recurra as rc
    >>> problem = rc.infer_problem("japanese_vowels")
    >>> model = problem.estimator("gru", hidden_size=8, epochs=1).fit(*problem.train)
    >>> 0 <= problem.score(model) <= 1
    True
    """

    task: str
    source: str
    train: tuple[Any, Any]
    test: tuple[Any, Any] | None
    metric: str
    summary: tuple[tuple[str, str], ...]
    options: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    columns: tuple[ColumnRole, ...] = ()
    split: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self.summary) if self.summary else 0
        return "\n".join([f"Problem to {self.task}", *(f"  {name:<{width}}  {text}" for name, text in self.summary)])

    def _repr_html_(self) -> str:
        """The summary and the roles of columns as tables, for notebooks."""
        tables = html_table(("problem", f"to {self.task}"), self.summary)
        return tables + (html_table(TITLES, column_rows(self.columns)) if self.columns else "")

    @property
    def higher_is_better(self) -> bool:
        return METRICS[self.metric]

    def estimator(self, cell: str = "lstm", **settings: Any) -> BaseEstimator:
        """A new estimator for this task; `settings` are its options."""
        kind = estimator_class(self.task)
        known = kind().get_params(deep=False)
        for name in settings:
            if name not in known:
                raise UnknownNameError(f"{kind.__name__} option", repr(name), known)
        return kind(**({"cell": cell} | self.options | settings))

    def score(self, estimator: Any, data: tuple[Any, Any] | None = None) -> float:
        """The `metric` of a fitted estimator on `data`, by default on the test data."""
        data = self.test if data is None else data
        if data is None:
            raise InputError("test", "no held-out data", "a fraction or a file to test on")
        return self.evaluate(estimator, data)[self.metric]

    def evaluate(self, estimator: Any, data: tuple[Any, Any]) -> dict[str, float]:
        """Every metric of a fitted estimator on `data`, by name."""
        return _EVALUATORS[self.task](self, estimator, *data)


def estimator_class(task: str) -> type[BaseEstimator]:
    """The estimator class for a task."""
    from recurra import estimators

    return getattr(estimators, TASKS[task])


def fitted_network(estimator: Any) -> Any:
    """The torch module inside a fitted estimator."""
    names = ("network_", "tagger_", "model_")
    return next(getattr(estimator, name) for name in names if hasattr(estimator, name))


def _classification(problem: Problem, estimator: Any, X: Any, labels: Any) -> dict[str, float]:
    from sklearn.metrics import f1_score, log_loss

    y: Any = np.asarray(labels)
    probabilities = estimator.predict_proba(X)
    found: Any = estimator.classes_[probabilities.argmax(axis=1)]
    metrics = {
        "accuracy": float(np.mean(found == y)),
        "balanced accuracy": float(np.mean([np.mean(found[y == label] == label) for label in np.unique(y)])),
        "macro f1": float(f1_score(y, found, average="macro", zero_division=0)),
    }
    if set(np.unique(y).tolist()) <= set(estimator.classes_.tolist()):
        metrics["log loss"] = float(log_loss(y, probabilities, labels=estimator.classes_))
    return metrics


def _regression(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import r2_score

    found = estimator.predict(X)
    target: Any = np.asarray(y)
    errors = found - target
    metrics = {"mae": float(np.abs(errors).mean()), "rmse": float(np.sqrt((errors**2).mean()))}
    return metrics | ({"r2": float(r2_score(target, found))} if len(target) > 1 else {})


def _step_classification(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import f1_score

    truth, found = np.concatenate(y), np.concatenate(estimator.predict(X))
    return {
        "accuracy": float(np.mean(found == truth)),
        "balanced accuracy": float(np.mean([np.mean(found[truth == label] == label) for label in np.unique(truth)])),
        "macro f1": float(f1_score(truth, found, average="macro", zero_division=0)),
    }


def _step_regression(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from sklearn.metrics import r2_score

    truth, found = np.concatenate(y), np.concatenate(estimator.predict(X))
    errors = found - truth
    metrics = {"mae": float(np.abs(errors).mean()), "rmse": float(np.sqrt((errors**2).mean()))}
    return metrics | ({"r2": float(r2_score(truth, found))} if len(truth) > 1 else {})


def _forecast(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from recurra.problem.series import append_steps, count_windows

    windows = count_windows(X, estimator.horizon)
    return forecast_metrics(estimator.backtest(append_steps(problem.train[0], X), windows=windows).scores)


def forecast_metrics(scores: dict[str, dict[str, float]]) -> dict[str, float]:
    """The scores of a backtest by name: those of the model, then the MASE of naive forecasts."""
    found = {name.lower(): value for name, value in scores["model"].items()}
    for method in ("naive", "seasonal naive"):
        if method in scores:
            found[f"mase of {method}"] = scores[method]["MASE"]
    return found


def _tagging(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    from recurra.models.tagging import accuracy, entity_scores

    found = estimator.predict(X)
    metrics = {"accuracy": float(accuracy(y, found))}
    if problem.metric == "f1":
        scores = entity_scores(y, found)
        metrics = {"f1": scores.f1, "precision": scores.precision, "recall": scores.recall, **metrics}
    return metrics


def _language(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    found = estimator.measure(X)
    return {"bits per character": found["bits_per_character"], "perplexity": found["perplexity"], "nats": found["nats"]}


def _translation(problem: Problem, estimator: Any, X: Any, y: Any) -> dict[str, float]:
    found = estimator.predict(X)
    edits = sum(edit_distance(a, b) for a, b in zip(y, found, strict=True))
    return {
        "accuracy": float(np.mean([a == b for a, b in zip(y, found, strict=True)])),
        "character error rate": edits / max(1, sum(map(len, y))),
    }


_EVALUATORS = {
    "classify": _classification,
    "regress": _regression,
    "classify_steps": _step_classification,
    "regress_steps": _step_regression,
    "forecast": _forecast,
    "tag": _tagging,
    "language": _language,
    "translate": _translation,
}
