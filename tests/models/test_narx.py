"""NARX networks: both modes, least squares, and gradients that decay by λ^{n/k}."""

from itertools import pairwise

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
    torch.testing.assert_close(model(x)[0], y, rtol=1e-9, atol=1e-9)  # hearing itself all the way
    assert model.cell.a.W_4.item() == pytest.approx(-0.3, abs=1e-9)


def test_ridge_shrinks_and_gradient_descent_agrees():
    x, y = arx(100)
    model = rc.NARX(1, 1, input_delays=(0, 3), output_delays=(1, 4)).double().solve(x, y, ridge=5.0)
    penalty = 5.0 * sum(p.square().sum() for p in model.parameters())
    loss = (model(x, y)[0] - y).square().sum() + penalty
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    assert max(g.abs().max().item() for g in gradients) < 1e-9


def test_both_modes_agree_on_a_perfect_model():
    x, _ = arx(50)
    model = rc.NARX(1, 2, 7, input_delays=(0, 2), output_delays=(1, 3), output="tanh").double()
    itself = model(x)[0]
    torch.testing.assert_close(model(x, itself)[0], itself, rtol=1e-12, atol=1e-12)
    assert not torch.allclose(model(x, torch.zeros_like(itself))[0], itself, atol=1e-3)


def test_one_delay_and_no_output_map_is_the_rnn():
    model, layer = rc.NARX(3, 4, input_delays=(0,), output_delays=(1,), output="tanh").double(), rc.RNN(3, 4).double()
    with torch.no_grad():
        layer.cells[0].a.W.copy_(model.cell.a.W)
        layer.cells[0].a.U.copy_(model.cell.a.U)
        layer.cells[0].a.b.copy_(model.cell.a.b)
    x = torch.randn(12, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(model(x)[0], layer(x)[0], rtol=1e-12, atol=1e-12)


def random_batch(steps: int = 14) -> tuple[rc.NARX, torch.Tensor, torch.Tensor]:
    model = rc.NARX(2, 1, 5, input_delays=(0, 3), output_delays=(1, 2)).double()
    return (
        model,
        torch.randn(steps, 3, 2, dtype=torch.float64),
        torch.randn(steps, 3, 1, dtype=torch.float64),
    )


def alone(model: rc.NARX, x: torch.Tensor, y: torch.Tensor | None, state=None):
    found, after, trace = model(x[:, None], None if y is None else y[:, None], state=state, return_trace=True)
    return found[:, 0], [line[0, 0] for line in after], {name: value[:, 0] for name, value in trace.items()}


@pytest.mark.parametrize("forced", [False, True])
def test_results_do_not_depend_on_padding(forced: bool):
    model, x, y = random_batch()
    lengths = torch.tensor([14, 4, 1])
    padded, truth = x.clone(), y.clone()
    for b, n in enumerate(lengths):
        padded[n:, b] = truth[n:, b] = torch.nan
    found, state = model(padded, truth if forced else None, lengths=lengths)
    found.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    for b, n in enumerate(lengths):
        expected, after, _ = alone(model, x[:n, b], y[:n, b] if forced else None)
        torch.testing.assert_close(found[:n, b], expected, rtol=1e-12, atol=1e-12)
        assert (found[n:, b] == 0).all()
        for line, own in zip(state, after, strict=True):
            torch.testing.assert_close(line[0, b], own, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("forced", [False, True])
def test_two_chunks_are_the_whole(forced: bool):
    model, x, y = random_batch()
    whole, end = model(x, y if forced else None)
    first, state = model(x[:5], y[:5] if forced else None)
    second, after = model(x[5:], y[5:] if forced else None, state=state)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-13, atol=1e-13)
    for line, expected in zip(after, end, strict=True):
        torch.testing.assert_close(line, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("forced", [False, True])
def test_resets_empty_the_delay_lines(forced: bool):
    model, x, y = random_batch()
    _, before = model(torch.randn_like(x), y if forced else None)
    resets = torch.zeros(14, 3, dtype=torch.bool)
    resets[5, 0] = resets[3, 1] = resets[9, 1] = resets[0, 2] = True
    found, state, trace = model(x, y if forced else None, state=before, resets=resets, return_trace=True)
    for b, edges in enumerate(([0, 5, 14], [0, 3, 9, 14], [0, 14])):
        after: list[torch.Tensor] = []
        for first, stop in pairwise(edges):
            start = None if resets[first, b] else type(before)(*(line[:, b : b + 1] for line in before))
            expected, after, seen = alone(model, x[first:stop, b], y[first:stop, b] if forced else None, start)
            torch.testing.assert_close(found[first:stop, b], expected, rtol=1e-12, atol=1e-12)
            for name, value in seen.items():
                torch.testing.assert_close(trace[name][first:stop, b], value, rtol=1e-12, atol=1e-12)
        for line, own in zip(state, after, strict=True):
            torch.testing.assert_close(line[0, b], own, rtol=1e-12, atol=1e-12)


def test_trace_holds_hidden_units_and_outputs():
    model, x, _ = random_batch()
    found, _, trace = model(x, return_trace=True)
    assert set(trace) == {"y", "z"}
    torch.testing.assert_close(trace["y"], found, rtol=0, atol=0)
    _, _, forced = model(x, found, return_trace=True)
    torch.testing.assert_close(trace["z"], forced["z"], rtol=1e-12, atol=1e-12)


def test_batch_first():
    model, x, y = random_batch()
    other = rc.NARX(2, 1, 5, input_delays=(0, 3), output_delays=(1, 2), batch_first=True).double()
    other.load_state_dict(model.state_dict())
    for given in ((x,), (x, y)):
        turned = [value.transpose(0, 1) for value in given]
        torch.testing.assert_close(other(*turned)[0].transpose(0, 1), model(*given)[0], rtol=0, atol=0)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_gradients_decay_by_the_kth_root(k: int):
    """With one delay k and |W| = λ in the linear range, |∂y_T/∂x_{T-n}| = λ^{n/k} · |∂y_T/∂x_T| at multiples of k."""
    rate, steps = 0.8, 61
    model = rc.NARX(1, 4, input_delays=(0,), output_delays=(k,), output="tanh").double()
    with torch.no_grad():
        model.cell.a.W.copy_(rate * torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64))[0])
    x = torch.full((steps, 1, 1), 1e-7, dtype=torch.float64, requires_grad=True)
    y = model(x)[0][-1, 0]
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
    with pytest.raises(ShapeError, match="state: got"):
        rc.NARX(1, 1)(x, state=torch.zeros(1, 2, 3))
