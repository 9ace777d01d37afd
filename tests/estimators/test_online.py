"""Online estimators: they learn, the order of features does not matter, a prediction changes nothing; the command."""

import copy
import csv
import io
import json
import math
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from typer.testing import CliRunner

import recurra as rc
from recurra.cli.app import app
from recurra.estimators import prequential
from recurra.estimators.online import ALGORITHMS


def wave(steps: int):
    return ((({"a": math.cos(t / 5), "b": 1.0}), math.sin(t / 3)) for t in range(steps))


@pytest.mark.parametrize("algorithm", [pytest.param("rtrl", marks=pytest.mark.slow), "snap1"])
def test_a_forecaster_beats_the_last_value(algorithm: str) -> None:
    found = prequential(rc.OnlineForecaster(hidden_size=16, lr=3e-3, algorithm=algorithm), wave(600))
    assert found.recent[-1] < 0.7 * found.recent_naive[-1]
    assert "600 steps" in found.summary()
    assert len(found.figure().data) == 2


def test_a_prediction_changes_nothing() -> None:
    quiet, asked = (rc.OnlineForecaster(hidden_size=4) for _ in range(2))
    for x, y in wave(20):
        asked.predict_one(x), asked.predict_one(x)
        quiet.learn_one(x, y), asked.learn_one(dict(reversed(x.items())), y)
    x = {"a": 0.3, "b": 1.0}
    assert quiet.predict_one(x) == asked.predict_one(x)


def test_a_prediction_is_that_of_the_network_with_its_state() -> None:
    """The learner's own forward pass against the layer run over all inputs, weights fixed by a tiny rate."""
    model = rc.OnlineForecaster(hidden_size=4, lr=1e-30)
    for x, y in wave(15):
        model.learn_one(x, y)
    network = model.learner_.model
    given = torch.randn(1, 1, 3)
    state = model.learner_.tracker.influence.state.view(1, 1, 4)
    expected = network(given, state)[0]
    torch.testing.assert_close(model.learner_.predict(given), expected.detach(), rtol=1e-5, atol=1e-6)


def test_a_forecast_goes_on_by_itself() -> None:
    model = rc.OnlineForecaster(hidden_size=8)
    with pytest.raises(rc.InputError, match="after the first"):
        model.forecast(3)
    model.learn_many(({}, float(t % 2)) for t in range(200))
    found = model.forecast(4)
    assert found[0] == pytest.approx(model.predict_one(), rel=1e-5)
    assert len(found) == 4


def test_a_classifier_learns_a_period() -> None:
    model = rc.OnlineClassifier(classes=("a", "b", "c"), hidden_size=8, lr=0.01)
    assert model.predict_proba_one() == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    found = prequential(model, (({}, "aabc"[t % 4]) for t in range(400)), window=50)
    assert found.recent[-1] < 0.1
    assert sum(model.predict_proba_one().values()) == pytest.approx(1)


def test_classes_are_known_as_the_stream_shows_them() -> None:
    model = rc.OnlineClassifier(3, hidden_size=8, lr=0.01)
    assert model.predict_one() is None
    model.learn_one({}, "b")
    assert model.predict_proba_one() == {"b": 1.0}
    found = prequential(model, (({}, "bbac"[t % 4]) for t in range(400)), window=50)
    assert found.recent[-1] < 0.1
    assert model.classes_ == ["b", "a", "c"]
    before = [p.clone() for p in model.learner_.model.parameters()]
    with pytest.raises(rc.InputError, match="first 3 classes"):
        model.learn_one({}, "d")
    assert all(torch.equal(a, b) for a, b in zip(before, model.learner_.model.parameters(), strict=True))
    with pytest.raises(rc.InputError, match="classes"):
        rc.OnlineClassifier(1).learn_one({}, "a")


def test_classes_in_advance_and_as_they_come_are_the_same_network() -> None:
    named, met = rc.OnlineClassifier(("a", "b", "c"), hidden_size=4), rc.OnlineClassifier(3, hidden_size=4)
    steps = list(classes(30))  # a comes first, then b, then c
    named.learn_many(steps), met.learn_many(steps)
    assert met.predict_proba_one(steps[0][0]) == named.predict_proba_one(steps[0][0])


def test_bad_steps_are_refused() -> None:
    model = rc.OnlineForecaster(hidden_size=4).learn_one({"a": 1.0}, 2.0)
    for x, y in (({"b": 1.0}, 1.0), ({"a": math.nan}, 1.0), ({"a": 1.0}, math.inf), ({"a": 1.0}, "x"), ([1.0], 1.0)):
        with pytest.raises(rc.InputError):
            model.learn_one(x, y)
    with pytest.raises(rc.InputError, match="classes"):
        rc.OnlineClassifier(classes=("a",)).learn_one({}, "a")
    with pytest.raises(rc.UnknownNameError, match="snap1"):
        rc.OnlineForecaster(algorithm="snap").learn_one({}, 1.0)


def classes(steps: int):
    return (({"a": math.cos(t / 5), "b": 1.0}, "aabc"[t % 4]) for t in range(steps))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("model", "stream"),
    [(rc.OnlineForecaster(), wave), (rc.OnlineClassifier(("a", "b", "c")), classes), (rc.OnlineClassifier(4), classes)],
    ids=["forecaster", "classifier", "classes as they come"],
)
def test_a_saved_model_goes_on_bit_equal(model, stream, algorithm: str, tmp_path) -> None:
    model = clone(model).set_params(hidden_size=4, algorithm=algorithm, lr=0.01)
    whole, stopped = clone(model), clone(model)
    steps = list(stream(30))
    whole.learn_many(steps), stopped.learn_many(steps[:17])
    stopped.save(tmp_path)
    resumed, pickled, copied = rc.load(tmp_path), pickle.loads(pickle.dumps(stopped)), copy.copy(stopped)
    assert type(resumed) is type(model)
    for x, y in steps[17:]:
        assert resumed.predict_one(x) == stopped.predict_one(x)
        resumed.learn_one(x, y), stopped.learn_one(x, y), pickled.learn_one(x, y)
    copied.learn_many(steps[17:])  # after the original, which it does not share
    for other in (stopped, resumed, pickled, copied):
        pairs = zip(whole.learner_.model.parameters(), other.learner_.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
        assert (other.steps_, other.learner_.steps) == (30, whole.learner_.steps)
        assert other.scaling_.scale.tolist() == whole.scaling_.scale.tolist()


def test_a_changed_folder_is_refused(tmp_path) -> None:
    with pytest.raises(rc.InputError, match="first learn_one"):
        rc.OnlineForecaster().save(tmp_path)
    rc.OnlineForecaster(hidden_size=4).learn_many(wave(3)).save(tmp_path)
    with pytest.raises(rc.ModelFileError, match="OnlineClassifier"):
        rc.OnlineClassifier.load(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["checksum"]

    def changed(**entries) -> None:
        (tmp_path / "config.json").write_text(json.dumps(config | entries))

    changed(options=config["options"] | {"hidden_size": 5})
    with pytest.raises(rc.WeightsMismatchError):
        rc.load(tmp_path)
    changed(options=config["options"] | {"hidden_size": 10**6})
    with pytest.raises(rc.WeightsMismatchError):
        rc.load(tmp_path)
    fitted, stream = config["fitted"], config["fitted"]["stream"]
    for wrong in (None, {**stream, "mean1": stream["mean0"]}, {**stream, "learner": {"optimizer": 1}}):
        changed(fitted=fitted | {"stream": wrong})
        with pytest.raises(rc.ModelFileError, match="stream"):
            rc.load(tmp_path)
    moments = stream["learner"]["optimizer"]["state"]["dict"]
    moments[0][1]["exp_avg"] = stream["mean0"]
    changed(fitted=fitted)
    with pytest.raises(rc.ModelFileError, match="exp_avg"):
        rc.load(tmp_path)


def test_the_command_reads_standard_input() -> None:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["name", "a", "y"])
    rows.writerows([["k", math.cos(t / 5), math.sin(t / 3)] for t in range(60)])
    words = ["online", "-", "--ignore", "name", "--hidden-size", "4", "--every", "50"]
    done = CliRunner().invoke(app, words, input=text.getvalue())
    assert done.exit_code == 0, done.output
    lines = list(csv.DictReader(io.StringIO(done.stdout)))
    assert len(lines) == 60
    assert float(lines[7]["target"]) == pytest.approx(math.sin(7 / 3))
    assert "60 steps: error" in done.stderr
    bad = CliRunner().invoke(app, words, input="name,a,y\nk,x,1\n")
    assert bad.exit_code != 0
    assert "line 2, column a" in bad.output


def test_the_command_goes_on_where_it_stopped(tmp_path) -> None:
    lines = ["a,y", *(f"{math.cos(t / 5)},{'aabc'[t % 4]}" for t in range(40))]
    folder = str(tmp_path / "model")

    def predictions(rows: list[str], *words: str) -> list[str]:
        done = CliRunner().invoke(app, ["online", "-", *words], input="\n".join([lines[0], *rows]))
        assert done.exit_code == 0, done.output
        return [row["prediction"] for row in csv.DictReader(io.StringIO(done.stdout))]

    options = ["--classes", "a,b,c", "--hidden-size", "4", "--lr", "0.03"]
    whole = predictions(lines[1:], *options)
    first = predictions(lines[1:26], *options, "--out", folder)
    assert first + predictions(lines[26:], "--resume", folder) == whole
    assert rc.load(folder).steps_ == 25
    met = predictions(lines[1:], "--classes", "3", *options[2:])
    assert met[0] == ""
    assert all(met[1:])
    refused = CliRunner().invoke(app, ["online", "-", "--resume", folder, "--hidden-size", "4"], input="a,y\n1,a\n")
    assert refused.exit_code != 0
    assert "--hidden-size" in refused.output


def test_inspection_reads_the_stream_as_learning_does(tmp_path):
    wave = np.sin(np.arange(60) / 5)
    stream = [({"x": float(value)}, float(value**2)) for value in wave]
    model = rc.OnlineForecaster(hidden_size=4).learn_many(stream)
    network, taken = model.inspection_inputs(stream)
    read = model._input(model._features(stream[7][0]), model.target_scaling_.apply(np.array([stream[6][1]])))
    assert torch.equal(taken.inputs[7], read[0])
    assert network is model.learner_.model
    assert rc.inspect.gradient_flow(model, stream).flows
    words = [({"x": float(value)}, "up" if value > 0 else "down") for value in wave]
    classifier = rc.OnlineClassifier(("up", "down"), hidden_size=4).learn_many(words)
    assert "Gradient flow" in rc.report(classifier, words, tmp_path / "page.html").read_text()
    with pytest.raises(rc.InputError, match="pairs"):
        rc.inspect.health(model, wave)
