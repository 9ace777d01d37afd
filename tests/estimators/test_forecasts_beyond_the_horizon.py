"""Steps beyond the horizon: intervals widen as the truth does, and cover what they promise."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

import recurra as rc
from recurra.estimators.backtest import Backtest
from recurra.estimators.sampled_paths import equal_ranks, error_ranks, forecast_beyond
from recurra.estimators.wandering import wandering, widen_beyond

LEVELS = (0.025, 0.1, 0.3, 0.5, 0.7, 0.9, 0.975)
STILL = np.ones(1)  # variances of changes that do not grow with the steps
WIDE = {0.8: (0.1, 0.9), 0.95: (0.025, 0.975)}


def autoregression(weight: float, horizon: int) -> tuple[Callable, np.ndarray]:
    """The exact quantiles of x_t = weight x_{t-1} + noise after any path, and the ranks of their errors."""
    deviation = np.sqrt(np.cumsum(weight ** (2 * np.arange(100))))  # of the forecast 1, 2, … steps ahead

    def continue_paths(paths: np.ndarray, ahead: int) -> np.ndarray:
        last = paths[:, :, -1] if paths.shape[2] else np.full((len(paths), 1), 3.0)
        middle = last[..., None] * weight ** np.arange(1, ahead + 1)
        return middle[..., None] + deviation[:ahead, None] * norm.ppf(LEVELS)

    x, random = np.zeros((400, horizon + 1)), np.random.default_rng(1)
    for t in range(horizon):
        x[:, t + 1] = weight * x[:, t] + random.normal(size=400)
    quantiles = deviation[:horizon, None] * norm.ppf(LEVELS)
    return continue_paths, error_ranks(x[:, 1:], np.broadcast_to(quantiles, (400, *quantiles.shape)), LEVELS)


@pytest.mark.parametrize("weight", [1.0, 0.9, 0.5])
def test_exact_quantiles_stay_exact(weight):
    """Of a random walk and of autoregressions, whose distribution at any step is known."""
    continue_paths, ranks = autoregression(weight, 6)
    found = forecast_beyond(continue_paths, 48, LEVELS, ranks, targets=1, season=1, variances=STILL)[0]
    ahead = np.arange(1, 49)
    deviation = np.sqrt(np.cumsum(weight ** (2 * np.arange(48.0))))
    expected = 3 * weight ** ahead[:, None] + deviation[:, None] * norm.ppf(LEVELS)
    np.testing.assert_allclose(found[:6], expected[:6], rtol=1e-12)
    assert (np.abs(found - expected) < 0.3 * deviation[:, None]).all()
    assert (np.diff(found[:, -1] - found[:, 0]) > -1e-9).all()


def test_without_held_out_errors_a_random_walk_still_widens():
    continue_paths, _ = autoregression(1.0, 6)
    found = forecast_beyond(continue_paths, 48, LEVELS, equal_ranks(6), targets=1, season=1, variances=STILL)[0]
    width, expected = found[:, -1] - found[:, 0], 2 * norm.ppf(0.975) * np.sqrt(np.arange(1, 49))
    assert (np.abs(width / expected - 1) < 0.2).all()


def test_intervals_keep_the_width_of_their_season():
    """Calm and wild steps in turn: a calm one is as wide as the calm one before it, not as the wild one."""

    def continue_paths(paths: np.ndarray, ahead: int) -> np.ndarray:
        spread = np.where((paths.shape[2] + np.arange(ahead)) % 2, 10.0, 1.0)
        return np.broadcast_to(spread[:, None] * norm.ppf(LEVELS), (len(paths), 1, ahead, len(LEVELS)))

    found = forecast_beyond(continue_paths, 20, LEVELS, equal_ranks(4), targets=1, season=2, variances=STILL)[0]
    width = found[:, -1] - found[:, 0]
    np.testing.assert_allclose(width[::2], 2 * norm.ppf(0.975), rtol=0.05)
    np.testing.assert_allclose(width[1::2], 20 * norm.ppf(0.975), rtol=0.05)


def after_a_walk(weight: float, steps: int) -> np.ndarray:
    """(steps, Q): quantiles of a random walk from 8 on, which after 6 steps returns to 0 for all that a model knows."""
    ahead, later = np.arange(1.0, 7), np.arange(1, steps - 5)
    middle = np.concatenate([np.full(6, 8.0), 8 * weight**later])
    variance = np.concatenate([ahead, 6 * weight ** (2 * later) + (1 - weight ** (2 * later)) / (1 - weight**2)])
    return middle[:, None] + np.sqrt(variance)[:, None] * norm.ppf(LEVELS)


def test_intervals_gain_what_series_wandered_and_a_model_did_not_see():
    """The series were random walks, the model finds a return to the mean: intervals hold the walk all the same."""
    random, steps, model = np.random.default_rng(0), 48, after_a_walk(0.95, 48)
    walks = np.cumsum(random.normal(size=(40, 400)), axis=1)
    found = widen_beyond(model, LEVELS, 6, 1, wandering(list(walks), 1))
    np.testing.assert_array_equal(found[:6], model[:6])
    ends = 8 + np.cumsum(random.normal(size=(4000, steps)), axis=1)
    for promise, (low, high) in WIDE.items():
        below, above = found[:, LEVELS.index(low)], found[:, LEVELS.index(high)]
        assert ((below <= ends) & (ends <= above)).mean(axis=0).min() > promise - 0.03
    alone = (model[:, 1] <= ends) & (ends <= model[:, -2])
    assert alone.mean(axis=0)[-1] < 0.5  # for which the model promises 80 %


def test_intervals_of_series_that_return_stay_as_they_are():
    random, y = np.random.default_rng(0), np.zeros((40, 401))
    for t in range(400):
        y[:, t + 1] = 0.8 * y[:, t] + random.normal(size=40)
    deviation = np.sqrt(np.cumsum(0.8 ** (2 * np.arange(48))))
    exact = 3 * 0.8 ** np.arange(1, 49)[:, None] + deviation[:, None] * norm.ppf(LEVELS)
    found = widen_beyond(exact, LEVELS, 6, 1, wandering(list(y), 1))
    ratio = (found[:, -1] - found[:, 0]) / (exact[:, -1] - exact[:, 0])
    assert 1 <= ratio.min() <= ratio.max() < 1.12


@pytest.fixture(scope="module")
def walks() -> tuple[rc.Forecaster, np.ndarray]:
    y = np.cumsum(np.random.default_rng(0).normal(size=(30, 600)), axis=1)
    model = rc.Forecaster("gru", horizon=6, hidden_size=8, epochs=4, max_windows=1000, random_state=0)
    return model.fit(y[:, :400]), y


def test_near_steps_are_those_of_a_short_forecast_and_all_come_back(walks, tmp_path):
    model, _ = walks
    far = model.predict_quantiles(20)
    assert far.shape == (30, 20, 13)
    np.testing.assert_allclose(far[:, :6], model.predict_quantiles(), rtol=1e-6)
    assert (np.diff(far, axis=-1) >= 0).all()
    model.save(tmp_path)
    np.testing.assert_array_equal(rc.Forecaster.load(tmp_path).predict_quantiles(20), far)


def assert_honest(found: Backtest, first: int) -> None:
    """Beyond the first steps no coverage is below its promise by more than two standard errors of the origins."""
    for promise, edges in WIDE.items():
        low, high = (found.levels.index(edge) for edge in edges)
        inside = (found.quantiles[..., low] <= found.actual) & (found.actual <= found.quantiles[..., high])
        assert inside[:, first:].mean() > promise - 2 * np.sqrt(promise * (1 - promise) / found.origins)
        width = (found.quantiles[..., high] - found.quantiles[..., low]).mean(axis=0)
        assert width[-1] > width[first - 1]


@pytest.mark.slow
def test_random_walks_are_covered(walks):
    """150 origins six horizons ahead; the true width grows with the root of the steps, ours somewhat faster: 1.17 times
    as wide at the first step, 1.61 at the last, and 88 % of the values are inside for a promise of 80 %."""
    model, y = walks
    found = model.backtest(y, h=36, windows=5)
    assert_honest(found, 6)
    low, high = found.levels.index(0.1), found.levels.index(0.9)
    width = (found.quantiles[..., high] - found.quantiles[..., low]).mean(axis=0)
    ratio = width / (2 * norm.ppf(0.9) * np.sqrt(np.arange(1, 37)))
    assert 0.9 < ratio.min() < ratio.max() < 1.7
    assert (np.diff(width) > -1e-9)[6:].all()


@pytest.mark.slow
@pytest.mark.shared_data
def test_sunspots_are_covered(shared_data):
    """Yearly, five horizons ahead from 27 origins after what was learned."""
    y = np.loadtxt(shared_data / "sunspots" / "sunspots.csv", delimiter=",", skiprows=1)[:, 1]
    model = rc.Forecaster("gru", horizon=8, season=11, context=44, random_state=0).fit(y[:-120])
    assert_honest(model.backtest(y, h=40, windows=27, step=3), 8)


@pytest.mark.slow
@pytest.mark.shared_data
def test_electricity_is_covered(shared_data):
    """ETTh1, oil temperature: five days ahead by forecasts of a day, from forty origins after the year learned."""
    y = np.genfromtxt(shared_data / "ett" / "ETTh1.csv", delimiter=",", skip_header=1, usecols=7)
    model = rc.Forecaster("gru", horizon=24, season=24, context=96, epochs=6, max_windows=600, random_state=0)
    assert_honest(model.fit(y[: 360 * 24]).backtest(y[: 480 * 24], h=120, windows=40, step=72), 24)
