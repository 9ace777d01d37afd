"""Folders that recurra 0.1.0 wrote load, and predict what they predicted then."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.problem import load_problem

FOLDER = Path(__file__).parent / "fixtures" / "v0_1_0"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
specification = importlib.util.spec_from_file_location("make_v0_1_0", FOLDER / "make.py")
assert specification is not None
assert specification.loader is not None
made = importlib.util.module_from_spec(specification)
specification.loader.exec_module(made)

MODELS = {
    "classifier": (rc.SequenceClassifier, lambda model: model.predict_proba(made.X)),
    "regressor": (rc.SequenceRegressor, lambda model: model.predict(made.X)),
    "forecaster": (rc.Forecaster, lambda model: model.predict()),
    "tagger_estimator": (rc.SequenceTagger, lambda model: model.predict_proba(made.SENTENCES)),
    "language_estimator": (rc.LanguageModelEstimator, lambda model: model.measure(made.TEXT)["nats"]),
    "language_model": (rc.models.LanguageModel, lambda model: model.measure(made.TEXT)["nats"]),
    "tagger": (rc.models.Tagger, lambda model: model.probabilities(made.SENTENCES)),
    "command_line": (rc.SequenceClassifier, lambda model: model.predict_proba(made.X)),
}


def assert_close(found, expected) -> None:
    if isinstance(expected, list) and isinstance(found, list):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_loads_and_is_saved_in_the_present_format(tmp_path, name):
    kind, predict = MODELS[name]
    model = kind.load(FOLDER / name)
    assert_close(predict(model), EXPECTED[name])
    shutil.copytree(FOLDER / name, tmp_path / name)
    model.save(tmp_path / name)
    assert json.loads((tmp_path / name / "config.json").read_text())["format"] == 2
    assert_close(predict(kind.load(tmp_path / name)), EXPECTED[name])


def test_the_schema_of_a_model_of_the_command_line():
    schema, metric = load_problem(FOLDER / "command_line", "classify")
    assert (schema["id"], schema["target"], metric) == ("unique_id", "label", "accuracy")


def test_an_estimator_saved_over_it_has_no_schema(tmp_path):
    shutil.copytree(FOLDER / "command_line", tmp_path / "model")
    rc.SequenceClassifier.load(FOLDER / "classifier").save(tmp_path / "model")
    assert load_problem(tmp_path / "model", "classify") == ({}, None)


def test_a_checkpoint_loads_and_resumes(tmp_path):
    net = rc.train.load_weights(made.Net(), FOLDER / "checkpoints", "last")
    assert_close(net(torch.ones(4, 1, 2)).tolist(), EXPECTED["checkpoints"])
    shutil.copytree(FOLDER / "checkpoints", tmp_path / "run")
    result = rc.train.fit(made.Net(), made.batches(), made.batches(), epochs=2, checkpoints=tmp_path / "run")
    assert [record["epoch"] for record in result.history] == [0, 1]
