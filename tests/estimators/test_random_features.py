"""Sequence estimators as they come: random features, weights of samples and classes, several labels, explanations."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV

import recurra as rc
from recurra.errors import InputError, ModelFileError, UnknownNameError
from recurra.estimators.explanation import occlude
from recurra.interop.onnx.export_errors import ExportError

QUICK = {"effort": "quick", "random_state": 0}
NETWORK = {"cell": "gru", "hidden_size": 6, "epochs": 2, "random_state": 0}


def bumps(n: int = 60, steps: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Noise, and in every other sequence a short wave somewhere: (n, T) and 0 or 1."""
    random = np.random.default_rng(seed)
    X, y = random.normal(size=(n, steps)), np.arange(n) % 2
    for k in np.flatnonzero(y):
        at = random.integers(0, steps - 8)
        X[k, at : at + 8] += 4 * np.sin(np.arange(8) * np.pi / 2)
    return X, y


@pytest.fixture(scope="module")
def model() -> rc.SequenceClassifier:
    return rc.SequenceClassifier(**QUICK).fit(*bumps())


def test_learns_as_it_comes(model):
    assert model.score(*bumps(seed=1)) > 0.9
    assert model.effort_ == "quick"
    assert set(model.members_) == {"delay lines", "resonators", "leaky networks", "written out", "summary"}
    assert not hasattr(model, "network_")
    assert rc.SequenceClassifier(random_state=0).fit(*bumps(20)).effort_ == "balanced"


def test_answers_do_not_depend_on_the_company(model):
    X = bumps(seed=2)[0]
    together = model.predict_proba(X)
    np.testing.assert_allclose(np.concatenate([model.predict_proba([x]) for x in X[:5]]), together[:5], rtol=1e-9)


def test_regression_of_several_numbers():
    random = np.random.default_rng(0)
    X = np.sin(np.arange(30) * random.uniform(0.2, 1.0, (80, 1)) + random.uniform(0, 6, (80, 1)))
    y = np.stack([X.std(axis=1), 100 + np.abs(np.diff(X)).mean(axis=1)], axis=1)
    model = rc.SequenceRegressor(**QUICK).fit(X[:50], y[:50])
    assert model.score(X[50:], y[50:]) > 0.9
    assert "step" in model.explain(X[0]).summary().lower()


def test_padding_with_nan_is_the_end_of_a_sequence():
    X, y = bumps(30)
    ragged = [x[: 25 + k % 10] for k, x in enumerate(X)]
    padded = np.full((30, 40), np.nan)
    for row, x in zip(padded, ragged, strict=True):
        row[: len(x)] = x
    expected = rc.SequenceClassifier(**QUICK).fit(ragged, y).predict_proba(ragged)
    np.testing.assert_allclose(rc.SequenceClassifier(**QUICK).fit(padded, y).predict_proba(padded), expected)
    ragged[3][2] = np.inf
    with pytest.raises(InputError, match=r"X\[3\]: got inf at step 2"):
        rc.SequenceClassifier(**QUICK).fit(ragged, y)
    ragged[3][2] = 1e200
    with pytest.raises(InputError, match=r"X\[3\]: got a value of 1e\+200"):
        rc.SequenceClassifier(**QUICK).fit(ragged, y)


def test_saved_and_loaded(model, tmp_path):
    X = bumps(seed=3)[0]
    model.save(tmp_path / "features")
    loaded = rc.SequenceClassifier.load(tmp_path / "features")
    np.testing.assert_allclose(loaded.predict_proba(X), model.predict_proba(X), rtol=1e-12)
    assert loaded.members_ == model.members_
    config = tmp_path / "features" / "config.json"
    config.write_text(config.read_text().replace('"resonators": 512', '"resonators": 5120000'))
    with pytest.raises(ModelFileError):
        rc.SequenceClassifier.load(tmp_path / "features")


def test_export_names_what_to_do(model, tmp_path):
    with pytest.raises(ExportError, match='fit with cell="lstm"'):
        model.export(tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_cell_and_an_effort_are_weighed(tmp_path):
    X, y = bumps(30, 20)
    both = rc.SequenceClassifier(**NETWORK | {"epochs": 1}, effort="quick").fit(X, y)
    assert both.members_["network"] >= 0
    assert both.network_.recurrent.hidden_size == 6
    both.network_weight_ = 0.7  # whatever validation preferred: both are kept and used
    both.save(tmp_path)
    np.testing.assert_allclose(rc.SequenceClassifier.load(tmp_path).predict_proba(X), both.predict_proba(X), rtol=1e-9)
    alone = rc.SequenceClassifier(**NETWORK).fit(X, y)
    assert alone.members_ == {"network": 1.0}
    with pytest.raises(UnknownNameError, match="did you mean 'quick'"):
        rc.SequenceClassifier(effort="quik").fit(X, y)


# ---------------------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("options", [QUICK, NETWORK], ids=["features", "network"])
def test_weight_zero_is_absence(options):
    X, y = bumps(40, 15)
    weight = np.where(np.arange(40) < 30, 2.0, 0.0)
    given = rc.SequenceClassifier(**options).fit(X, y, sample_weight=weight)
    absent = rc.SequenceClassifier(**options).fit(X[:30], y[:30])
    np.testing.assert_allclose(given.predict_proba(X), absent.predict_proba(X), atol=1e-6)
    with pytest.raises(InputError, match="sample_weight"):
        rc.SequenceClassifier(**options).fit(X, y, sample_weight=np.zeros(40))


@pytest.mark.parametrize("options", [QUICK, NETWORK | {"epochs": 15}], ids=["features", "network"])
def test_class_weight_finds_the_rare_class(options):
    random = np.random.default_rng(0)
    X, y = random.normal(size=(220, 10)), np.repeat(["common", "rare"], [200, 20])
    X[y == "rare"] += 0.5
    plain = rc.SequenceClassifier(**options).fit(X, y)
    balanced = rc.SequenceClassifier(**options, class_weight="balanced").fit(X, y)
    same = rc.SequenceClassifier(**options, class_weight={"common": 0.55, "rare": 5.5}).fit(X, y)
    others = random.normal(size=(200, 10)) + 0.5
    assert np.mean(balanced.predict(others) == "rare") > np.mean(plain.predict(others) == "rare") + 0.2
    np.testing.assert_allclose(same.predict_proba(others), balanced.predict_proba(others), atol=1e-5)


# ---------------------------------------------------------------------------------------------------- several labels


@pytest.mark.parametrize("options", [QUICK, NETWORK | {"epochs": 40, "hidden_size": 16}], ids=["features", "network"])
def test_labels_that_hold_together(options, tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 12))
    y = np.stack([X[:, 3] > 0, X.mean(axis=1) > 0, X[:, -1] < 0], axis=1).astype(int)
    model = rc.SequenceClassifier(**options).fit(X[:90], y[:90])
    found = model.predict(X[90:])
    assert found.shape == (30, 3)
    assert (found == y[90:]).mean() > 0.75
    np.testing.assert_array_equal(found, model.predict_proba(X[90:]) > 0.5)
    model.save(tmp_path)
    np.testing.assert_array_equal(rc.SequenceClassifier.load(tmp_path).predict(X[90:]), found)


# ---------------------------------------------------------------------------------------------------- partial_fit


def test_partial_fit_goes_on_with_the_optimizer():
    X, y = bumps(32, 12)
    model = rc.SequenceClassifier(**NETWORK).partial_fit(X, y, classes=[0, 1])
    first = model._optimizer
    steps = {float(state["step"]) for state in first.state.values()}
    before = model.predict_proba(X)
    model.partial_fit(X[:16], y[:16])
    assert model._optimizer is first
    assert {float(state["step"]) for state in first.state.values()} == {step + 1 for step in steps}
    assert model.n_iter_ == 2
    assert not np.allclose(model.predict_proba(X), before)
    with pytest.raises(InputError, match=r"y\[0\]: got .*7.*one of the classes"):
        model.partial_fit(X[:1], [7])


def test_partial_fit_learns():
    X = bumps(64, 12)[0]
    model = rc.SequenceRegressor("gru", hidden_size=12, random_state=0)
    losses = [model.partial_fit(X, X.mean(axis=1)).history_[-1]["loss"] for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]


# ---------------------------------------------------------------------------------------------------- probabilities


def test_probabilities_are_calibrated():
    random = np.random.default_rng(0)
    X, chance = random.normal(size=(900, 8)), random.random(900)
    X[:, 4] += 2 * chance
    y = (random.random(900) < chance).astype(int)
    model = rc.SequenceClassifier(**QUICK).fit(X[:300], y[:300])
    found = model.predict_proba(X[300:])[:, 1]
    for low, high in ((0.0, 0.4), (0.4, 0.6), (0.6, 1.0)):
        inside = (found >= low) & (found < high)
        assert inside.sum() > 30
        assert abs(found[inside].mean() - y[300:][inside].mean()) < 0.1


def test_few_sequences_that_are_told_apart_do_not_make_certain():
    random = np.random.default_rng(519)
    X, y = random.normal(size=(440, 30)), np.arange(440) % 2
    X[:, -1] += 3 * y
    model = rc.SequenceClassifier(**QUICK).fit(X[:40], y[:40])
    found = model.predict_proba(X[40:])
    right = model.score(X[40:], y[40:])
    assert abs(found.max(axis=1).mean() - right) < 0.06
    assert -np.log(found[np.arange(400), y[40:]]).mean() < 0.5


@pytest.mark.slow
def test_scikit_learn_calibrates_a_network():
    X, y = bumps(60, 12)
    model = CalibratedClassifierCV(rc.SequenceClassifier(**NETWORK), cv=2).fit(X, y)
    assert model.predict_proba(X).shape == (60, 2)


# ---------------------------------------------------------------------------------------------------- explanations


def test_explanation_finds_the_part_that_decides():
    X = np.random.default_rng(0).normal(size=(40, 50))
    X[::2, 30:38] += 4 * np.sin(np.arange(8) * np.pi / 2)
    model = rc.SequenceClassifier(**QUICK).fit(X, np.where(np.arange(40) % 2, "noise", "wave"))
    found = model.explain(X[0])
    assert found.prediction == "wave"
    assert 28 <= int(found.importance.argmax()) <= 40
    assert found.importance.shape == (50,)
    assert "Predicted: wave" in str(found)
    assert found.figure().data[0].z[0][34] == pytest.approx(found.importance[34])
    with pytest.raises(InputError, match="windows: got 0"):
        model.explain(X[0], windows=0)


def test_a_report_shows_what_random_features_answer(tmp_path):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(30, 20, 2)), np.arange(30) % 2
    X[y == 1, 5:9] += 2
    classifier = rc.SequenceClassifier(effort="quick", random_state=0).fit(X, y)
    page = rc.report(classifier, (X, y), tmp_path / "classes.html").read_text()
    assert all(word in page for word in ("Predictions", "What decides", "log-odds", "written out", "effort"))
    assert "Predictions" not in rc.report(classifier, X, tmp_path / "unknown.html").read_text()
    regressor = rc.SequenceRegressor(effort="quick", random_state=0).fit(X, X.mean((1, 2)))
    assert "What decides" in rc.report(regressor, X, tmp_path / "numbers.html").read_text()
    with pytest.raises(InputError, match="random features"):
        rc.inspect.gradient_flow(classifier, X)


@pytest.mark.parametrize("steps", [1, 2, 7, 50])
def test_hidden_parts_cover_the_sequence(steps):
    x = np.random.default_rng(0).normal(size=(steps, 2))
    hidden, bounds = occlude(x, 24)
    covered = np.zeros(steps, dtype=bool)
    for one, (start, end) in zip(hidden, bounds, strict=True):
        outside = np.r_[0:start, end:steps]
        np.testing.assert_array_equal(one[outside], x[outside])
        covered[start:end] = True
    assert covered.all()


def test_same_seed_same_features(model):
    torch.manual_seed(5)
    again = clone(model).fit(*bumps())
    np.testing.assert_array_equal(again.predict_proba(bumps()[0]), model.predict_proba(bumps()[0]))
    other = rc.SequenceClassifier(effort="quick", random_state=1).fit(*bumps())
    assert not np.array_equal(other.predict_proba(bumps()[0]), model.predict_proba(bumps()[0]))
