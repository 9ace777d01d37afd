"""ONNX files of estimators, run in onnxruntime on raw data of lengths and batch sizes they were not written for."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

import recurra as rc
from recurra.estimators.forecast_export import ForecastModule
from recurra.estimators.forecaster import LEVELS

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


def shops(steps: int, random: np.random.Generator) -> dict[str, list]:
    """Three shops with text, numbers, two targets; what each row needs of the past and of the future."""
    rows = []
    for k, name in enumerate(["north", "south", "west"]):
        weather = random.choice(["sun", "rain", "snow"], steps)
        visitors = 50 * (k + 1) + np.cumsum(random.normal(size=steps))
        offer = random.choice(["none", "half"], steps)
        sold = 100 * (k + 1) * (1 + 0.3 * (offer == "half")) + np.roll(visitors, 1) + random.normal(size=steps)
        back = 0.1 * sold + 3 * (weather == "rain") + random.normal(size=steps)
        kind = "city" if k else "village"
        each = zip(range(steps), offer, weather, visitors, sold, back, strict=True)
        rows += [(name, t, str(o), str(w), v, s, b, kind) for t, o, w, v, s, b in each]
    names = ["unique_id", "ds", "offer", "weather", "visitors", "sold", "back", "kind"]
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def forecaster_of_shops(targets: tuple[str, ...]) -> tuple[rc.Forecaster, dict, np.ndarray]:
    """A fitted forecaster, what its file reads to forecast two of the shops, and what it says itself of them."""
    steps, horizon, order = 46, 3, [2, 0]
    every = shops(steps + horizon, np.random.default_rng(3))
    is_past = np.array(every["ds"]) < steps
    past, future = (
        {name: list(np.array(v, dtype=object)[rows]) for name, v in every.items()} for rows in (is_past, ~is_past)
    )
    about = {"known": ("offer",), "static": ("kind",), "observed": ("weather", "visitors")}
    model = rc.Forecaster(horizon=horizon, season=7, **about, validation=0, **QUICK).fit(past, targets)
    categories = model.past_.covariates.categories

    def columns(table: dict, names: tuple[str, ...], of: int) -> np.ndarray:
        """(T, B, columns)."""
        codes = {name: {value: k + 1 for k, value in enumerate(values)} for name, values in categories.items()}
        rows = [[codes.get(name, {}).get(v, v) for v in table[name]] for name in names]
        return np.array(rows, dtype=np.float32).reshape(len(names), 3, of)[:, order].transpose(2, 1, 0)

    values = columns(past, targets, steps)
    feed = {
        "past": values if len(targets) > 1 else values[:, :, 0],
        "lengths": np.array([steps, steps]),
        "series": np.array(order),
        "known": np.concatenate([columns(past, ("offer",), steps), columns(future, ("offer",), horizon)]),
        "observed": columns(past, ("weather", "visitors"), steps),
    }
    table = model.predict_quantiles(future={name: future[name] for name in ("unique_id", "ds", "offer")})
    prefixes = [f"{name} " for name in targets] if len(targets) > 1 else [""]
    found = [[np.array(table[f"{of}q{level:g}"]).reshape(3, horizon)[order] for of in prefixes] for level in LEVELS]
    expected = np.array(found).transpose(2, 3, 1, 0)  # (B, horizon, targets, Q)
    return model, feed, expected if len(targets) > 1 else expected[:, :, 0]


@pytest.mark.parametrize("targets", [("sold", "back"), ("sold",)])
def test_the_module_of_a_file_reads_texts_observed_columns_and_several_targets(targets):
    model, feed, expected = forecaster_of_shops(targets)
    with torch.no_grad():
        found = ForecastModule(model).eval()(**{name: torch.from_numpy(value) for name, value in feed.items()})
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.slow
def test_a_forecaster_with_texts_observed_columns_and_several_targets_as_a_file(tmp_path):
    model, feed, expected = forecaster_of_shops(("sold", "back"))
    path = model.export(tmp_path / "model.onnx")
    np.testing.assert_allclose(forecasts(path, feed), expected, rtol=1e-5)
    facts = {entry.key: json.loads(entry.value) for entry in onnx.load(path).metadata_props}
    assert (facts["targets"], facts["series"]) == (["sold", "back"], ["north", "south", "west"])
    assert facts["categories"] == {k: list(v) for k, v in model.past_.covariates.categories.items()}


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
