"""The online estimators as River's regressors and classifiers, for its pipelines, metrics and evaluation."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..optional import optional_imports
from .online import OnlineClassifier, OnlineEstimator, OnlineForecaster

with optional_imports("river", "recurra.estimators.river"):
    from river import base


def _known_features(model: OnlineEstimator, x: Mapping[Any, Any]) -> Any:
    """The features of the first step; those that x does not have are their mean so far."""
    if not hasattr(model, "learner_"):
        return dict(x)
    means = zip(model.feature_names_in_, model.scaling_.mean.tolist(), strict=True)
    return {name: x.get(name, mean) for name, mean in means}


class RiverRegressor(base.Regressor):
    """`rc.OnlineForecaster` as a regressor of River (`river.base.Regressor`).

    Features that the first step did not have are left out; a feature that is missing counts as its mean so far.

    **Arguments**: those of `rc.OnlineForecaster`. `model` is the `OnlineForecaster` inside, which has `save`.

    **Returns**: `predict_one(x)` a float; `learn_one(x, y)` nothing, as in River.

    **Example**

        >>> from river import datasets, evaluate, metrics, preprocessing
        >>> from recurra.estimators.river import RiverRegressor
        >>> model = preprocessing.StandardScaler() | RiverRegressor(hidden_size=4, algorithm="snap1", lr=0.01)
        >>> stream = datasets.TrumpApproval().take(200)
        >>> evaluate.progressive_val_score(stream, model, metrics.MAE()).get() < 2
        True
    """

    def __init__(
        self,
        cell: str = "gru",
        hidden_size: int = 32,
        algorithm: str = "rtrl",
        lr: float = 3e-3,
        cell_options: dict[str, Any] | None = None,
        clip: float | None = 1.0,
        random_state: int = 0,
    ):
        self.cell, self.hidden_size, self.algorithm, self.lr = cell, hidden_size, algorithm, lr
        self.cell_options, self.clip, self.random_state = cell_options, clip, random_state
        self.model = OnlineForecaster(
            cell, hidden_size, algorithm, lr, cell_options=cell_options, clip=clip, random_state=random_state
        )

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn that the step with features x had the target y."""
        self.model.learn_one(_known_features(self.model, x), float(y))

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """The target of the step with features x, before it is known."""
        return self.model.predict_one(_known_features(self.model, x))


class RiverClassifier(base.Classifier):
    """`rc.OnlineClassifier` as a classifier of River (`river.base.Classifier`).

    Features that the first step did not have are left out; a feature that is missing counts as its mean so far.

    **Arguments**: those of `rc.OnlineClassifier`; `classes` are all labels that may come, or the largest
    number of them. `model` is the `OnlineClassifier` inside, which has `save`.

    **Returns**: `predict_one(x)` a label, `predict_proba_one(x)` label → probability; `learn_one(x, y)` nothing, as in
    River.

    **Example**

        >>> from river import datasets, evaluate, metrics, preprocessing
        >>> from recurra.estimators.river import RiverClassifier
        >>> model = preprocessing.StandardScaler() | RiverClassifier(hidden_size=4, algorithm="snap1", lr=0.01)
        >>> stream = datasets.Phishing().take(300)
        >>> evaluate.progressive_val_score(stream, model, metrics.Accuracy()).get() > 0.7
        True
    """

    def __init__(
        self,
        classes: Iterable[Any] | int = (False, True),
        cell: str = "gru",
        hidden_size: int = 32,
        algorithm: str = "rtrl",
        lr: float = 3e-3,
        cell_options: dict[str, Any] | None = None,
        clip: float | None = 1.0,
        random_state: int = 0,
    ):
        self.classes, self.cell, self.hidden_size, self.algorithm, self.lr = classes, cell, hidden_size, algorithm, lr
        self.cell_options, self.clip, self.random_state = cell_options, clip, random_state
        self.model = OnlineClassifier(
            classes, cell, hidden_size, algorithm, lr, cell_options=cell_options, clip=clip, random_state=random_state
        )

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:
        """Learn that the step with features x had the label y."""
        self.model.learn_one(_known_features(self.model, x), y)

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:  # pyrefly: ignore
        """Label → probability, for the step with features x."""
        return self.model.predict_proba_one(_known_features(self.model, x))
