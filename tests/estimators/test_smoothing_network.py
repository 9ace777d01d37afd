"""ES-RNN inside the forecaster: what it reads, what it forecasts, how much of it validation takes."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.errors import InputError
from recurra.estimators.smoothing_network import SmoothingNetwork, network_inputs, smoothing_inputs
from recurra.estimators.windows import Origin

QUICK = {
    "cell": "gru",
    "horizon": 4,
    "season": 6,
    "hidden_size": 4,
    "epochs": 1,
    "random_state": 0,
    "network": "es_rnn",
}


def shops(count: int = 3, steps: int = 60, low: float = 20.0) -> list[np.ndarray]:
    random, t = np.random.default_rng(0), np.arange(steps)
    return [low + 10 * np.sin(t + k) + random.normal(size=steps) for k in range(count)]


@pytest.mark.parametrize("low", [20.0, 0.0], ids=["positive", "of both signs"])
def test_its_forecast_is_that_of_the_model_on_the_window(low):
    """Logarithms or flat values relative to the last one go in; errors of the base forecast come out."""
    model = rc.Forecaster(**QUICK, validation=0).fit(y := shops(low=low))
    given, origins, _ = model._origins(4, None, None)
    past = model.windows_.history(given, origins[1], 4)
    base = model.base_(past)
    x = torch.tensor(network_inputs(model, past, base))
    network = model.network_.double()
    window = y[1][-model.context_size :]
    spread = past.spread * past.units.scale
    values = window / window[-1] if low else np.exp((window - window[-1]) / spread / 10)
    with torch.no_grad():
        found = network(x[:, None], torch.tensor([len(x)]))[0].numpy()
        values = network.model(torch.tensor(values)[:, None], torch.tensor([1]))[0].numpy()
    expected = values * window[-1] if low else window[-1] + 10 * spread * np.log(values)
    unit = model.base_.shares(past).unit
    scaled = past.level + past.spread * (base[:, None] + unit * found)
    np.testing.assert_allclose(past.units.mean + past.units.scale * scaled, expected, rtol=1e-9, atol=1e-9)


def test_training_sees_the_steps_ahead_and_forecasts_do_not():
    model = rc.Forecaster(**QUICK, validation=0).fit(shops())
    inputs = network_inputs(model, past := model.windows_.history(model.past_, Origin(0, 20), 4), np.arange(4.0))
    assert not inputs[-4:, 0].any()
    assert inputs[-4:, 5].tolist() == [0, 1, 2, 3]
    assert not inputs[:-4, 5].any()
    assert smoothing_inputs(past, np.zeros(4), 0, 1.0, window=40).shape == (44, 6)  # the first value fills the front


def test_validation_weighs_it_beside_the_base_forecast(tmp_path):
    """Seasons that grow and shrink at random: smoothing is the truth, and more than the base forecast knows."""
    random, t = np.random.default_rng(0), np.arange(200)
    series = [
        50 * np.exp(0.5 * np.sin(t * np.pi / 3 + k) + np.cumsum(0.05 * random.normal(size=200))) for k in range(4)
    ]
    model = rc.Forecaster(**QUICK | {"epochs": 3}).fit(series)
    assert 0 <= model.share_ <= 1
    assert isinstance(model.network_, SmoothingNetwork)
    assert ("ES-RNN" in model.summary()) == (model.share_ > 0)
    none, model.share_ = model.predict(), 0.5
    model.network_.share.fill_(0.5)
    model.save(tmp_path / "m")
    half = model.predict()
    assert np.abs(half - none).max() > 1e-3
    np.testing.assert_array_equal(rc.load(tmp_path / "m").predict(), half)
    assert model.predict(10).shape == (4, 10)
    assert np.isfinite(model.predict_quantiles(10)).all()


def test_other_series_are_smoothed_as_the_mean_of_all():
    model = rc.Forecaster(**QUICK, validation=0).fit(shops())
    weights = model.network_.model.coefficients.weight
    torch.testing.assert_close(weights[-1], weights[:-1].mean(dim=0))
    assert np.isfinite(model.predict(data=[np.array([3.0, 4.0, 5.0])])).all()


def test_what_it_does_not_do_is_named(tmp_path):
    with pytest.raises(InputError, match="network"):
        rc.Forecaster(network="arima").fit(shops())
    with pytest.raises(InputError, match="likelihood"):
        rc.Forecaster(**QUICK, likelihood="gaussian").fit(shops())
    model = rc.Forecaster(**QUICK, validation=0).fit(shops())
    with pytest.raises(InputError, match="es_rnn"):
        model.export(tmp_path / "m.onnx")
    with pytest.raises(InputError, match="es_rnn"):
        rc.inspect.health(model, shops())
