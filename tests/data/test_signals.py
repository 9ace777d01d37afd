"""Tasks on signals against their definitions: written out again, integrated in other ways, fitted by least squares."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from recurra.data import tasks
from recurra.data.batching import generator
from recurra.data.tasks.mackey_glass_solver import mackey_glass_series


def test_sines_by_their_definition():
    torch.set_default_dtype(torch.float64)
    try:
        batch = tasks.sines(components=3, length=50).draw(4, generator(0))
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(batch.inputs[1:], batch.targets[:-1])
    series = torch.cat([batch.inputs, batch.targets[-1:]])[:, :, 0].numpy()
    x = np.arange(51)
    basis = np.stack([f(w * x) for w in (0.2, 0.311, 0.42) for f in (np.sin, np.cos)], axis=1)
    weights, *_ = np.linalg.lstsq(basis, series, rcond=None)
    assert np.abs(basis @ weights - series).max() < 1e-9
    assert np.abs((weights.reshape(3, 2, 4) ** 2).sum(axis=1) - 1).max() < 1e-9


def test_narma10_by_its_definition():
    batch = tasks.narma10(length=60).draw(3, generator(0))
    for b in range(3):
        u = batch.inputs[:, b, 0].double().tolist()
        y = [0.0]
        for t in range(60):
            past = sum(y[t - i] if t - i >= 0 else 0.0 for i in range(10))
            y.append(0.3 * y[t] + 0.05 * y[t] * past + 1.5 * (u[t - 9] if t >= 9 else 0.0) * u[t] + 0.1)
        assert batch.targets[:, b, 0].tolist() == pytest.approx(y[1:], abs=1e-5)
    assert 0 <= float(batch.inputs.min()) < float(batch.inputs.max()) < 0.5


def test_narma10_stays_bounded_over_many_draws():
    batch = tasks.narma10(length=300).draw(2000, generator(0))
    assert float(batch.targets.abs().max()) < 1e3


def euler(past: float, steps: int, per_unit: int) -> np.ndarray:
    """The plainest integration there is."""
    lag, h = 17 * per_unit, 1 / per_unit
    x = np.full(lag + 1 + steps * per_unit, past)
    for k in range(lag, len(x) - 1):
        delayed = x[k - lag]
        x[k + 1] = x[k] + h * (0.2 * delayed / (1 + delayed**10) - 0.1 * x[k])
    return x[lag + per_unit :: per_unit]


def test_mackey_glass_against_a_plain_integration():
    """Euler's error is of first order: extrapolated to no step at all it must agree, and the differences must halve."""
    found = mackey_glass_series(torch.tensor([1.2], dtype=torch.float64), 60, 17.0)[:, 0].numpy()
    coarse, fine = euler(1.2, 60, 50), euler(1.2, 60, 100)
    assert np.abs(2 * fine - coarse - found).max() < 1e-4
    assert np.abs(fine - found).max() == pytest.approx(np.abs(coarse - found).max() / 2, rel=0.1)


def test_mackey_glass_is_of_fourth_order():
    errors = []
    exact = mackey_glass_series(torch.tensor([1.2], dtype=torch.float64), 60, 17.0, substeps=160)
    for substeps in (5, 10, 20):
        errors.append(
            float(
                (mackey_glass_series(torch.tensor([1.2], dtype=torch.float64), 60, 17.0, substeps) - exact).abs().max()
            )
        )
    assert errors[1] < 1e-7
    assert 10 < errors[0] / errors[1] < 25
    assert 10 < errors[1] / errors[2] < 25


def test_mackey_glass_against_scipy_over_the_first_delay():
    """While the past is constant the equation is an ordinary one."""
    past = 0.7
    solution = solve_ivp(
        lambda t, x: 0.2 * past / (1 + past**10) - 0.1 * x, (0, 17), [past], t_eval=range(1, 18), rtol=1e-11, atol=1e-12
    )
    found = mackey_glass_series(torch.tensor([past], dtype=torch.float64), 17, 17.0)[:, 0].numpy()
    assert np.abs(found - solution.y[0]).max() < 1e-9


def test_mackey_glass_targets_lie_ahead():
    task = tasks.mackey_glass(length=100, horizon=7, washout=20)
    batch = task.draw(2, generator(0))
    assert torch.equal(batch.inputs[7:], batch.targets[:-7])
    assert 0.2 < float(batch.inputs.min()) < float(batch.inputs.max()) < 1.5


def test_a_delay_that_is_no_whole_number_of_substeps():
    found = mackey_glass_series(torch.tensor([1.2], dtype=torch.float64), 30, 17.03)
    near = mackey_glass_series(torch.tensor([1.2], dtype=torch.float64), 30, 17.0)
    assert 1e-5 < float((found - near).abs().max()) < 0.05


def test_memory_capacity_by_its_definition():
    task = tasks.memory_capacity(delays=5, length=2000)
    batch = task.draw(4, generator(0))
    for k in range(1, 6):
        assert torch.equal(batch.targets[k:, :, k - 1], batch.inputs[:-k, :, 0])
        assert (batch.targets[:k, :, k - 1] == 0).all()
    assert task.score(batch.targets, batch) == pytest.approx(5)
    assert task.score(-3 * batch.targets + 1, batch) == pytest.approx(5)
    assert task.score(batch.inputs.expand(-1, -1, 5), batch) < 0.01  # no memory
    half = batch.targets.clone()
    half[..., 3:] = 0
    assert task.score(half, batch) == pytest.approx(3)
    noisy = batch.targets + float(batch.targets.std()) * torch.randn(batch.targets.shape)
    assert task.score(noisy, batch) == pytest.approx(2.5, abs=0.1)  # corr² of signal plus as much noise is 1/2


def test_multi_timescale_by_its_definition():
    torch.set_default_dtype(torch.float64)
    try:
        batch = tasks.multi_timescale(period=40, length=200).draw(5, generator(0))
    finally:
        torch.set_default_dtype(torch.float32)
    for b in range(5):
        u, pulse, target = batch.inputs[:, b, 0].numpy(), batch.inputs[:, b, 1].numpy(), batch.targets[:, b, 0].numpy()
        starts = np.flatnonzero(pulse)
        assert (np.diff(starts) == 40).all()
        slow = np.sin(2 * np.pi * (np.arange(200) - starts[0]) / 40)
        fast = target - slow
        assert np.abs(fast[1:] - (fast[:-1] + u[1:]) / 2).max() < 1e-12
