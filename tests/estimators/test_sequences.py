"""The classifier and the regressor: what they take, what they learn, what they refuse, and scikit-learn around them."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import recurra as rc
from recurra.data import japanese_vowels
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError, ShapeError, UnknownNameError
from recurra.estimators.sklearn_checks import inapplicable_checks

QUICK = {"hidden_size": 8, "epochs": 5, "random_state": 0}


def waves(n: int = 60, ragged: bool = False, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Slow and fast sines beside noise, far from 1; their frequencies are the numbers to find, or the labels."""
    random = np.random.default_rng(seed)
    steps = random.integers(12, 25, n) if ragged else np.full(n, 20)
    frequency = np.where(np.arange(n) % 2, 0.9, 0.3) + random.uniform(-0.1, 0.1, n)
    series = [
        np.stack([500 + 40 * np.sin(f * np.arange(t) + random.uniform(0, 6)), random.normal(size=t)], axis=1)
        for f, t in zip(frequency, steps, strict=True)
    ]
    return series, np.where(frequency > 0.6, "fast", "slow"), frequency


def long_table(series: list[np.ndarray], **more: np.ndarray) -> dict:
    """One row a step; what belongs to a sequence stands on all its rows."""
    names = [f"s{k}" for k, x in enumerate(series) for _ in x]
    table = {"unique_id": names, "a": np.concatenate(series)[:, 0], "b": np.concatenate(series)[:, 1]}
    return table | {k: [v for x, v in zip(series, values, strict=True) for _ in x] for k, values in more.items()}


@pytest.fixture(scope="module")
def classifier() -> rc.SequenceClassifier:
    series, labels, _ = waves(ragged=True)
    return rc.SequenceClassifier("gru", **QUICK).fit(series, labels)


# ---------------------------------------------------------------------------------------------------- learning


@pytest.mark.slow
def test_ragged_lists_are_learned():
    series, labels, _ = waves(ragged=True)
    model = rc.SequenceClassifier("gru", hidden_size=24, epochs=25, batch_size=8, random_state=0).fit(series, labels)
    others, actual, _ = waves(ragged=True, seed=1)
    assert model.score(others, actual) > 0.95
    assert model.classes_.tolist() == ["fast", "slow"]


@pytest.mark.slow
def test_regressor_finds_the_frequency():
    series, _, frequency = waves(80)
    model = rc.SequenceRegressor("gru", hidden_size=24, epochs=30, batch_size=8, random_state=0).fit(
        series, 1000 * frequency
    )
    others, _, actual = waves(40, seed=1)
    assert model.score(others, 1000 * actual) > 0.9
    assert model.predict(others).shape == (40,)


def test_all_forms_of_one_data_set_agree():
    series, labels, _ = waves(24)
    X = np.stack(series)
    expected = rc.SequenceClassifier(**QUICK).fit(X, labels).predict_proba(X)
    forms = [series, torch.tensor(X), np.array([*series, None], dtype=object)[:-1]]
    for form in forms:
        np.testing.assert_array_equal(rc.SequenceClassifier(**QUICK).fit(form, labels).predict_proba(form), expected)


def test_two_dimensions_are_series_of_one_number():
    X = np.stack(waves(24)[0])[:, :, 0]
    labels = waves(24)[1]
    flat = rc.SequenceClassifier(**QUICK).fit(X, labels)
    deep = rc.SequenceClassifier(**QUICK).fit(X[:, :, None], labels)
    np.testing.assert_array_equal(flat.predict_proba(X), deep.predict_proba(X[:, :, None]))
    np.testing.assert_array_equal(deep.predict_proba(X), deep.predict_proba(X[:, :, None]))
    assert flat.n_features_in_ == 20
    assert deep.n_features_in_ == flat.input_size_ == 1


@pytest.mark.parametrize("make", [pa.table, dict])
def test_long_tables_bring_their_labels(make):
    series, labels, frequency = waves(24, ragged=True)
    table = make(long_table(series, label=labels))
    model = rc.SequenceClassifier(**QUICK).fit(table)
    same = rc.SequenceClassifier(**QUICK).fit(series, labels)
    np.testing.assert_allclose(model.predict_proba(table), same.predict_proba(series), atol=1e-4)
    np.testing.assert_allclose(model.predict_proba(long_table(series)), same.predict_proba(series), atol=1e-4)
    assert model.score(table) == same.score(series, labels)
    regressor = rc.SequenceRegressor(**QUICK).fit(make(long_table(series, speed=frequency)), "speed")
    assert regressor.predict(long_table(series)).shape == (24,)


def test_a_sequence_set_brings_its_labels():
    vowels = japanese_vowels("train")
    data = SequenceSet.from_arrays(vowels.sequences, vowels.labels, "classification")
    model = rc.SequenceClassifier(hidden_size=16, epochs=20, random_state=0).fit(data)
    assert model.score(data) > 0.9
    test = japanese_vowels("test")
    assert model.score(test.sequences, np.asarray(test.labels)) > 0.8


def test_several_targets():
    series, _, frequency = waves(30)
    model = rc.SequenceRegressor(**QUICK).fit(series, np.stack([frequency, -frequency], axis=1))
    assert model.predict(series).shape == (30, 2)


@pytest.mark.parametrize("pool", ["mean", "last", "max"])
def test_answers_do_not_depend_on_the_company(pool):
    series, labels, _ = waves(20, ragged=True)
    model = rc.SequenceClassifier(pool=pool, bidirectional=True, num_layers=2, **QUICK).fit(series, labels)
    together = model.predict_proba(series)
    alone = np.concatenate([model.predict_proba([x]) for x in series])
    np.testing.assert_allclose(alone, together, rtol=1e-10)


def test_early_stopping_keeps_the_best():
    random = np.random.default_rng(0)
    X, y = random.normal(size=(240, 6)), random.integers(0, 2, 240)  # nothing to learn: validation soon gets worse
    model = rc.SequenceClassifier(epochs=100, validation=0.1, patience=3, hidden_size=16, random_state=0).fit(X, y)
    losses = [record["valid_loss"] for record in model.history_]
    assert model.n_iter_ < 100
    assert int(np.argmin(losses)) == model.n_iter_ - 4


# ---------------------------------------------------------------------------------------------------- scikit-learn


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the checks themselves look at warnings
@pytest.mark.parametrize("kind", [rc.SequenceClassifier, rc.SequenceRegressor])
def test_scikit_learns_own_checks(kind):
    model = kind(effort="quick", random_state=0)
    expected = inapplicable_checks(model)
    results = check_estimator(model, expected_failed_checks=expected, on_skip=None)
    skipped = {r["check_name"] for r in results if r["status"] != "passed"}
    # These need the array API switched on, pandas, and a decision function.
    known = {"check_array_api_input", "check_classifier_data_not_an_array", "check_regressor_data_not_an_array"}
    known.add("check_classifiers_multilabel_output_format_decision_function")
    assert skipped <= known | set(expected)
    assert len(results) > 45


def test_same_seed_same_model_and_nothing_else_disturbed():
    series, labels, _ = waves(20)
    torch.manual_seed(3)
    first = rc.SequenceClassifier(dropout=0.3, **QUICK).fit(series, labels).predict_proba(series)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.rand(1) == after
    again = clone(rc.SequenceClassifier(dropout=0.3, **QUICK)).fit(series, labels).predict_proba(series)
    np.testing.assert_array_equal(first, again)
    other = rc.SequenceClassifier(dropout=0.3, **QUICK | {"random_state": 1}).fit(series, labels)
    assert not np.array_equal(other.predict_proba(series), first)


def test_pipeline():
    X, labels = np.stack(waves(24)[0])[:, :, 0], waves(24)[1]
    model = make_pipeline(StandardScaler(), rc.SequenceClassifier(**QUICK)).fit(X, labels)
    assert model.predict(X).shape == (24,)


@pytest.mark.slow
def test_grid_search_in_worker_processes():
    series, labels, _ = waves(40, ragged=True)
    grid = {"cell": ["gru", "rnn"], "hidden_size": np.array([4, 8])}
    alone = GridSearchCV(rc.SequenceClassifier(epochs=8, random_state=0), grid, cv=2).fit(series, labels)
    workers = GridSearchCV(rc.SequenceClassifier(epochs=8, random_state=0), grid, cv=2, n_jobs=2).fit(series, labels)
    np.testing.assert_allclose(
        workers.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], atol=0.051
    )  # workers run on the compiled engine: one sequence of 20 may fall on the other side
    assert workers.best_estimator_.predict(series).shape == (40,)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"cell": "lstn"}, UnknownNameError, "did you mean 'lstm'"),
        ({"pool": "men"}, UnknownNameError, "did you mean 'mean'"),
        ({"schedule": "cosin"}, UnknownNameError, "did you mean 'cosine'"),
        ({"validation": 1.5}, InputError, "validation: got 1.5"),
        ({"epochs": 0}, InputError, "epochs: got 0"),
        ({"hidden_size": 0}, InputError, "hidden_size: got 0"),
    ],
)
def test_bad_options_are_named(change, error, words):
    series, labels, _ = waves(8)
    with pytest.raises(error, match=words):
        rc.SequenceClassifier(**QUICK | change).fit(series, labels)


def test_bad_series_are_named_by_their_place(classifier):
    series, labels, _ = waves(6, ragged=True)
    broken = [*series[:3], series[3][:, :1], *series[4:]]
    with pytest.raises(ShapeError, match=r"X\[3\]: got 1 features per step, expected 2"):
        clone(classifier).fit(broken, labels)
    gap = [x.copy() for x in series]
    gap[2][5, 1] = -np.inf
    with pytest.raises(InputError, match=r"X\[2\]: got -inf at step 5, column 1"):
        classifier.predict(gap)
    with pytest.raises(ShapeError, match="X: got 1 features per step, expected 2"):
        classifier.predict([x[:, :1] for x in series])
    with pytest.raises(ShapeError, match="y: got 5 targets, expected one for each of 6"):
        clone(classifier).fit(series, labels[:5])
    with pytest.raises(InputError, match="1 class, 'one'"):
        clone(classifier).fit(series, ["one"] * 6)
    with pytest.raises(NotFittedError):
        clone(classifier).predict(series)
    tokens = SequenceSet.from_arrays([torch.tensor([1, 2, 3])] * 6, [0, 1] * 3, "classification")
    with pytest.raises(InputError, match="X: got sequences of tokens"):
        clone(classifier).fit(tokens)
