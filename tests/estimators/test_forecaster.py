"""The forecaster: better than naive where something can be learned, honest intervals, covariates, tables, folders."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import recurra as rc
from recurra.errors import InputError, RecurraError, ShapeError

QUICK = {"cell": "gru", "hidden_size": 8, "horizon": 4, "epochs": 3, "random_state": 0}


def autoregression(steps: int, seed: int = 0) -> np.ndarray:
    """y_t = 0.8 y_{t-1} + noise, in other units: the best forecast falls back to the mean, naive ones do not."""
    random, y = np.random.default_rng(seed), [0.0]
    for _ in range(steps + 50):
        y.append(0.8 * y[-1] + random.normal())
    return 5000 + 100 * np.array(y[-steps:])


def shops(start: int, stop: int, actual: bool = True) -> dict[str, np.ndarray]:
    """Ten shops whose sales rise by a third on promotions, and by a tenth times their `kind` at any time."""
    random, steps = np.random.default_rng(0), 72
    months = np.arange("2015-01", "2021-01", dtype="datetime64[M]")[:steps].astype("datetime64[us]")
    columns: dict[str, list] = {"unique_id": [], "ds": [], "y": [], "promotion": [], "kind": []}
    for k in range(10):
        size, promotion = random.uniform(10, 1000), random.integers(0, 2, steps)
        season = 0.2 * np.sin(2 * np.pi * np.arange(steps) / 12)
        y = size * (1 + 0.1 * (k % 3) + season + 0.33 * promotion + 0.02 * random.normal(size=steps))
        rows = {
            "unique_id": [f"shop{k}"] * steps,
            "ds": months,
            "y": y,
            "promotion": promotion,
            "kind": [k % 3] * steps,
        }
        for name, values in rows.items():
            columns[name] += list(values)[start:stop]
    if not actual:
        del columns["y"]
    return {name: np.array(values, dtype=object if name == "unique_id" else None) for name, values in columns.items()}


@pytest.fixture(scope="module")
def for_shops() -> rc.Forecaster:
    model = rc.Forecaster(
        "gru",
        horizon=6,
        season=12,
        hidden_size=16,
        epochs=12,
        known=("promotion",),
        static=("kind",),
        random_state=0,
    )
    return model.fit(pa.table(shops(0, 60)))


# ---------------------------------------------------------------------------------------------------- quality


@pytest.mark.slow
def test_autoregression_is_learned_and_intervals_hold_what_they_promise():
    y = autoregression(2400)
    model = rc.Forecaster("gru", horizon=4, hidden_size=16, epochs=20, random_state=0).fit(y[:1400])
    found = model.backtest(y, windows=990, step=1).scores
    origins = np.arange(2400 - 4 - 989, 2400 - 3)
    best = 5000 + 0.8 ** np.arange(1, 5) * (y[origins - 1, None] - 5000)
    error = np.abs(best - y[origins[:, None] + np.arange(4)]).mean()

    assert error < found["model"]["MAE"] < 1.03 * error < 0.95 * found["naive"]["MAE"]
    assert found["model"]["CRPS"] < 0.73 * error  # a normal forecast's CRPS is 1/√2 of its absolute error
    for level in (0.8, 0.9, 0.95):
        assert found["model"][f"inside {level:.0%}"] == pytest.approx(level, abs=0.04)


def test_known_covariates_are_used(for_shops):
    scores = for_shops.backtest(shops(0, 66), windows=1).scores
    # Promotions fall like coins, so a model that does not see them has about the seasonal naive error.
    assert scores["model"]["MASE"] < 0.4 * scores["seasonal naive"]["MASE"]
    future = shops(60, 66, actual=False)
    without = for_shops.predict(6, future=future | {"promotion": np.zeros(60)})["y"].to_numpy()
    on_offer = for_shops.predict(6, future=future | {"promotion": np.ones(60)})["y"].to_numpy()
    assert 1.15 < np.median(on_offer / without) < 1.5


def test_a_table_gives_a_table(for_shops):
    future = pa.table(shops(60, 66, actual=False))
    found = for_shops.predict(future=future)
    assert found.column_names == ["unique_id", "ds", "y"]
    assert found["ds"].to_pylist()[:6] == future["ds"].to_pylist()[:6]
    assert found["unique_id"].to_pylist() == future["unique_id"].to_pylist()
    interval = for_shops.predict_interval(level=0.8, future=future)
    assert (interval["lower"].to_numpy() <= found["y"].to_numpy()).all()
    assert (interval["upper"].to_numpy() >= found["y"].to_numpy()).all()
    quantiles = for_shops.predict_quantiles(levels=[0.1, 0.5], future=future)
    np.testing.assert_array_equal(quantiles["q0.1"], interval["lower"])
    np.testing.assert_array_equal(quantiles["q0.5"], found["y"])


def test_a_series_never_seen_is_scaled_by_its_own_past(for_shops):
    table, future = shops(0, 60), shops(60, 66, actual=False)
    named = future | {"unique_id": "new " + future["unique_id"]}
    renamed = table | {"unique_id": "new " + table["unique_id"]}
    small = for_shops.predict(data=renamed, future=named)["y"].to_numpy()
    large = for_shops.predict(data=renamed | {"y": 1000 * table["y"]}, future=named)["y"].to_numpy()
    np.testing.assert_allclose(large, 1000 * small, rtol=1e-4)
    np.testing.assert_allclose(small, for_shops.predict(future=future)["y"].to_numpy(), rtol=0.05)


# ---------------------------------------------------------------------------------------------------- forms


def test_arrays_give_arrays():
    y = autoregression(80)
    one = rc.Forecaster(**QUICK).fit(y)
    assert one.predict().shape == (4,)
    assert one.predict(9).shape == (9,)
    assert one.predict_quantiles(3, [0.1, 0.5, 0.9]).shape == (3, 3)
    lower, upper = one.predict_interval(5, level=0.9)
    assert (lower < upper).all()
    several = rc.Forecaster(**QUICK).fit([y, y[:50] + 1, y[20:]])
    assert several.predict(2).shape == (3, 2)
    np.testing.assert_array_equal(rc.Forecaster(**QUICK).fit(y[None]).predict()[0], one.predict())


def test_the_end_of_the_past_is_what_counts():
    y = autoregression(120)
    model = rc.Forecaster(**QUICK, context=20).fit(y)
    np.testing.assert_allclose(model.predict(data=y), model.predict(), rtol=1e-12)
    np.testing.assert_allclose(model.predict(data=y[-20:]), model.predict(), rtol=1e-12)
    assert not np.allclose(model.predict(data=y[:-1]), model.predict())


def test_backtest_forecasts_without_looking_ahead():
    y = autoregression(90)
    model = rc.Forecaster(**QUICK).fit(y[:60])
    changed = y.copy()
    changed[86:] += 1e4
    found, other = (model.backtest(data, windows=1) for data in (y, changed))
    expected = model.predict(data=y[:86])
    assert found.scores["model"]["MAE"] == pytest.approx(np.abs(expected - y[86:]).mean(), rel=1e-9)
    assert other.scores["model"]["MAE"] == pytest.approx(np.abs(expected - changed[86:]).mean(), rel=1e-9)
    assert found.scores["naive"]["MAE"] == pytest.approx(np.abs(y[85] - y[86:]).mean(), rel=1e-9)
    assert model.score(y) == pytest.approx(1 - found.scores["model"]["MAE"] / found.scores["naive"]["MAE"])
    assert "naive" in str(found)
    assert "inside 90%" in str(found)


def test_same_seed_same_forecast():
    y = autoregression(80)
    first = rc.Forecaster(**QUICK).fit(y)
    np.testing.assert_array_equal(clone(first).fit(y).predict(), first.predict())
    every = clone(first).set_params(validation=0)  # uses the network, whatever it has learned
    again = clone(every).set_params(random_state=1)
    assert not np.array_equal(again.fit(y).predict(), every.fit(y).predict())


def test_short_series_are_learned_but_not_calibrated():
    model = rc.Forecaster(**QUICK).fit(autoregression(9))
    assert not model.calibrated_
    assert model.predict().shape == (4,)


# ---------------------------------------------------------------------------------------------------- the folder


def test_it_comes_back_and_goes_on(for_shops, tmp_path):
    for_shops.save(tmp_path)
    future = pa.table(shops(60, 66, actual=False))
    back = rc.Forecaster.load(tmp_path)
    assert back.predict_quantiles(future=future).equals(for_shops.predict_quantiles(future=future))
    assert back.get_params() == for_shops.get_params()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["options"].update(hidden_size=17),
        lambda config: config["options"].update(cell="own_of_nobody"),
        lambda config: config["fitted"].update(lengths=[3]),
        lambda config: config["fitted"].update(unit="moons"),
        lambda config: config["fitted"].pop("context"),
    ],
)
def test_a_changed_folder_is_refused(change, tmp_path):
    rc.Forecaster(**QUICK).fit(autoregression(30)).save(tmp_path)
    rc.Forecaster.load(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    change(config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RecurraError):
        rc.Forecaster.load(tmp_path)


# ---------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"horizon": 0}, "horizon: got 0"),
        ({"quantiles": (0.1, 0.9)}, "0.5 among them"),
        ({"validation": 1.0}, "validation: got 1.0"),
        ({"known": ("price",)}, "a table with the columns price"),
    ],
)
def test_bad_options_are_named(change, words):
    with pytest.raises(InputError, match=words):
        rc.Forecaster(**QUICK | change).fit(autoregression(30))


def test_bad_data_is_named(for_shops):
    with pytest.raises(ShapeError, match="series of at most 5 steps, expected 6"):
        rc.Forecaster(**QUICK).fit(autoregression(5))
    with pytest.raises(InputError, match="future: got nothing, expected a table of promotion"):
        for_shops.predict(6)
    with pytest.raises(ShapeError, match="future: got 6 rows of 'shop0', expected 7"):
        for_shops.predict(7, future=shops(60, 66))
    with pytest.raises(InputError, match="did you mean 'promotion'"):
        rc.Forecaster(**QUICK, known=("promotions",)).fit(shops(0, 60))
    with pytest.raises(InputError, match="'promotion': got values that change within 'shop0'"):
        rc.Forecaster(**QUICK, static=("promotion",)).fit(shops(0, 60))
    with pytest.raises(InputError, match=r"level: got 0\.99, expected at most 0\.95"):
        for_shops.predict_interval(level=0.99)
    with pytest.raises(NotFittedError):
        rc.Forecaster().predict(3)


def test_nan_pads_series_and_marks_gaps():
    y = 10 + np.sin(np.arange(80) / 2)
    model = rc.Forecaster(horizon=4, hidden_size=4, epochs=1, random_state=0)
    rows = np.full((2, 100), np.nan)
    rows[0, 20:], rows[1, :50] = y, y[:50]  # short rows are padded, before or after
    np.testing.assert_array_equal(clone(model).fit(rows).predict(), clone(model).fit([y, y[:50]]).predict())
    gap, line = y.copy(), y.copy()
    gap[[30, 31]], line[[30, 31]] = np.nan, y[29] + (y[32] - y[29]) * np.array([1, 2]) / 3
    np.testing.assert_allclose(clone(model).fit(gap).predict(), clone(model).fit(line).predict())
    with pytest.raises(InputError, match=r"data\[1\].*at least one value"):
        model.fit([y, np.full(5, np.nan)])


# ---------------------------------------------------------------------------------------------------- real series


@pytest.mark.slow
@pytest.mark.shared_data
def test_electricity_against_naive_forecasts(shared_data):
    """ETTh1, oil temperature: a year to learn from, a day ahead on each of a hundred days after it."""
    y = np.genfromtxt(shared_data / "ett" / "ETTh1.csv", delimiter=",", skip_header=1, usecols=7)
    model = rc.Forecaster("gru", horizon=24, season=24, context=96, epochs=12, max_windows=1000, random_state=0)
    found = model.fit(y[: 360 * 24]).backtest(y[: 480 * 24], windows=100).scores
    assert found["model"]["MAE"] < 0.8 * found["seasonal naive"]["MAE"]
    assert found["model"]["MAE"] < 0.98 * found["naive"]["MAE"]
    assert found["model"]["CRPS"] < 0.8 * found["naive"]["CRPS"]
    assert found["model"]["inside 90%"] == pytest.approx(0.9, abs=0.04)


@pytest.mark.slow
@pytest.mark.shared_data
def test_sunspots_with_intervals(shared_data):
    """Yearly, eighty years ahead of what was learned, in which the sun was more active than ever before."""
    y = np.loadtxt(shared_data / "sunspots" / "sunspots.csv", delimiter=",", skiprows=1)[:, 1]
    model = rc.Forecaster("gru", horizon=8, season=11, context=44, random_state=0).fit(y[:-80])
    found = model.backtest(y, windows=73, step=1).scores
    assert found["model"]["CRPS"] < 0.8 * found["seasonal naive"]["CRPS"]
    assert found["model"]["inside 95%"] > 0.88
