"""Dynamical systems: orbits against closed forms, chunks against the whole, bad input."""

import math

import pytest
import torch

import recurra as rc
from recurra.dynamics import henon, logistic, lorenz
from recurra.errors import InputError, OptionError, ShapeError


def matrix(size: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(size, size, dtype=torch.float64) / math.sqrt(size)


def test_linear_system_is_a_matrix_power():
    W, h = matrix(5), torch.randn(5, dtype=torch.float64)
    orbit = rc.DynamicalSystem.linear(W).simulate(h, 7)
    for t, point in enumerate(orbit):
        torch.testing.assert_close(point, torch.linalg.matrix_power(W, t) @ h, rtol=1e-12, atol=1e-12)


def test_a_batch_of_states_is_simulated_as_one():
    system, starts = rc.DynamicalSystem.neural(matrix(4)), torch.randn(3, 4, dtype=torch.float64)
    together = system.simulate(starts, 5)
    alone = torch.stack([system.simulate(h, 5) for h in starts], dim=1)
    torch.testing.assert_close(together, alone, rtol=1e-13, atol=1e-13)


def test_neural_system_is_the_rnn():
    cell = rc.cells.RNN(3, 4).double()
    system = rc.DynamicalSystem.neural(cell.a.W, cell.a.U, cell.a.b)
    x, h = torch.randn(6, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    torch.testing.assert_close(system.simulate(h, inputs=x), rc.DynamicalSystem.of(cell).simulate(h, inputs=x))
    silent = rc.DynamicalSystem.neural(cell.a.W, b=cell.a.b).simulate(h, 6)
    torch.testing.assert_close(silent, system.simulate(h, inputs=torch.zeros_like(x)))


@pytest.mark.parametrize("name", ["rnn", "lstm", "delay_rnn", "scrn", "orthogonal_rnn"])
def test_a_cell_as_a_system_is_the_layer(name: str):
    layer = rc.layer(name, 3, 4).double()
    x = torch.randn(9, 3, dtype=torch.float64)
    system = rc.DynamicalSystem.of(layer)
    size = sum(math.prod(spec.shape(1)) for spec in layer.cell_list[0].carried)
    orbit = system.simulate(torch.zeros(size, dtype=torch.float64), inputs=x)
    _, state = layer(x)
    final = state if isinstance(state, tuple) else (state,)
    torch.testing.assert_close(orbit[-1], torch.cat([s.reshape(-1) for s in final]), rtol=1e-12, atol=1e-12)
    again = system.simulate(orbit[4], inputs=x[4:])  # two chunks with the state carried over
    torch.testing.assert_close(again, orbit[4:], rtol=0, atol=0)


def test_unfolding_composes():
    W, h = matrix(3), torch.randn(3, dtype=torch.float64)
    torch.testing.assert_close(rc.DynamicalSystem.linear(W).unfold(3)(h), W @ W @ W @ h)
    U, x = torch.randn(3, 2, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    driven = rc.DynamicalSystem.neural(W, U)
    torch.testing.assert_close(driven.unfold(4)(h, x), driven.simulate(h, inputs=x)[-1])


def test_jacobians_along_an_orbit():
    W, U = matrix(4), torch.randn(4, 2, dtype=torch.float64)
    system, x = rc.DynamicalSystem.neural(W, U), torch.randn(5, 2, dtype=torch.float64)
    orbit = system.simulate(torch.randn(4, dtype=torch.float64), inputs=x)
    expected = torch.stack([torch.diag(1 - h**2) @ W for h in orbit[1:]])
    torch.testing.assert_close(system.jacobians(orbit[:-1], x), expected, rtol=1e-12, atol=1e-12)


def test_flow_of_a_linear_field_is_the_exponential():
    A = torch.tensor([[0.0, 1.0], [-1.0, -0.1]], dtype=torch.float64)
    system = rc.DynamicalSystem.flow(lambda h: h @ A.T, dt=0.01)
    h = torch.tensor([1.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(system.simulate(h, 300)[-1], torch.linalg.matrix_exp(3 * A) @ h, rtol=1e-9, atol=1e-9)


def test_fixed_points_of_the_logistic_map():
    found = logistic(3.2).fixed_points(torch.linspace(0.05, 0.95, 7, dtype=torch.float64)[:, None])
    points, order = found.points.squeeze(1).sort()
    torch.testing.assert_close(points, torch.tensor([0.0, 1 - 1 / 3.2], dtype=torch.float64), rtol=1e-8, atol=1e-8)
    slopes = found.eigenvalues.squeeze(1).real[order]  # r and 2 - r
    torch.testing.assert_close(slopes, torch.tensor([3.2, -1.2], dtype=torch.float64), rtol=1e-7, atol=1e-7)
    assert not found.stable.any()


def test_fixed_points_of_a_hopfield_network():
    pattern = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)
    W = torch.outer(pattern, pattern) / 4 * 2.0
    system = rc.DynamicalSystem.neural(W)
    found = system.fixed_points(torch.randn(40, 4, dtype=torch.float64))
    attractors = found.points[found.stable]
    level = system.simulate(0.5 * pattern, 200)[-1].abs()
    assert len(found) == 3  # the pattern, its negative, and the origin between them
    torch.testing.assert_close(attractors.abs(), level.expand(2, 4), rtol=1e-8, atol=1e-8)


def test_fixed_points_of_a_driven_system_hold_the_input():
    W, U = matrix(3, 0.5), torch.randn(3, 2, dtype=torch.float64)
    system, x = rc.DynamicalSystem.linear(W, U), torch.randn(2, dtype=torch.float64)
    found = system.fixed_points(torch.randn(4, 3, dtype=torch.float64), inputs=x)
    expected = torch.linalg.solve(torch.eye(3, dtype=torch.float64) - W, U @ x)
    torch.testing.assert_close(found.points, expected[None], rtol=1e-9, atol=1e-9)


def test_bifurcation_doubles_the_period():
    start = torch.tensor([0.3], dtype=torch.float64)
    sweep = rc.DynamicalSystem.bifurcation(
        logistic, torch.tensor([2.8, 3.2, 3.5, 3.55, 3.83, 4.0]), start, transient=3000
    )
    assert sweep.periods().tolist() == [1, 2, 4, 8, 3, 0]
    assert sweep.points.shape == (6, 64, 1)


def test_what_is_wrong_is_named():
    h = torch.zeros(2, dtype=torch.float64)
    autonomous, driven = henon(), rc.DynamicalSystem.linear(matrix(2), matrix(2))
    with pytest.raises(InputError, match=r"inputs.*driven"):
        driven.simulate(h, 3)
    with pytest.raises(OptionError, match="autonomous"):
        autonomous.simulate(h, inputs=h[None])
    with pytest.raises(InputError, match="steps"):
        autonomous.simulate(h)
    with pytest.raises(InputError, match="3 arguments"):
        rc.DynamicalSystem(lambda a, b, c: a)
    with pytest.raises(ShapeError, match="square"):
        rc.DynamicalSystem.linear(torch.zeros(2, 3))
    with pytest.raises(ShapeError, match="step"):
        rc.DynamicalSystem(lambda h: h[:1]).simulate(h, 2)
    with pytest.raises(InputError, match="start"):
        logistic().simulate(torch.tensor(0.5), 1)
    with pytest.raises(InputError, match="layer of one cell"):
        rc.DynamicalSystem.of(rc.LSTM(2, 3, num_layers=2))
    with pytest.raises(InputError, match="dt"):
        lorenz(dt=0.0)
