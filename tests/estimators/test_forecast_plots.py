"""`plot()` of forecasts and backtests draws the numbers that `predict` and `backtest` give."""

import numpy as np
import pytest

import recurra as rc


@pytest.fixture(scope="module")
def series() -> np.ndarray:
    random = np.random.default_rng(0)
    return np.sin(np.arange(120) / 2) + 0.1 * random.normal(size=(6, 120))


@pytest.fixture(scope="module")
def model(series) -> rc.Forecaster:
    return rc.Forecaster("gru", horizon=4, hidden_size=4, epochs=1, random_state=0).fit(series[:, :100])


def traces(figure, name: str) -> list:
    return [trace for trace in figure.data if trace.name == name]


def test_a_forecast_is_drawn_after_its_past(model):
    figure, median = model.plot(10), model.predict(10)
    assert len(traces(figure, "forecast")) == 4  # of six series
    assert not traces(figure, "truth")
    for row, trace in enumerate(traces(figure, "forecast")):
        np.testing.assert_allclose(trace.y, median[row], rtol=1e-3, atol=1e-3)
        assert list(trace.x) == list(range(1, 11))
    _, upper = model.predict_interval(10, 0.8)
    np.testing.assert_allclose(traces(figure, "80% interval")[0].y, upper[0], rtol=1e-3, atol=1e-3)
    assert max(traces(figure, "past")[0].x) == 0


def test_a_backtest_has_the_truth_beside_its_last_forecasts(model, series):
    figure = model.backtest(series, windows=3).plot()
    truth, forecast = traces(figure, "truth")[1], traces(figure, "forecast")[1]
    np.testing.assert_allclose(truth.y[-4:], series[1, -4:], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(forecast.y, model.predict(data=series[:, :-4])[1], rtol=1e-3, atol=1e-3)
    assert list(truth.x)[-4:] == list(forecast.x)
