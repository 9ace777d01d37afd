"""Covariates of forecasts: observed, known and static columns, of numbers and of text; several targets; dataframes."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import recurra as rc
from recurra.errors import InputError, ShapeError

QUICK = {"cell": "gru", "hidden_size": 8, "horizon": 4, "epochs": 3, "max_windows": 300, "random_state": 0}
EFFECTS = {"sun": 0.0, "rain": -3.0, "snow": 5.0}


def leading(steps: int, seed: int = 0) -> pd.DataFrame:
    """Sales that follow the visitors of five days before, and weather that nobody can forecast but everyone sees."""
    random = np.random.default_rng(seed)
    visitors = random.normal(size=steps + 5)
    weather = random.choice(list(EFFECTS), steps)
    sales = 50 + 10 * visitors[:-5] + np.array([EFFECTS[name] for name in weather]) + 0.5 * random.normal(size=steps)
    dates = pd.date_range("2020-01-01", periods=steps)
    return pd.DataFrame({"ds": dates, "sales": sales, "visitors": visitors[5:], "weather": weather})


def scores(model: rc.Forecaster, data: pd.DataFrame) -> float:
    return model.backtest(data, windows=40, step=1).scores["model"]["MAE"]


def test_observed_columns_and_text_known_in_advance_are_used():
    data = leading(360)
    past, known = {"observed": ("visitors",)}, {"known": ("weather",)}
    fitted = [rc.Forecaster(**QUICK, **more).fit(data[:300], "sales") for more in ({}, past, past | known)]
    blind, sees_visitors, sees_all = (scores(model, data) for model in fitted)
    assert blind > 7  # the deviation of the visitors alone is 10
    assert sees_visitors < 0.5 * blind
    assert sees_all < 0.5 * sees_visitors  # what is left is noise with an absolute error of 0.4
    assert [type(m).__name__ for m in fitted[2].network_.embedded.tables] == ["Embedding", "Embedding"]


def test_observed_values_after_the_origin_are_not_read():
    data = leading(120)
    model = rc.Forecaster(**QUICK, observed=("visitors",)).fit(data[:80], "sales")
    changed = data.copy()
    changed.loc[116:, "visitors"] += 100
    found, other = (model.backtest(frame, windows=1).quantiles for frame in (data, changed))
    np.testing.assert_array_equal(found, other)


def coupled(steps: int) -> np.ndarray:
    """(steps, 2): the second target repeats the first one three steps later."""
    first = np.cumsum(np.random.default_rng(0).normal(size=steps + 3))
    return np.column_stack([first[3:], first[:-3]])


def test_several_targets_are_forecast_from_the_past_of_all():
    y = coupled(400)
    model = rc.Forecaster(**QUICK).fit(y[None, :300])
    assert model.predict().shape == (1, 4, 2)
    assert model.predict_quantiles(3, [0.1, 0.5, 0.9]).shape == (1, 3, 2, 3)
    alone = rc.Forecaster(**QUICK).fit(y[:300, 1])
    together, single = model.backtest(y[None], windows=60, step=1), alone.backtest(y[:, 1], windows=60, step=1)
    errors = np.abs(together.actual - together.quantiles[..., 6])[1::2]  # of the second target
    assert errors[:, :3].mean() < 0.3 * np.abs(single.actual - single.quantiles[..., 6])[:, :3].mean()


def test_targets_go_on_together_beyond_the_horizon(tmp_path):
    y = coupled(300)
    model = rc.Forecaster(**QUICK).fit(y[None])
    far = model.predict_quantiles(16)[0]  # (16, 2, Q)
    np.testing.assert_allclose(far[:4], model.predict_quantiles()[0], rtol=1e-6)
    middle = far[..., 6]
    assert np.abs(middle[3:, 1] - middle[:-3, 0]).mean() < 1.0  # the second repeats the first, which moves by 3.3
    assert (far[-1, :, -1] - far[-1, :, 0] > 1.3 * (far[3, :, -1] - far[3, :, 0])).all()
    model.save(tmp_path)
    np.testing.assert_array_equal(rc.Forecaster.load(tmp_path).predict_quantiles(16)[0], far)


@pytest.fixture(scope="module")
def shops() -> pd.DataFrame:
    """Two shops of two kinds, with two targets, an observed number, a known text and a static text."""
    found = []
    for shop, kind in (("north", "city"), ("south", "country")):
        data = leading(90, len(shop)).rename(columns={"ds": "day"})
        found.append(data.assign(shop=shop, kind=kind, returns=0.1 * data["sales"] + 1))
    return pd.concat(found, ignore_index=True)


@pytest.fixture(scope="module")
def for_shops(shops) -> rc.Forecaster:
    columns = {"known": ("weather",), "static": ("kind",), "observed": ("visitors",)}
    return rc.Forecaster(**QUICK, **columns).fit(shops[shops["day"] < "2020-03-20"], ["sales", "returns"])


def after(shops: pd.DataFrame, steps: int = 4) -> pd.DataFrame:
    future = shops[shops["day"] >= "2020-03-20"].groupby("shop").head(steps)
    return future[["shop", "day", "weather"]]


def test_a_dataframe_gives_a_dataframe_with_a_column_per_target(shops, for_shops):
    found = for_shops.predict(future=after(shops))
    assert isinstance(found, pd.DataFrame)
    assert found.columns.tolist() == ["shop", "day", "sales", "returns"]
    assert found["shop"].tolist() == ["north"] * 4 + ["south"] * 4
    assert found["day"].tolist() == after(shops)["day"].tolist()
    interval = for_shops.predict_interval(future=after(shops))
    assert interval.columns.tolist() == ["shop", "day", "sales lower", "sales upper", "returns lower", "returns upper"]
    assert (interval["sales lower"] <= found["sales"]).all()
    assert "q0.5" in for_shops.predict_quantiles(levels=[0.5], future=after(shops)).columns[2]


def test_polars_gives_polars(shops, for_shops):
    frame = pl.from_pandas(shops[shops["day"] < "2020-03-20"])
    found = for_shops.predict(data=frame, future=pl.from_pandas(after(shops)))
    assert isinstance(found, pl.DataFrame)
    expected = for_shops.predict(future=after(shops))
    np.testing.assert_allclose(found["returns"].to_numpy(), expected["returns"], rtol=1e-9)


def test_all_of_it_comes_back_from_the_folder(shops, for_shops, tmp_path):
    for_shops.save(tmp_path)
    back = rc.load(tmp_path)
    expected = for_shops.predict_quantiles(future=after(shops))
    found = back.predict_quantiles(future=after(shops))
    np.testing.assert_array_equal(found["returns q0.1"].to_numpy(), expected["returns q0.1"].to_numpy())
    assert back.past_.covariates == for_shops.past_.covariates


def test_a_category_never_seen_is_unknown_and_no_error(shops, for_shops):
    strange = after(shops).assign(weather="hail")
    with pytest.warns(UserWarning, match=r"'weather' has 'hail' in \d+ rows, which training did not have"):
        found = for_shops.predict(future=strange)
    assert np.isfinite(found["sales"]).all()


def test_what_cannot_be_done_is_said(shops, for_shops):
    with pytest.raises(InputError, match="h: got 5, expected at most 4, the horizon, since visitors is unknown"):
        for_shops.predict(5, future=after(shops, 5))
    with pytest.raises(ShapeError, match="data: got 1 values per step, expected 2, as in fit"):
        rc.Forecaster(**QUICK).fit(coupled(60)[None]).predict(data=np.zeros((1, 30)))
    with pytest.raises(InputError, match="'kind'"):
        for_shops.predict(data=shops.drop(columns="kind"), future=after(shops))


@pytest.mark.parametrize(
    "index", [pd.date_range("2020-01-31", periods=60, freq="ME"), pd.period_range("2020", periods=60, freq="M")]
)
def test_dates_in_the_index_stay_there(index):
    y = pd.Series(np.sin(np.arange(60.0)), index=index, name="sales")
    one = rc.Forecaster(**QUICK).fit(y).predict()
    assert isinstance(one, pd.Series)
    assert one.name == "sales"
    assert one.index[0].strftime("%Y-%m") == "2025-01"
    frame = pd.DataFrame({"sales": y, "cost": y**2})
    several = rc.Forecaster(**QUICK).fit(frame, ["sales", "cost"]).predict()
    assert several.columns.tolist() == ["sales", "cost"]
    assert several.index.equals(one.index)


def test_series_without_dates_come_back_in_their_library():
    y = np.sin(np.arange(60.0))
    assert isinstance(rc.Forecaster(**QUICK).fit(pd.Series(y)).predict(), pd.Series)
    assert isinstance(rc.Forecaster(**QUICK).fit(pl.Series(y)).predict(), pl.Series)


def test_a_store_and_an_item_identify_a_series():
    def panel(first: int, days: int) -> pd.DataFrame:
        rows = [
            (pd.Timestamp("2020-01-01") + pd.Timedelta(days=t), store, item, t % 7 == 3, 10.0 * store + item + t % 7)
            for store in (1, 2)
            for item in (1, 2, 3)
            for t in range(first, first + days)
        ]
        return pd.DataFrame(rows, columns=["date", "store", "item", "promo", "sales"])

    model = rc.Forecaster(**QUICK, season=7, known=("promo",)).fit(panel(0, 40), "sales")
    found = model.predict(1, future=panel(40, 1).drop(columns="sales"))
    assert found["store+item"].tolist() == ["1/1", "1/2", "1/3", "2/1", "2/2", "2/3"]
    np.testing.assert_allclose(found["sales"], panel(40, 1)["sales"], atol=0.5)
