"""Measures of forecasts against their definitions, calibration against its promise, and times against the calendar."""

import numpy as np
import pytest

from recurra.errors import InputError
from recurra.estimators.calibration import apply_corrections, interpolate_levels, interval_corrections
from recurra.estimators.metrics import coverage, crps, mase, naive, naive_error, pinball, smape
from recurra.estimators.panel_future import times_after

RANDOM = np.random.default_rng(0)
LEVELS = tuple(np.arange(1, 200) / 200)


def normal_quantiles(levels) -> np.ndarray:
    from scipy.stats import norm

    return norm.ppf(levels)


def test_naive_repeats_the_last_season():
    y = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert naive(y, 4).tolist() == [5, 5, 5, 5]
    assert naive(y, 5, season=3).tolist() == [3, 4, 5, 3, 4]
    assert naive(y, 2, season=9).tolist() == [5, 5]


def test_mase_of_a_seasonal_naive_forecast_by_hand():
    past = np.array([1.0, 5.0, 2.0, 7.0])  # |2 - 1|, |7 - 5|: mean 1.5
    assert naive_error(past, season=2) == 1.5
    assert mase(np.array([3.0, 8.0]), np.array([2.0, 7.0]), past, season=2) == pytest.approx(1 / 1.5)


def test_smape_by_hand():
    assert smape(np.array([100.0, 0.0]), np.array([50.0, 0.0])) == pytest.approx(100 / 3)


def test_crps_of_a_normal_forecast_is_the_closed_form():
    """CRPS(N(0, 1), y) = y (2 Φ(y) - 1) + 2 φ(y) - 1 / √π (Gneiting & Raftery 2007)."""
    from scipy.stats import norm

    quantiles = normal_quantiles(LEVELS)
    for y in (-1.3, 0.0, 0.4, 2.0):
        expected = y * (2 * norm.cdf(y) - 1) + 2 * norm.pdf(y) - 1 / np.sqrt(np.pi)
        assert crps(np.array([y]), quantiles[None], LEVELS) == pytest.approx(expected, abs=2e-3)


def test_pinball_is_least_at_the_quantile():
    values = RANDOM.normal(size=4001)
    guesses = np.linspace(-2, 2, 401)
    losses = [pinball(values, np.full((4001, 1), g), [0.9]).mean() for g in guesses]
    assert guesses[int(np.argmin(losses))] == pytest.approx(np.quantile(values, 0.9), abs=0.011)


def test_calibration_makes_too_narrow_intervals_hold():
    """Quantiles of a spread of 1 for values of spreads 2 and 5, at two steps ahead."""
    levels = (0.05, 0.1, 0.5, 0.9, 0.95)
    quantiles = np.broadcast_to(normal_quantiles(levels), (2000, 2, 5))
    spread = np.array([2.0, 5.0])
    shifts = interval_corrections(RANDOM.normal(size=(2000, 2)) * spread, quantiles, levels)
    found = apply_corrections(quantiles, shifts)
    fresh = RANDOM.normal(size=(2000, 2)) * spread
    for step in range(2):
        assert coverage(fresh[:, step], quantiles[:, step, 0], quantiles[:, step, 4]) < 0.65
        assert coverage(fresh[:, step], found[:, step, 0], found[:, step, 4]) == pytest.approx(0.9, abs=0.025)
        assert coverage(fresh[:, step], found[:, step, 1], found[:, step, 3]) == pytest.approx(0.8, abs=0.03)
    assert (shifts[:, 2] == 0).all()
    assert (np.diff(found, axis=-1) >= 0).all()


def test_intervals_that_hold_more_than_they_promise_are_narrowed():
    levels = (0.1, 0.5, 0.9)
    quantiles = np.broadcast_to(normal_quantiles(levels), (500, 1, 3))
    actual = RANDOM.normal(size=(500, 1)) / 3
    found = apply_corrections(quantiles, interval_corrections(actual, quantiles, levels))
    inside = (found[..., 0] <= actual) & (actual <= found[..., 2])
    assert inside.mean() == pytest.approx(0.8, abs=0.005)
    assert (found[..., 1] == quantiles[..., 1]).all()


def test_levels_in_between_lie_on_lines():
    quantiles = np.array([[[0.0, 10.0, 40.0]]])
    found = interpolate_levels(quantiles, (0.1, 0.5, 0.9), np.array([0.1, 0.3, 0.5, 0.8, 0.9]))
    np.testing.assert_allclose(found[0, 0], [0, 5, 10, 32.5, 40])


@pytest.mark.parametrize(
    ("past", "ahead"),
    [
        (["2024-01-01T00", "2024-01-01T06", "2024-01-01T12"], ["2024-01-01T18", "2024-01-02T00"]),
        (["2023-11-01", "2023-12-01", "2024-01-01"], ["2024-02-01", "2024-03-01"]),
        (["2023-12-31", "2024-01-31", "2024-02-29"], ["2024-03-31", "2024-04-30"]),
        (["2024-05-29", "2024-05-30", "2024-05-31", "2024-06-03"], ["2024-06-04", "2024-06-05"]),
        (["2020-01-01", "2021-01-01", "2022-01-01"], ["2023-01-01", "2024-01-01"]),
    ],
)
def test_times_go_on_as_they_came(past, ahead):
    times = np.array(past, dtype="datetime64[us]").astype(np.int64)
    found = times_after(times, 2, "date").astype("datetime64[us]")
    assert found.tolist() == np.array(ahead, dtype="datetime64[us]").tolist()


def test_whole_numbers_go_on_and_disorder_is_refused():
    assert times_after(np.array([3, 5, 7]), 2, "whole").tolist() == [9, 11]
    with pytest.raises(InputError, match="evenly spaced"):
        times_after(np.array([3, 5, 8]), 2, "whole")
