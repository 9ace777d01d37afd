"""River's own checks of an estimator, and its pipelines and progressive validation against our prequential errors."""

import pytest
from river import checks, datasets, evaluate, metrics, preprocessing
from river.base import Estimator

import recurra as rc
from recurra.estimators import prequential
from recurra.estimators.river import RiverClassifier, RiverRegressor

SMALL = {"hidden_size": 4, "algorithm": "snap1", "lr": 0.01}
SEGMENTS = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
SLOW = {"check_bounded_memory_growth"}


def river_checks():
    """Every check by model; of a check that comes once for every data set, the one with the most classes."""
    for model in (RiverRegressor(**SMALL), RiverClassifier((False, True, *SEGMENTS), **SMALL)):
        by_name = {check.__name__: check for check in checks.yield_checks(model)}
        for name, check in by_name.items():
            yield pytest.param(
                model, check, id=f"{type(model).__name__}-{name}", marks=[pytest.mark.slow] * (name in SLOW)
            )


@pytest.mark.parametrize(("model", "check"), list(river_checks()))
def test_rivers_check(model: Estimator, check) -> None:
    check(model.clone())


def test_progressive_validation_is_prequential() -> None:
    stream = list(datasets.TrumpApproval().take(150))
    found = evaluate.progressive_val_score(stream, RiverRegressor(**SMALL), metrics.MAE())
    assert found.get() == pytest.approx(prequential(rc.OnlineForecaster(**SMALL), stream).error, rel=1e-12)


def test_a_pipeline_of_a_classifier_learns() -> None:
    model = preprocessing.StandardScaler() | RiverClassifier(**SMALL)
    labels = [y for _, y in datasets.Phishing().take(400)]
    most = max(labels.count(True), labels.count(False)) / len(labels)
    found = evaluate.progressive_val_score(datasets.Phishing().take(400), model, metrics.Accuracy())
    assert found.get() > most + 0.15
