"""Measurements take fitted estimators and the data that their `predict` takes."""

import numpy as np
import pytest
import torch

import recurra as rc

SMALL = {"hidden_size": 3, "epochs": 1, "random_state": 0}
X = np.random.default_rng(0).normal(size=(6, 9, 2))  # (n, T, D)
Y = ["a", "b"] * 3
WAVE = np.sin(np.arange(60.0))
SENTENCES = [["the", "cat", "sat"], ["a", "dog", "ran"]]
TEXT = "the cat sat on the mat\n" * 10


def fitted() -> dict:
    return {
        "classifier": (rc.SequenceClassifier("gru", **SMALL).fit(X, Y), (X, Y)),
        "regressor": (rc.SequenceRegressor("gru", **SMALL).fit(X, X.sum(axis=(1, 2))), X),
        "forecaster": (rc.Forecaster("gru", horizon=3, **SMALL).fit(WAVE), WAVE),
        "tagger": (rc.SequenceTagger("gru", **SMALL).fit(SENTENCES, [["D", "N", "V"]] * 2), SENTENCES),
        "language": (rc.LanguageModelEstimator("gru", **SMALL, batch_size=2).fit(TEXT), TEXT),
    }


def test_every_estimator_is_measured():
    for model, data in fitted().values():
        assert rc.inspect.gradient_flow(model, data).summary()
        assert rc.inspect.weight_spectrum(model).summary()
        assert rc.inspect.health(model, data).summary()


def test_the_layout_is_that_of_the_estimator():
    """(n, T, D): the same as the network on scaled sequences (T, n, D)."""
    model, _ = fitted()["regressor"]
    scaled = torch.tensor(np.stack([model.input_scaling_.apply(x) for x in X]), dtype=torch.float32).transpose(0, 1)
    ours = rc.inspect.gate_activity(model, X).summary()
    assert ours == rc.inspect.gate_activity(model.network_, scaled).summary()


def test_what_is_no_model_is_named():
    with pytest.raises(rc.InputError, match="a fitted estimator"):
        rc.inspect.gradient_flow(3, X)
