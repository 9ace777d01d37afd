"""Exponents, echoes and memory against answers that are known."""

import math

import pytest
import torch

import recurra as rc
from recurra.dynamics import echo_state, henon, logistic, lorenz, memory_capacity, recalled
from recurra.errors import InputError


def test_logistic_map_has_exponent_ln_2():
    exponent = logistic(4.0).lyapunov(torch.rand(64, 1, dtype=torch.float64), 2000, transient=100, every=20)
    assert exponent.item() == pytest.approx(math.log(2), abs=2e-3)


def test_logistic_map_at_period_one_contracts():
    exponent = logistic(2.8).lyapunov(torch.tensor([0.3], dtype=torch.float64), 200, transient=200)
    assert exponent.item() == pytest.approx(math.log(0.8), abs=1e-9)  # |2 - r| at the fixed point


def test_linear_system_has_the_logarithms_of_its_moduli():
    W = torch.diag(torch.tensor([0.9, -0.5, 0.2], dtype=torch.float64)) + torch.triu(torch.ones(3, 3).double(), 1)
    exponents = rc.DynamicalSystem.linear(W).lyapunov(torch.zeros(3, dtype=torch.float64), 500, transient=200)
    torch.testing.assert_close(
        exponents, torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64).log(), rtol=1e-9, atol=1e-9
    )


def test_henon_map():
    starts = 0.1 * torch.randn(16, 2, dtype=torch.float64)
    exponents = henon().lyapunov(starts, 3000, transient=200, every=5)
    assert exponents[0].item() == pytest.approx(0.4192, abs=5e-3)
    assert exponents.sum().item() == pytest.approx(math.log(0.3), abs=1e-9)


def test_lorenz():
    starts = torch.randn(256, 3, dtype=torch.float64) + torch.tensor([0.0, 0.0, 25.0], dtype=torch.float64)
    exponents = lorenz(dt=0.01).lyapunov(starts, 1500, transient=1000, every=10)
    assert exponents[0].item() == pytest.approx(0.906, abs=0.02)
    assert exponents[1].item() == pytest.approx(0.0, abs=0.02)
    assert exponents.sum().item() == pytest.approx(-(10 + 1 + 8 / 3), abs=1e-3)


def test_fewer_exponents_are_the_first_ones():
    W = torch.randn(6, 6, dtype=torch.float64)
    system, h = rc.DynamicalSystem.neural(W), torch.randn(6, dtype=torch.float64)
    all_of_them = system.lyapunov(h, 400, transient=300)
    torch.testing.assert_close(system.lyapunov(h, 400, transient=300, count=2), all_of_them[:2], rtol=0.05, atol=0.02)


def test_exponents_of_a_driven_leaky_cell():
    cell = rc.cells.LeakyRNN(1, 5, tau=10.0).double()
    torch.nn.init.zeros_(cell.a.W)
    x = torch.randn(300, 1, dtype=torch.float64)
    exponents = rc.DynamicalSystem.of(cell).lyapunov(torch.zeros(5, dtype=torch.float64), inputs=x)
    torch.testing.assert_close(exponents, torch.full((5,), math.log(0.9)).double(), rtol=1e-6, atol=1e-6)


def reservoir(radius: float, size: int = 40) -> rc.DynamicalSystem:
    W = rc.init.spectral_radius_(torch.empty(size, size, dtype=torch.float64), radius)
    return rc.DynamicalSystem.neural(W, torch.randn(size, 1, dtype=torch.float64))


def test_echo_state_holds_below_one_and_breaks_far_above():
    starts, x = torch.randn(3, 40, dtype=torch.float64), 0.1 * torch.randn(400, 1, dtype=torch.float64)
    calm, wild = echo_state(reservoir(0.8), x, starts), echo_state(reservoir(3.0), x, starts)
    assert calm.holds
    assert calm.distances[-1] < 1e-10
    assert not wild.holds
    assert wild.rate > -1e-2
    assert wild.distances[-1] > 0.1


def test_strong_input_restores_the_echo():
    system, starts = reservoir(1.5), torch.randn(2, 40, dtype=torch.float64)
    silent, loud = torch.zeros(400, 1, dtype=torch.float64), 10 * torch.randn(400, 1, dtype=torch.float64)
    assert not echo_state(system, silent, starts).holds
    assert echo_state(system, loud, starts).holds


def test_a_delay_line_remembers_its_length():
    size = 12
    line = torch.diag(torch.ones(size - 1, dtype=torch.float64), -1)
    first = torch.eye(size, 1, dtype=torch.float64)
    memory = memory_capacity(rc.DynamicalSystem.linear(line, first), size, delays=20)
    assert memory.total == pytest.approx(size - 1, abs=0.1)  # the first of its units holds the present
    assert (memory.recalled[: size - 1] > 0.999).all()
    assert (memory.recalled[size - 1 :] < 0.02).all()


def test_memory_is_at_most_the_number_of_units():
    memory = memory_capacity(reservoir(0.9, 20), 20, delays=60, scale=0.05)
    assert 5 < memory.total <= 20.5


def test_noise_without_memory_recalls_nothing():
    signal = torch.randn(3000, dtype=torch.float64)
    assert recalled(torch.randn(3000, 10, dtype=torch.float64), signal, delays=10).total < 0.05


def test_what_is_wrong_is_named():
    with pytest.raises(InputError, match="count"):
        henon().lyapunov(torch.zeros(2, dtype=torch.float64), 10, count=3)
    with pytest.raises(InputError, match="transient of 20"):
        henon().lyapunov(torch.zeros(2, dtype=torch.float64), transient=20)
    with pytest.raises(InputError, match="overflows"):
        henon().lyapunov(torch.full((2,), 100.0, dtype=torch.float64), 100)
    with pytest.raises(InputError, match="identical starts"):
        echo_state(reservoir(0.5), torch.zeros(5, 1, dtype=torch.float64), torch.zeros(2, 40, dtype=torch.float64))
