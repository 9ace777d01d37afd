"""Wild values, breaks, falls by orders of magnitude, saturation: what forecasts make of them."""

import numpy as np
import pytest

import recurra as rc
from recurra.estimators.disturbances import Limits, calm

STEPS, AHEAD = 132, 12
QUICK = {"horizon": AHEAD, "season": 12, "hidden_size": 4, "epochs": 1, "random_state": 0}
T = np.arange(STEPS + AHEAD)


def seasonal(seed: int = 0) -> np.ndarray:
    return 100 + 10 * np.sin(2 * np.pi * T / 12) + np.random.default_rng(seed).normal(size=len(T))


def calmed(y: np.ndarray, seasons=(12,)) -> np.ndarray:
    return calm(y, Limits.of(y, seasons), seasons)


DISTURBED = {
    "a wild value": np.where(T == 100, 10_000, seasonal()),
    "a wild value at the end": np.where(T == STEPS - 1, 5_000, seasonal()),
    "a reading that failed at the end": np.where(T == STEPS - 1, 0, seasonal()),
    "a break": seasonal() + 80 * (T >= 110),
    "a break half a season ago": seasonal() - 90 * (T >= STEPS - 6),
    "a fall to a thousandth": seasonal() * np.where(T >= 100, 1e-3, 1),
    "a rise by a thousand": seasonal() * np.where(T >= 100, 1e3, 1),
}


@pytest.mark.parametrize("name", DISTURBED)
def test_forecasts_after_a_disturbance_are_those_of_a_calm_series(name):
    """The error and the width of the interval are those of the noise, in the units of the level at the end."""
    y = DISTURBED[name]
    unit = 1e-3 if "fall" in name else 1e3 if "rise" in name else 1.0
    model = rc.Forecaster(**QUICK).fit(y[:STEPS])
    found = model.predict_quantiles(levels=(0.1, 0.5, 0.9))
    assert np.abs(found[:, 1] - y[STEPS:]).mean() < 2.5 * unit  # a level of six steps is known to 0.6
    assert (found[:, 2] - found[:, 0]).mean() < 6 * unit
    assert model.disturbed_ == ["0"]
    assert "not read" in model.summary()
    np.testing.assert_array_equal(model.past_.y[0], y[STEPS - model.context_size : STEPS])  # what a plot shows


def test_a_backtest_does_not_see_a_break_before_it_comes():
    y = seasonal() + 80 * (T >= STEPS)
    model = rc.Forecaster(**QUICK).fit(y[:STEPS])
    before, after = model.predict(data=y[:STEPS]), model.backtest(y, windows=1)
    assert not model.disturbed_
    assert after.scores["model"]["MAE"] == pytest.approx(np.abs(before - y[STEPS:]).mean())


ORDINARY = {
    "noise": np.random.default_rng(1).normal(size=300),
    "a random walk": np.cumsum(np.random.default_rng(2).normal(size=300)),
    "heavy tails": np.random.default_rng(3).standard_t(2.5, 300),
    "seasons": seasonal(),
    "a pulse in each season": np.where(np.arange(300) % 24 == 5, 100.0, np.random.default_rng(4).normal(size=300)),
    "two states": 50.0 * (np.arange(300) // 40 % 2) + np.random.default_rng(5).normal(size=300),
    "counts": np.random.default_rng(6).poisson(0.3, 300).astype(float),
    "demand now and then": (np.random.default_rng(7).random(300) < 0.1) * np.random.default_rng(8).lognormal(3, 1, 300),
    "growth": np.exp(0.03 * np.arange(300)),
    "a constant": np.full(300, 7.0),
    "few steps": np.array([1.0, 1.1, 0.9, 50.0, 1.0, 1.2]),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_what_recurs_is_a_part_of_the_series(name):
    y = ORDINARY[name]
    assert calmed(y, (24,)) is y


def test_what_came_before_a_break_is_moved_to_the_level_after_it():
    y = seasonal()
    broken = y + 80 * (T >= 110)
    np.testing.assert_allclose(calmed(broken), y + 80, atol=1.5)
    np.testing.assert_allclose(calmed(y * np.where(T >= 110, 0.01, 1)), 0.01 * y, rtol=0.02)
    stopped = np.where(T >= 100, 0.0, y)
    np.testing.assert_array_equal(calmed(stopped)[:100], np.zeros(100))


def test_counts_and_multiplicative_series_are_not_forecast_below_zero():
    random = np.random.default_rng(0)
    counts, decay = (
        random.poisson(0.7, 150).astype(float),
        1e4 * np.exp(-0.05 * T) * (1 + 0.02 * random.normal(size=len(T))),
    )
    for y in (counts, decay):
        model = rc.Forecaster(**QUICK | {"season": 1}).fit(y)
        assert model.predict_quantiles(30).min() >= 0
        assert model.sample_paths(50).min() >= 0
    assert rc.Forecaster(**QUICK | {"season": 1}).fit(counts - 1).predict_quantiles().min() < -1


def test_intervals_shrink_where_a_series_became_calm():
    """A series that falls by orders of magnitude, and one that is saturated: intervals are of today's size."""
    noise = 1 + 0.02 * np.random.default_rng(2).normal(size=len(T))
    decay = 1e4 * np.exp(-0.05 * T) * noise
    lower, upper = rc.Forecaster(**QUICK | {"season": 1}).fit(decay[:STEPS]).predict_interval(level=0.8)
    assert (upper - lower).mean() < decay[STEPS - 1]
    saturated = 1000 / (1 + np.exp(-(T - 60) / 10)) + 3 * np.random.default_rng(1).normal(size=len(T))
    lower, upper = rc.Forecaster(**QUICK | {"season": 1}).fit(saturated[:STEPS]).predict_interval(level=0.8)
    assert (upper - lower).mean() < 50


def test_limits_are_saved_and_a_file_keeps_the_floor(tmp_path):
    y = DISTURBED["a wild value"][:STEPS]
    model = rc.Forecaster(**QUICK).fit(y)
    model.save(tmp_path / "model")
    again = rc.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(data=y), model.predict(data=y))
    np.testing.assert_array_equal(again.predict(), model.predict())
    assert again.disturbed_ == ["0"]
    assert again.summary() == model.summary()
