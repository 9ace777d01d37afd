"""ONNX files of estimators, run in onnxruntime on raw data of lengths and batch sizes they were not written for."""

from pathlib import Path

import numpy as np
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
