"""ONNX files of estimators, run in onnxruntime on raw data of lengths and batch sizes they were not written for."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import recurra as rc

RANDOM = np.random.default_rng(0)
X = [5 + 3 * RANDOM.normal(size=(t, 3)) for t in RANDOM.integers(4, 9, 16)]
QUICK = {"hidden_size": 5, "epochs": 2, "random_state": 0}


def run(path: Path, series: list[np.ndarray]) -> np.ndarray:
    lengths = np.array([len(x) for x in series])
    padded = np.full((lengths.max(), len(series), 3), 99.0, dtype=np.float32)  # padding must not matter
    for k, x in enumerate(series):
        padded[: len(x), k] = x
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": padded, "lengths": lengths})[0])


@pytest.mark.parametrize("pool", ["mean", "last", "max"])
def test_a_classifier_as_a_file(pool, tmp_path):
    model = rc.SequenceClassifier("mgu", pool=pool, bidirectional=True, **QUICK).fit(X, ["no", "yes"] * 8)
    path = model.export(tmp_path / "model.onnx")
    for series in (X, X[:1], [np.concatenate(X[:4]), *X[3:6]]):
        np.testing.assert_allclose(run(path, series), model.predict_proba(series), atol=2e-6)


def test_a_regressor_as_a_file(tmp_path):
    model = rc.SequenceRegressor("lstm", **QUICK).fit(X, 100 + 7 * RANDOM.normal(size=(16, 2)))
    path = model.export(tmp_path / "model.onnx")
    for series in (X, X[:1], [np.concatenate(X[:4]), *X[3:6]]):
        np.testing.assert_allclose(run(path, series), model.predict(series), rtol=2e-6)


# ---------------------------------------------------------------------------------------------------- forecasts


def forecasts(path: Path, feed: dict) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0])


def padded(series: list[np.ndarray]) -> np.ndarray:
    """(T, B), with nonsense past the ends."""
    rows = np.full((max(map(len, series)), len(series)), 1e6, dtype=np.float32)
    for k, y in enumerate(series):
        rows[: len(y), k] = y
    return rows


def test_a_forecaster_of_one_series_as_a_file(tmp_path):
    y = 500 + 30 * np.sin(np.arange(90) / 2) + RANDOM.normal(size=90)
    model = rc.Forecaster("gru", horizon=5, season=(4, 12), context=30, validation=0, **QUICK).fit(y)
    path = model.export(tmp_path / "model.onnx")
    pasts = [y, y[:70], y[:30], y[5:19], y[:7]]  # longer than the context, as long, shorter, shorter than a season
    found = forecasts(path, {"past": padded(pasts), "lengths": np.array([len(p) for p in pasts])})
    expected = np.stack([model.predict_quantiles(data=past) for past in pasts])
    np.testing.assert_allclose(found, expected, rtol=3e-6)
    facts = {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}
    assert facts["levels"] == list(model.quantiles)
    assert facts["horizon"] == 5


def test_a_forecaster_with_covariates_as_a_file(tmp_path):
    names, steps = [f"shop{k}" for k in range(4)], 40
    offer = RANDOM.integers(0, 2, (4, steps + 3)).astype(float)
    y = [100 * (k + 1) * (1 + 0.3 * offer[k, :steps]) + RANDOM.normal(size=steps) for k in range(4)]

    def table(columns: np.ndarray, **more: list) -> dict:
        rows = columns.shape[1]
        ids = np.repeat(names, rows).astype(object)
        return {"unique_id": ids, "ds": np.tile(np.arange(rows), 4), "offer": columns.ravel(), **more}

    data = table(offer[:, :steps], y=np.concatenate(y), kind=np.repeat(np.arange(4.0), steps))
    model = rc.Forecaster(horizon=3, season=7, known=("offer",), static=("kind",), **QUICK).fit(data)
    path = model.export(tmp_path / "model.onnx")
    feed = {
        "past": padded([y[2], y[0]]),
        "lengths": np.array([steps, steps]),
        "series": np.array([2, 0]),
        "known": offer[[2, 0]].T[:, :, None].astype(np.float32),
    }
    ahead = table(offer[:, steps:])
    expected = model.predict_quantiles(future=ahead | {"ds": ahead["ds"] + steps})
    levels = [expected[f"q{level:g}"].to_numpy().reshape(4, 3)[[2, 0]] for level in model.quantiles]
    np.testing.assert_allclose(forecasts(path, feed), np.stack(levels, axis=-1), rtol=3e-6)


def test_outputs_have_names(tmp_path):
    X = np.random.default_rng(0).normal(size=(6, 4, 2))
    small = {"hidden_size": 3, "epochs": 1}
    models = {
        "probabilities": rc.SequenceClassifier(**small).fit(X, ["a", "b"] * 3),
        "log_probabilities": rc.LanguageModelEstimator(**small, batch_size=2).fit("to be or not to be\n" * 5),
    }
    for name, model in models.items():
        graph = onnx.load(model.export(tmp_path / f"{name}.onnx")).graph
        assert graph.output[0].name == name
        states = [given.name for given in graph.input if given.name.startswith("state")]
        assert [output.name for output in graph.output[1:]] == [f"next_{state}" for state in states]
