"""ES-RNN: its smoothing against loops in NumPy, its forecasts and its losses by hand, and what it learns."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.errors import InputError, ShapeError
from recurra.models import ESRNN, SmoothedWindows


def series(count: int, steps: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    t = np.arange(steps)[:, None]
    short, long = np.exp(0.3 * random.normal(size=(4, count))), np.exp(0.3 * random.normal(size=(12, count)))
    return 20 * short[t[:, 0] % 4] * long[t[:, 0] % 12] * np.exp(0.02 * random.normal(size=(steps, count)))


def smoothed(y, alpha, gammas, first_level, starts):
    """Levels and factors of one series, by the equations of the paper."""
    factors, level, levels = [list(start) for start in starts], first_level, []
    for t, value in enumerate(y):
        now = [factor[t] for factor in factors]
        level = alpha * value / np.prod(now) + (1 - alpha) * level
        levels.append(level)
        for k, factor in enumerate(factors):
            others = np.prod(now[:k] + now[k + 1 :])
            factor.append(gammas[k] * value / (level * others) + (1 - gammas[k]) * now[k])
    return np.array(levels), [np.array(factor) for factor in factors]


@pytest.mark.parametrize("seasons", [(), (4,), (4, 12)])
def test_levels_and_seasons_are_those_of_a_loop(seasons):
    model = ESRNN(3, 5, seasons, hidden_size=4, dilation=(1, 2)).double()
    for weights in (model.coefficients.weight, *(table.weight for table in model.first_seasons)):
        torch.nn.init.normal_(weights, std=0.3)
    y, lengths, numbers = torch.tensor(series(2, 40)), torch.tensor([40, 29]), torch.tensor([2, 0])
    level, factors = model.smooth(y, numbers, lengths)
    for b, n in enumerate(lengths.tolist()):
        rates = torch.sigmoid(model.coefficients.weight[numbers[b]]).detach().numpy()
        starts = [factor[:season, b].exp().detach().numpy() for factor, season in zip(factors, seasons, strict=True)]
        first = y[0, b].item() / np.prod([start[0] for start in starts])
        levels, found = smoothed(y[:n, b].numpy(), rates[0], rates[1:], first, starts)
        np.testing.assert_allclose(level[:n, b].exp().detach(), levels, rtol=1e-10)
        for factor, expected in zip(factors, found, strict=True):
            np.testing.assert_allclose(factor[: len(expected), b].exp().detach(), expected, rtol=1e-10)


def test_an_untrained_network_leaves_the_smoothed_forecast():
    """Its readout starts at zero: level times seasons, repeated beyond one season."""
    model = ESRNN(2, 6, (4,), hidden_size=4, dilation=(1,), quantiles=(0.1, 0.5)).double()
    y = torch.tensor(series(2, 30))
    level, (factor,) = model.smooth(y, torch.arange(2), torch.tensor([30, 30]))
    expected = level[-1].exp()[:, None] * factor[30:].exp().t()[:, [0, 1, 2, 3, 0, 1]]
    torch.testing.assert_close(model(y, torch.arange(2)), expected[:, :, None].expand(2, 6, 2))


def test_the_loss_is_the_pinball_of_logarithms_and_ignores_padding():
    model = ESRNN(2, 3, (4,), hidden_size=4, dilation=(1, 2), quantiles=(0.3,)).double()
    torch.nn.init.normal_(model.readout.V)
    y, numbers, lengths = torch.tensor(series(2, 30)), torch.arange(2), torch.tensor([30, 20])
    found = model.loss(y, numbers, lengths)
    by_hand = []
    for at in range(model.window, 18):  # steps known
        forecast = model(y[:at, 1:], numbers[1:])[0, :, 0].log()
        missed = y[at : at + 3, 1].log() - forecast
        by_hand.append(torch.where(missed > 0, 0.3 * missed, -0.7 * missed).mean())
    torch.testing.assert_close(found[1], torch.stack(by_hand).mean())
    spoiled = y.clone()
    spoiled[20:, 1] = -7.0
    torch.testing.assert_close(model.loss(spoiled, numbers, lengths), found)


def test_all_of_it_learns_and_categories_are_read():
    y = series(4, 80)
    model = ESRNN(4, 4, (4, 12), hidden_size=8, dilation=(1, 2), categories=2)
    about = torch.stack([torch.arange(4.0), torch.arange(4.0) % 2], dim=1)
    data = rc.data.SequenceSet.from_arrays([torch.tensor(y[:, [k]]).float() for k in range(4)], about, "regression")
    before = {name: value.clone() for name, value in model.named_parameters()}
    history = rc.train.fit(model, data, loss=SmoothedWindows(), epochs=30, lr=1e-2, progress=False).history
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert all(not torch.equal(value, before[name]) for name, value in model.named_parameters())
    values, numbers = torch.tensor(y).float(), torch.arange(4)
    one, other = (model(values, numbers, category=torch.full((4,), k)) for k in range(2))
    assert not torch.equal(one, other)


def test_wrong_values_and_shapes_are_refused_by_name():
    model = ESRNN(2, 3, (4,), hidden_size=4, dilation=(1,))
    with pytest.raises(InputError, match="not positive"):
        model(torch.zeros(20, 2), torch.arange(2))
    with pytest.raises(ShapeError, match="numbers of the series"):
        model(torch.ones(20, 2), torch.arange(3))
    with pytest.raises(ShapeError, match="7 or more"):
        model.loss(torch.ones(5, 2), torch.arange(2))
    with pytest.raises(InputError, match="seasons"):
        ESRNN(2, 3, (1,))
    with pytest.raises(InputError, match="category"):
        ESRNN(2, 3, (4,), dilation=(1,), categories=3)(torch.ones(20, 2), torch.arange(2))
