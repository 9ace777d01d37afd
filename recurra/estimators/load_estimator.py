"""`rc.load`: a saved estimator of any kind."""

from pathlib import Path
from typing import Any

from ..storage import read_config

KINDS = (
    "SequenceClassifier",
    "SequenceRegressor",
    "Forecaster",
    "SequenceTagger",
    "LanguageModelEstimator",
    "SequenceToSequence",
    "StepClassifier",
    "StepRegressor",
    "OnlineForecaster",
    "OnlineClassifier",
)


def load(folder: str | Path) -> Any:
    """The fitted estimator in a model folder, written by an estimator's `save`, `recurra fit` or `recurra compare`.

    **Arguments**

    - `folder`: the model folder. A cell of your own must be registered before.

    **Returns** an estimator of the class that was saved.

    **Example**

        >>> import tempfile, numpy as np, recurra as rc
        >>> X, y = np.random.default_rng(0).normal(size=(8, 5)), ["up", "down"] * 4
        >>> model = rc.SequenceClassifier(hidden_size=4, epochs=1, random_state=0).fit(X, y)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(folder)
        ...     again = rc.load(folder)
        >>> type(again).__name__, bool((again.predict(X) == model.predict(X)).all())
        ('SequenceClassifier', True)
    """
    from recurra import estimators

    kind = read_config(folder, *KINDS)["kind"]
    return getattr(estimators, kind).load(folder)
