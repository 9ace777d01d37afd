"""The linear forecast: what it finds, that it never saw what it is judged by, and how it goes on beyond the horizon."""

import numpy as np
import pytest

from recurra.estimators.linear import History, LinearForecast
from recurra.estimators.linear_fit import LinearFit
from recurra.estimators.panel import to_panel
from recurra.estimators.windows import Origin, Windows


def windows_of(y: np.ndarray, steps: int, context: int, season: int = 1) -> tuple[list[History], np.ndarray]:
    given = to_panel(y)
    cut = Windows.of(given, context, (season,))
    origins = [Origin(0, at) for at in range(context, len(y) - steps + 1)]
    pasts = [cut.history(given, origin, steps) for origin in origins]
    return pasts, cut.targets_of(given, origins, pasts, steps)


def autoregression(steps: int) -> np.ndarray:
    """y_t = 1.5 y_{t-1} - 0.7 y_{t-2} + noise: swings that die away."""
    random, y = np.random.default_rng(0), [0.0, 0.0]
    for _ in range(steps):
        y.append(1.5 * y[-1] - 0.7 * y[-2] + random.normal())
    return np.array(y[2:])


def test_it_is_as_good_as_the_equation_it_came_from():
    y = autoregression(1500)
    pasts, actual = windows_of(y, steps=3, context=8)
    model, unseen = LinearFit(pasts, actual, (1,), 8).fit()
    best = np.zeros((len(pasts), 3))
    scale, mean = y.std(), y.mean()
    for row, at in zip(best, range(8, len(y) - 2), strict=True):
        last = [y[at - 2], y[at - 1]]
        for k in range(3):
            last.append(1.5 * last[-1] - 0.7 * last[-2])
            row[k] = last[-1]
    spread = np.array([past.spread for past in pasts])[:, None]
    level = np.array([past.level for past in pasts])[:, None]
    ideal = np.abs(actual - ((best - mean) / scale - level) / spread).mean()
    found = np.stack([model(past) for past in pasts])
    assert np.abs(actual - found).mean() < 1.05 * ideal
    assert np.abs(actual - unseen).mean() < 1.06 * ideal
    assert 1.2 * ideal < np.abs(actual).mean()  # the last value again


def test_no_window_is_forecast_by_a_regression_that_saw_it():
    random = np.random.default_rng(0)
    pasts, actual = windows_of(random.normal(size=60), steps=2, context=20)
    changed = actual.copy()
    changed[:5] += 0.01  # too little to change how strong the penalty is
    _, before = LinearFit(pasts, actual, (1,), 20).fit()
    _, after = LinearFit(pasts, changed, (1,), 20).fit()
    np.testing.assert_array_equal(before[:5], after[:5])
    assert (before[10:] != after[10:]).any()


def test_a_pure_season_is_left_as_it_is():
    random = np.random.default_rng(0)
    y = np.tile(random.normal(size=6), 20)
    pasts, actual = windows_of(y, steps=6, context=12, season=6)
    model, unseen = LinearFit(pasts, actual, (6,), 12).fit()
    assert model.season == 6
    np.testing.assert_allclose(unseen, actual, atol=1e-9)
    np.testing.assert_allclose(model(pasts[0]), (y[12:18] - y[11]) / np.std(y[:12]), atol=1e-9)


@pytest.mark.parametrize("length", [1, 3, 9])
def test_short_and_long_pasts_are_read(length):
    model = LinearForecast(np.ones((2, 5 + 2)), 1, 5)
    values, steps = np.arange(length) - length + 1.0, np.zeros((2, 0))
    past = History(values, 4.0, 2.0, np.zeros(0), steps, np.zeros((length + 2, 0)))
    lags = past.values[-5:].sum() + 1 + 2
    np.testing.assert_allclose(model(past), [lags, lags])
