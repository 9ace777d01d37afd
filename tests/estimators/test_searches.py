"""scikit-learn around the estimators: searches in worker processes, pipelines, clones, seeds."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import recurra as rc

QUICK = {"hidden_size": 5, "epochs": 2, "random_state": 0}


def series(count: int, steps: int = 40) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [100 * k + np.cumsum(random.normal(size=steps + k)) for k in range(count)]


@pytest.mark.slow
def test_forecasters_are_searched_over_series_in_worker_processes():
    grid = {"cell": ["gru", "rnn"], "season": np.array([1, 4])}
    search = GridSearchCV(rc.Forecaster(horizon=3, **QUICK), grid, cv=KFold(2), n_jobs=2).fit(series(4))
    assert len(search.cv_results_["params"]) == 4
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.predict().shape == (4, 3)


@pytest.mark.slow
def test_language_models_are_searched_over_texts_in_worker_processes():
    texts = ["to be or not to be, that is the question " * 2] * 4
    model = rc.LanguageModelEstimator(**QUICK | {"batch_size": 2, "chunk": 10})
    search = GridSearchCV(model, {"lr": [1e-2, 1e-6]}, cv=2, n_jobs=2).fit(texts)
    assert search.best_params_ == {"lr": 1e-2}  # the other learns nothing
    assert search.best_estimator_.predict(["to be o"]).shape == (1,)


@pytest.mark.slow
def test_a_pipeline_is_searched_in_worker_processes():
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 10))
    y = 50 + 10 * X[:, -3:].sum(axis=1)
    model = make_pipeline(StandardScaler(), rc.SequenceRegressor(**QUICK | {"epochs": 60, "batch_size": 8}))
    grid = {"sequenceregressor__lr": [1e-2, 1e-9], "sequenceregressor__pool": ["last"]}
    search = GridSearchCV(model, grid, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_["sequenceregressor__lr"] == 1e-2
    assert search.score(X, y) > 0.5


def test_a_pipeline_of_ragged_sequences():
    random = np.random.default_rng(0)
    X = [k % 2 + random.normal(size=(t, 2)) for k, t in enumerate(random.integers(5, 9, 12))]
    y = np.arange(12) % 2
    halved = FunctionTransformer(lambda sequences: [x[: len(x) // 2] for x in sequences])
    model = make_pipeline(halved, rc.SequenceClassifier(**QUICK)).fit(X, y)
    direct = rc.SequenceClassifier(**QUICK).fit([x[: len(x) // 2] for x in X], y)
    np.testing.assert_array_equal(model.predict_proba(X), direct.predict_proba([x[: len(x) // 2] for x in X]))
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_scores_of_folds_are_the_same_for_the_same_seed():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(18, 6)), np.arange(18) % 3
    first, second = (cross_val_score(rc.SequenceClassifier(**QUICK), X, y, cv=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", ["SequenceClassifier", "SequenceRegressor", "Forecaster"])
def test_a_generator_moves_on_and_a_number_does_not(kind):
    X = np.random.default_rng(0).normal(size=(8, 30))
    y = np.arange(8) % 2

    def answer(state: int | np.random.RandomState) -> np.ndarray:
        every = {"validation": 0} if kind == "Forecaster" else {}  # uses the network, whatever it has learned
        model = getattr(rc, kind)(**QUICK | {"random_state": state} | every)
        return model.fit(X, y).predict() if kind == "Forecaster" else model.fit(X, y)._network_outputs(X)

    generator = np.random.RandomState(3)
    one, two = answer(generator), answer(generator)
    assert not np.array_equal(one, two)
    np.testing.assert_array_equal(answer(np.random.RandomState(3)), one)
    np.testing.assert_array_equal(answer(5), answer(5))
