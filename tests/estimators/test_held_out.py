"""What validation may conclude from held-out windows, and that windows to fit know nothing of what follows them."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from recurra.estimators.held_out import is_certain, stop_and_judge, time_blocks
from recurra.estimators.panel import to_panel
from recurra.estimators.windows import Origin, Windows


def test_blocks_are_stretches_of_time_that_all_series_share():
    origins = [Origin(0, 80), Origin(0, 90), Origin(1, 40), Origin(1, 45)]  # series of 100 and 50 steps, 5 ahead
    assert time_blocks(origins, [100, 50], 5).tolist() == [3, 1, 1, 0]
    many = time_blocks([Origin(0, at) for at in range(996)], [1000], 5)
    assert sorted(set(many.tolist())) == list(range(16))


def test_windows_that_judge_are_later_than_those_that_stop():
    blocks = np.array([5, 4, 3, 2, 1, 0])
    assert stop_and_judge(blocks) == ([0, 1, 2], [3, 4, 5])
    assert stop_and_judge(np.array([1, 0, 0])) == ([0, 1, 2], [0, 1, 2])  # too few to be shared out
    assert stop_and_judge(np.zeros(0, dtype=int)) == ([], [])


@pytest.mark.parametrize("mean", [0.0, 0.5, 1.0, 3.0])
def test_a_gain_is_certain_where_a_t_test_over_blocks_says_so(mean):
    gain = np.random.default_rng(0).normal(mean, 1.0, (6, 50))
    gain += np.random.default_rng(1).normal(0, 1.0, (6, 1))  # what the windows of a stretch share
    expected = ttest_1samp(gain.mean(axis=1), 0.0, alternative="greater").pvalue < 0.025
    assert is_certain(gain.ravel(), np.repeat(np.arange(6), 50)) == expected
    assert not is_certain(np.ones(100), np.repeat([0, 1], 50))


@pytest.mark.parametrize("kind", ["values", "logarithms"])
def test_windows_to_fit_know_nothing_of_later_values(kind):
    y = np.random.default_rng(0).normal(10 if kind == "logarithms" else 0, 1.0, 60)
    known = []
    for later in (y[40:], 3 + 2 * y[40:]):
        given = to_panel(np.concatenate([y[:40], later]))
        windows = Windows.of(given, 16, (1,)).to_fit(given)
        past = windows.history(given, Origin(0, 40), 4)
        known.append(past.log if kind == "logarithms" else past)
    before, after = known
    np.testing.assert_allclose(before.values, after.values)
    np.testing.assert_allclose([before.level, before.spread], [after.level, after.spread])


def test_windows_to_fit_are_scaled_as_a_forecast_from_there_is():
    y = np.cumsum(np.random.default_rng(0).normal(size=80))
    given, start = to_panel(y), to_panel(y[:50])
    fitting = Windows.of(given, 16, (1,)).to_fit(given).history(given, Origin(0, 50), 1)
    forecasting = Windows.of(start, 16, (1,)).history(start, Origin(0, 50), 1)
    np.testing.assert_allclose(fitting.values, forecasting.values)
    np.testing.assert_allclose(fitting.level, forecasting.level)
