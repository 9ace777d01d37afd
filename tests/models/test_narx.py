"""NARX networks: both modes, least squares, and gradients that decay by λ^{n/k}."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.errors import InputError, OptionError, ShapeError


def arx(steps: int = 400, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """y_t = .5 y_{t-1} - .3 y_{t-4} + .8 x_t + .2 x_{t-3} + .1"""
    x = torch.randn(steps, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    y = torch.zeros_like(x)
    for t in range(steps):
        past = 0.5 * (y[t - 1] if t > 0 else 0) - 0.3 * (y[t - 4] if t > 3 else 0)
        y[t] = past + 0.8 * x[t] + 0.2 * (x[t - 3] if t > 2 else 0) + 0.1
    return x, y


def test_linear_case_is_least_squares():
    x, y = arx()
    noisy = y + 0.1 * torch.randn_like(y)
    model = rc.NARX(1, 1, input_delays=(0, 3), output_delays=(1, 4)).double().solve(x, noisy)
    signals = {"x": x.flatten().numpy(), "y": noisy.flatten().numpy()}
    columns = [
        np.concatenate([np.zeros(k), signals[n][: 400 - k]]) for n, k in (("x", 0), ("x", 3), ("y", 1), ("y", 4))
    ]
    expected = np.linalg.lstsq(np.stack([*columns, np.ones(400)], axis=1), signals["y"], rcond=None)[0]
    a = model.cell.a
    found = torch.cat([a.U.flatten(), a.W_1.flatten(), a.W_4.flatten(), a.b])
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-9, atol=1e-11)


def test_a_system_without_noise_is_identified_and_simulated():
    model = rc.NARX(1, 1, input_delays=(0, 1, 2, 3), output_delays=(1, 2, 3, 4)).double().solve(*arx(seed=0))
    x, y = arx(seed=1)
    torch.testing.assert_close(model(x), y, rtol=1e-9, atol=1e-9)  # hearing itself all the way
    assert model.cell.a.W_4.item() == pytest.approx(-0.3, abs=1e-9)


def test_ridge_shrinks_and_gradient_descent_agrees():
    x, y = arx(100)
    model = rc.NARX(1, 1, input_delays=(0, 3), output_delays=(1, 4)).double().solve(x, y, ridge=5.0)
    penalty = 5.0 * sum(p.square().sum() for p in model.parameters())
    loss = (model(x, y) - y).square().sum() + penalty
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert max(g.abs().max().item() for g in gradients) < 1e-9


def test_both_modes_agree_on_a_perfect_model():
    x, _ = arx(50)
    model = rc.NARX(1, 2, 7, input_delays=(0, 2), output_delays=(1, 3), output="tanh").double()
    itself = model(x)
    torch.testing.assert_close(model(x, itself), itself, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(x, torch.zeros_like(itself)), itself, atol=1e-3)


def test_one_delay_and_no_output_map_is_the_rnn():
    model, layer = rc.NARX(3, 4, input_delays=(0,), output_delays=(1,), output="tanh").double(), rc.RNN(3, 4).double()
    with torch.no_grad():
        layer.cells[0].a.W.copy_(model.cell.a.W)
        layer.cells[0].a.U.copy_(model.cell.a.U)
        layer.cells[0].a.b.copy_(model.cell.a.b)
    x = torch.randn(12, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x), layer(x)[0], rtol=1e-12, atol=1e-12)


def test_results_do_not_depend_on_padding():
    model = rc.NARX(1, 1, 5, batch_first=True).double()
    x = torch.randn(2, 9, 1, dtype=torch.float64)
    y = model(x, lengths=torch.tensor([9, 4]))
    torch.testing.assert_close(y[1:, :4], model(x[1:, :4]), rtol=1e-12, atol=1e-12)
    assert (y[1, 4:] == 0).all()


@pytest.mark.parametrize("k", [1, 3, 6])
def test_gradients_decay_by_the_kth_root(k: int):
    """With one delay k and |W| = λ in the linear range, |∂y_T/∂x_{T-n}| = λ^{n/k} · |∂y_T/∂x_T| at multiples of k."""
    rate, steps = 0.8, 61
    model = rc.NARX(1, 4, input_delays=(0,), output_delays=(k,), output="tanh").double()
    with torch.no_grad():
        model.cell.a.W.copy_(rate * torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0])
    x = torch.full((steps, 1, 1), 1e-7, dtype=torch.float64, requires_grad=True)
    y = model(x)[-1, 0]
    rows = torch.stack([torch.autograd.grad(value, x, retain_graph=True)[0].flatten() for value in y])  # (4, T)
    norms = rows.norm(dim=0).flip(0)
    for n in range(0, steps, k):
        assert norms[n].item() / norms[0].item() == pytest.approx(rate ** (n / k), rel=1e-6)
    if k > 1:
        assert norms[1].item() == 0.0


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="input_delays"):
        rc.NARX(1, 1, input_delays=())
    with pytest.raises(InputError, match="delays"):
        rc.NARX(1, 1, output_delays=(0, 1))
    x = torch.zeros(5, 2, 1)
    with pytest.raises(OptionError, match="not linear"):
        rc.NARX(1, 1, 4).solve(x, x)
    with pytest.raises(ShapeError, match="as many steps"):
        rc.NARX(1, 1)(x, x[1:])
    with pytest.raises(ShapeError, match="x: got shape"):
        rc.NARX(2, 1)(x)
