"""The base forecast: members mixed series by series, logarithms, several seasons; and what the network may add."""

import numpy as np
import pytest

import recurra as rc
from recurra.errors import InputError
from recurra.estimators.calibration import error_quantiles, interval_corrections
from recurra.estimators.linear import Units
from recurra.estimators.linear_fit import LinearFit

QUICK = {"hidden_size": 4, "epochs": 2, "random_state": 0, "max_windows": 100}


def two_seasons(length: int, random: np.random.Generator, noise: float) -> np.ndarray:
    """A short season of 4 and a long one of 12 steps."""
    t = np.arange(length)
    short, long = random.normal(size=4), 3 * random.normal(size=12)
    return 50 + short[t % 4] + long[t % 12] + noise * random.normal(size=length)


def test_logarithms_come_back_and_have_a_floor():
    units = Units(mean=3.0, scale=2.0, log_mean=1.0, log_scale=0.5)
    scaled = np.array([-1.0, 0.0, 5.0])
    np.testing.assert_allclose(units.from_log(units.to_log(scaled)), scaled, atol=1e-12)
    assert np.isfinite(units.to_log(np.array([-10.0]))).all()  # a value below zero


def test_every_series_has_the_mix_that_suits_it():
    random = np.random.default_rng(0)
    repeats = two_seasons(200, random, noise=1.0)
    walk = 500 + np.cumsum(random.normal(size=200))
    model = rc.Forecaster(horizon=4, season=(4, 12), **QUICK).fit([repeats, walk])
    names = [(member.linear.seasons[0], member.linear.weights.any()) for member in model.base_.members]
    last_value, long_season = names.index((1, False)), names.index((12, False))
    first, second = (model.base_.series[name].weights for name in model.past_.ids)
    assert first.sum() == pytest.approx(1) == second.sum()
    assert second[last_value] > 0.1 > first[last_value]
    assert first[long_season] > second[long_season]
    usual = model.base_.usual.weights
    assert usual.sum() == pytest.approx(1)


def test_a_second_season_is_used():
    random = np.random.default_rng(0)
    y = two_seasons(164, random, noise=0.1)
    short = rc.Forecaster(horizon=4, season=4, context=4, **QUICK).fit(y[:-4])
    both = rc.Forecaster(horizon=4, season=(12, 4), context=24, **QUICK).fit(y[:-4])
    missed = [np.abs(model.predict() - y[-4:]).mean() for model in (short, both)]
    assert missed[1] < 0.5 * missed[0]
    assert both.seasons == (4, 12)
    for wrong in ((), 0, (4, "a")):
        with pytest.raises(InputError, match="season"):
            rc.Forecaster(horizon=4, season=wrong).fit(y)


def test_a_trend_of_few_windows_is_continued():
    """Thirty steps are too few for a regression to find the trend."""
    errors = []
    for seed in range(3):
        y = 2.0 * np.arange(42) + 100 + np.random.default_rng(seed).normal(size=42)
        model = rc.Forecaster(horizon=12, **QUICK).fit(y[:-12])
        errors.append(np.abs(model.predict() - y[-12:]).mean())
    assert np.mean(errors) < 3  # that of the last value is 13, of regressions alone 4.4
    assert "the trend of the last 8 steps" in model.summary()


def test_growth_is_continued_in_logarithms():
    y = 5 * 1.05 ** np.arange(120) * np.exp(0.01 * np.random.default_rng(0).normal(size=120))
    found = rc.Forecaster(horizon=8, **QUICK).fit(y[:-8]).predict()
    assert np.abs(found / y[-8:] - 1).max() < 0.05


def test_noise_has_no_use_for_a_network_and_says_so(tmp_path):
    y = np.random.default_rng(0).normal(size=150)
    model = rc.Forecaster(horizon=4, **(QUICK | {"epochs": 10})).fit(y)
    assert model.share_ == 0
    assert "nothing of it is used" in model.summary()
    assert "too short" in rc.Forecaster(horizon=4, **QUICK).fit(y[:9]).summary()
    model.save(tmp_path)
    again = rc.Forecaster.load(tmp_path)
    assert again.share_ == 0
    np.testing.assert_array_equal(again.predict_quantiles(), model.predict_quantiles())
    every = rc.Forecaster(horizon=4, validation=0, **QUICK).fit(y)
    assert every.share_ == 1
    assert "weight 1" in every.summary()


def test_what_only_a_network_sees_is_added():
    """The sign of the next swing is the product of two signs, which no linear forecast finds."""
    random = np.random.default_rng(0)
    signs = random.choice([-1.0, 1.0], size=900)
    for t in range(2, len(signs)):
        signs[t] = signs[t] if t % 9 == 0 else signs[t - 1] * signs[t - 2]  # every ninth is drawn anew
    y = signs + 0.05 * random.normal(size=900)
    model = rc.Forecaster(horizon=1, context=4, epochs=20, hidden_size=16, random_state=0).fit(y)
    assert model.share_ > 0.5
    assert "The network adds" in model.summary()


def test_quantiles_of_errors_and_intervals_hold_their_share():
    random = np.random.default_rng(0)
    levels = (0.025, 0.1, 0.5, 0.9, 0.975)
    errors = random.standard_t(4, size=(4000, 2))
    found = error_quantiles(errors, levels)
    np.testing.assert_allclose((errors[:, :, None] <= found).mean(axis=0), np.tile(levels, (2, 1)), atol=1e-3)
    for width in (0.3, 3.0):  # too narrow, too wide
        given = np.broadcast_to(width * np.array([-2.0, -1.0, 0.0, 1.0, 2.0]), (4000, 2, 5))
        moved = given + interval_corrections(errors, given, levels)
        inside = (moved[:, :, 1] <= errors) & (errors <= moved[:, :, 3])
        np.testing.assert_allclose(inside.mean(axis=0), 0.8, atol=1e-3)


def test_a_stopped_fit_goes_on_with_what_it_has_fitted(tmp_path, monkeypatch):
    """Members that were done are not fitted again, those of other data are not taken, and nothing is left behind."""
    y = 10 + np.sin(np.arange(150) / 2) + np.random.default_rng(0).normal(size=150)
    options = {"horizon": 4, "hidden_size": 4, "epochs": 1, "random_state": 0}
    plain = rc.Forecaster("gru", **options).fit(y).predict()
    done, fit = [], LinearFit.fit

    def interrupted(self, lags=None):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(lags)
        return fit(self, lags)

    monkeypatch.setattr(LinearFit, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt), rc.train.fit_context(tmp_path):
        rc.Forecaster("gru", **options).fit(y)
    assert len(list((tmp_path / "base-forecast").glob("*.npz"))) == 2
    (tmp_path / "base-forecast" / "torn.npz").write_bytes(b"PK")
    fitted = []
    monkeypatch.setattr(LinearFit, "fit", lambda self, lags=None: fitted.append(lags) or fit(self, lags))
    with rc.train.fit_context(tmp_path / "other"):
        rc.Forecaster("gru", **options).fit(y + 1)
    every = len(fitted)
    with rc.train.fit_context(tmp_path):
        found = rc.Forecaster("gru", **options).fit(y).predict()
    assert len(fitted) - every == every - 2
    np.testing.assert_array_equal(found, plain)
    assert not (tmp_path / "base-forecast").exists()


def test_the_fit_of_the_base_forecast_shows_how_far_it_is(monkeypatch, capsys):
    monkeypatch.setattr(
        "recurra.estimators.forecast_training.show_progress", lambda items, *about: print(about) or items
    )
    rc.Forecaster("gru", horizon=4, hidden_size=4, epochs=1, random_state=0, verbose=True).fit(np.arange(60.0))
    assert "('base forecast', " in capsys.readouterr().out
