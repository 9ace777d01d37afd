"""Exponential smoothing as a member of the base forecast: recursions as matrices, short series, files."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.estimators.exponential_smoothing import Smoothing, smoothings
from recurra.estimators.forecast_export import ForecastModule
from recurra.estimators.mixing import Errors, mixed_weights

QUICK = {"hidden_size": 4, "epochs": 1, "random_state": 0}


def test_a_matrix_is_the_recursion():
    y = np.random.default_rng(0).normal(size=9)
    level, trend = y[0], (y[3] - y[0]) / 3
    for value in y[1:]:
        error = value - level - 0.9 * trend
        level, trend = level + 0.9 * trend + 0.5 * error, 0.9 * trend + 0.1 * error
    expected = [level + 0.9 * trend, level + (0.9 + 0.81) * trend]
    np.testing.assert_allclose(Smoothing("damped", 0.5, 0.2, 0.9, 2)(y), expected, atol=1e-12)


@pytest.mark.parametrize("smoothing", smoothings(6), ids=str)
def test_constants_and_straight_lines_are_continued(smoothing):
    for count in range(1, 20):
        np.testing.assert_allclose(smoothing(np.full(count, 3.0)), 3.0, atol=1e-9)
    line = smoothing(2.0 * np.arange(20))
    if smoothing.trend == "half":  # half of the slope ahead, and the line itself where it stands
        np.testing.assert_allclose(np.diff(line), 1.0, atol=1e-9)


def test_few_windows_of_many_series_are_weighed_together():
    """What is better for most is taken for a series whose one window says otherwise; not where series are long."""
    random = np.random.default_rng(0)
    windows, series = 1, 40
    actual = random.normal(size=(windows * series, 3))
    unseen = np.stack([actual + 0.5, actual + 1.0])  # the first member is better,
    unseen[:, 0] = unseen[::-1, 0]  # but for one window of the first series
    rows = [np.array([k]) for k in range(series)]
    ones = np.ones(series)
    weights, usual = mixed_weights(Errors(unseen, actual, ones, ones, rows), True)
    assert weights[0, 0] > 0.9
    assert usual[0] > 0.9
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    alone, _ = mixed_weights(Errors(unseen, actual, ones, ones, rows), False)
    assert alone[0, 1] > 0.9


def years(random: np.random.Generator) -> np.ndarray:
    """A level that wanders, with a trend of its own."""
    return 100 + np.cumsum(random.normal(0.5, 1) + random.normal(size=22)) + random.normal(size=22)


def test_short_series_are_smoothed_also_in_files(tmp_path):
    random = np.random.default_rng(0)
    data = np.stack([years(random) for _ in range(12)])
    model = rc.Forecaster(horizon=6, **QUICK).fit(data[:, :-6])
    found = model.predict_quantiles()
    assert "exponential smoothing" in model.summary()
    model.save(tmp_path / "model")
    np.testing.assert_allclose(rc.Forecaster.load(tmp_path / "model").predict_quantiles(), found, rtol=1e-9)
    module = ForecastModule(model).double().eval()  # what a file computes
    past, lengths = torch.tensor(data[:, :-6].T), torch.full((12,), 16)
    with torch.no_grad():
        np.testing.assert_allclose(module(past, lengths, torch.arange(12)), found, rtol=1e-4)


def test_series_with_a_season_or_many_windows_are_not():
    """A cycle of eleven years was forecast a fifth worse with smoothing."""
    t = np.arange(120)
    y = 50 + 30 * np.sin(2 * np.pi * t / 11) + np.random.default_rng(0).normal(size=120)
    for season in (1, 11):
        model = rc.Forecaster(horizon=4, season=season, **QUICK).fit(y)
        assert not any(member.smoothing for member in model.base_.members)
