"""Likelihoods of the forecaster: densities beside scipy's, forecasts beside truths that are known."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats

import recurra as rc
from recurra.errors import InputError
from recurra.estimators.likelihood_training import _examples, _linear_forecasts
from recurra.estimators.likelihoods import LIKELIHOODS, NegativeLogLikelihood
from recurra.estimators.linear import LinearForecast
from recurra.estimators.windows import Origin, Windows

QUICK = {"cell": "gru", "hidden_size": 8, "epochs": 3, "random_state": 0}


def autoregression(steps: int, seed: int = 0) -> np.ndarray:
    """y_t = 0.8 y_{t-1} + noise."""
    random, y = np.random.default_rng(seed), [0.0]
    for _ in range(steps + 50):
        y.append(0.8 * y[-1] + random.normal())
    return np.array(y[-steps:])


def least_squares_forecast(y: np.ndarray, train: int, lags: int, steps: int) -> np.ndarray:
    """An autoregression fitted to the first values, continued after all of them."""
    rows = np.lib.stride_tricks.sliding_window_view(y[:train], lags)[:-1]
    weights = np.linalg.lstsq(np.c_[rows, np.ones(len(rows))], y[lags:train], rcond=None)[0]
    found = list(y)
    for _ in range(steps):
        found.append(float(np.r_[found[-lags:], 1.0] @ weights))
    return np.array(found[-steps:])


def seasonal_counts(steps: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Counts with a mean that swings over 12 steps, and variance m + m² / 4; and that mean."""
    mean = 20 * (1 + 0.5 * np.sin(2 * np.pi * np.arange(steps) / 12))
    return np.random.default_rng(seed).negative_binomial(4, 4 / (4 + mean)).astype(float), mean


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_densities_are_those_of_scipy(name):
    random, likelihood = np.random.default_rng(0), LIKELIHOODS[name]()
    raw = torch.tensor(random.normal(size=(5, 7, likelihood.size)))
    forecast, scale = torch.tensor(random.normal(size=(5, 7))), torch.tensor(random.uniform(1, 50, (5, 7)))
    target = torch.tensor(random.poisson(9, (5, 7)) if likelihood.counts else random.normal(size=(5, 7))).double()
    found = NegativeLogLikelihood(likelihood)(likelihood.parameters(raw, forecast, scale), target).numpy()
    r, f, s, y = raw.numpy(), forecast.numpy(), scale.numpy(), target.numpy()
    width = 1e-3 + np.log1p(np.exp(r[..., 1]))
    if name == "gaussian":
        expected = stats.norm.logpdf(y, f + r[..., 0], width)
    elif name == "student_t":
        expected = stats.t.logpdf(y, 2 + 1e-3 + np.log1p(np.exp(r[..., 2])), f + r[..., 0], width)
    else:
        mean, size = s * np.log1p(np.exp(10 * f)) / 10 * np.exp(r[..., 0]), np.sqrt(s) / width
        expected = stats.nbinom.logpmf(y, size, size / (size + mean))
    np.testing.assert_allclose(found, -expected.mean(axis=1), rtol=1e-9)


def test_negative_binomial_has_the_mean_and_the_variance_of_the_paper():
    found = LIKELIHOODS["negative_binomial"]().distribution(torch.tensor([7.0, 0.4], dtype=torch.float64))
    assert found.mean.item() == pytest.approx(7.0)
    assert found.variance.item() == pytest.approx(7 + 0.4 * 49)


@pytest.mark.parametrize("name", ["gaussian", "student_t"])
def test_intervals_widen_as_those_of_the_true_process(name):
    y = autoregression(3000)
    model = rc.Forecaster(horizon=6, likelihood=name, **QUICK).fit(5000 + 100 * y)
    paths = model.sample_paths(4000)
    true = 100 * np.sqrt(np.cumsum(0.64 ** np.arange(6)))
    # The estimated process has its own spread, and the scale is one of the window: 10 % holds both.
    np.testing.assert_allclose(paths.std(axis=0), true, rtol=0.1)
    assert np.abs(paths.mean(axis=0) - 5000 - 100 * least_squares_forecast(y, 2400, 16, 6)).max() < 15
    # Steps hang together: neighbours of an autoregression are correlated.
    assert np.corrcoef(paths[:, 4], paths[:, 5])[0, 1] == pytest.approx(0.8 * true[4] / true[5], abs=0.06)


def test_counts_have_their_mean_their_variance_and_whole_quantiles():
    """Eight series: one alone leaves the regression an error of 15 %."""
    every, mean = zip(*(seasonal_counts(900, seed) for seed in range(8)), strict=True)
    model = rc.Forecaster(horizon=12, season=12, likelihood="negative_binomial", **QUICK)
    model.fit([counts[:888] for counts in every])
    paths, truth = model.sample_paths(500), mean[0][888:]  # (8, 500, 12)
    assert (paths == np.round(paths)).all()
    assert paths.min() >= 0
    assert np.abs(paths.mean(axis=(0, 1)) / truth - 1).max() < 0.15
    assert paths.var(axis=1).mean() == pytest.approx((truth + truth**2 / 4).mean(), rel=0.2)
    lower, upper = model.predict_interval(level=0.8)
    assert (lower == np.round(lower)).all()
    assert (upper >= lower).all()


def test_layers_learn_what_a_line_cannot():
    """The spread of the noise follows a covariate: the linear forecast is the same, the likelihood is not."""
    random = np.random.default_rng(0)
    loud = (np.arange(900) // 3 % 2).astype(float)
    y = random.normal(size=900) * np.where(loud > 0, 5.0, 0.5)
    table = pa.table({"unique_id": ["a"] * 900, "ds": np.arange(900), "y": y, "loud": loud})
    options = {"known": ("loud",), "likelihood": "gaussian"} | QUICK | {"epochs": 30}
    model = rc.Forecaster(horizon=6, **options).fit(table.slice(0, 894))
    assert model.share_ > 0
    spread = model.sample_paths(2000, future=table.slice(894).drop_columns(["y"]))[0].std(axis=0)
    ahead = loud[894:] > 0
    assert spread[ahead].min() > 3
    assert spread[~ahead].max() < 1.5


def test_linear_forecast_of_many_windows_is_that_of_one():
    y = autoregression(80)
    model = rc.Forecaster(horizon=3, season=5, context=20, likelihood="gaussian", **QUICK).fit(y)
    model.network_.linear.copy_(torch.randn(model.network_.linear.shape, dtype=torch.float64) / 10)
    model.network_.season.fill_(5)
    given = model._panel(y)
    found = _linear_forecasts(model, given)[0]
    one = LinearForecast(model.network_.linear.numpy()[None], 5, 20)
    for at in (2, 4, 11, 40, 79):
        past = model.windows_.history(given, Origin(0, at), 1)
        assert found[at] == pytest.approx(past.level + past.spread * one(past)[0], abs=1e-12)


def test_paths_start_from_the_distribution_that_training_sees():
    """The first step of paths has the parameters of the forward pass, for a stacked cell with two states."""
    y = autoregression(120)
    options = QUICK | {"cell": "lstm", "num_layers": 2}
    model = rc.Forecaster(horizon=2, season=4, context=24, likelihood="gaussian", **options).fit(y)
    model.network_.share.fill_(1.0)
    torch.nn.init.normal_(model.network_.readout.V)
    given = model._panel(y)
    at = Origin(0, 110)
    example = _examples(model, given, [at], _linear_forecasts(model, given))
    x = torch.tensor(example.inputs[0], dtype=torch.float32)[:, None]
    with torch.no_grad():
        center, spread = model.network_(x, torch.tensor([len(x)]))[0, 0].tolist()
    past = model.windows_.history(given, at, 2)
    scaling = model.windows_.scaling(given, 0)
    center = scaling.invert(past.level + past.spread * center)[0]
    paths = model.sample_paths(20000, data=y[:110])[:, 0]
    width = spread * past.spread * scaling.scale[0]
    assert paths.mean() == pytest.approx(center, abs=0.03 * width)
    assert paths.std() == pytest.approx(width, rel=0.03)


@pytest.mark.parametrize("name", [None, *LIKELIHOODS])
def test_a_folder_gives_the_same_paths(name, tmp_path):
    counts, _ = seasonal_counts(90)
    model = rc.Forecaster(horizon=4, season=12, likelihood=name, **QUICK).fit([counts, counts[10:] + 3])
    model.save(tmp_path / "model")
    again = rc.Forecaster.load(tmp_path / "model")
    for h in (3, 9):
        first = model.sample_paths(7, h, random_state=1)
        assert first.shape == (2, 7, h)
        np.testing.assert_array_equal(first, again.sample_paths(7, h, random_state=1))
        np.testing.assert_array_equal(model.predict(h), again.predict(h))
    assert (first != model.sample_paths(7, 9, random_state=2)).any()


def test_what_a_likelihood_does_not_describe_is_refused():
    y = autoregression(60)
    with pytest.raises(InputError, match="likelihood"):
        rc.Forecaster(likelihood="cauchy", **QUICK).fit(y)
    with pytest.raises(InputError, match="counts from 0"):
        rc.Forecaster(horizon=4, likelihood="negative_binomial", **QUICK).fit(y)
    with pytest.raises(InputError, match="2 targets"):
        rc.Forecaster(horizon=4, likelihood="gaussian", **QUICK).fit(np.stack([y, y], axis=1)[None])
    with pytest.raises(InputError, match="bidirectional"):
        rc.Forecaster(horizon=4, likelihood="gaussian", cell_options={"bidirectional": True}, **QUICK).fit(y)
    with pytest.raises(InputError, match="sampled paths"):
        rc.Forecaster(horizon=4, likelihood="gaussian", **QUICK).fit(y).export("model.onnx")


def test_inspection_and_summary_know_a_likelihood():
    y = autoregression(80)
    model = rc.Forecaster(horizon=4, likelihood="student_t", **QUICK).fit(y)
    network, sample = model.inspection_inputs(y)
    assert network(sample.inputs, lengths=sample.lengths).shape == (len(sample.inputs), 1, 3)
    assert model.summary().startswith("The t distribution of the next value")
    assert isinstance(model.windows_, Windows)
