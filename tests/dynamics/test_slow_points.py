"""Slow points against systems whose structure is known, and a flip-flop that is trained here."""

import itertools

import pytest
import torch
from torch import nn

import recurra as rc
from recurra.data import tasks
from recurra.errors import InputError


def test_two_bistable_units_have_nine_fixed_points():
    """tanh(2 h) rests at 0 (slope 2) and at ±0.9575 (slope 0.17): 4 attractors, 4 saddles and a repeller."""
    system = rc.DynamicalSystem(lambda h: torch.tanh(2 * h))
    grid = torch.cartesian_prod(*[torch.linspace(-1.1, 1.1, 7, dtype=torch.float64)] * 2)
    found = rc.dynamics.slow_points(system, grid, speed=1e-9, iterations=600)
    assert len(found) == 9
    assert sorted(found.unstable_directions.tolist()) == [0, 0, 0, 0, 1, 1, 1, 1, 2]
    assert found.stable.sum() == 4
    ends = found.points[found.stable].abs()
    assert torch.allclose(ends, torch.full_like(ends, 0.957504), atol=1e-5)
    newton = rc.dynamics.fixed_points(system, found.points)
    assert torch.allclose(newton.points, found.points, atol=1e-5)
    assert torch.equal(newton.stable, found.stable)


def test_a_ghost_is_slow_but_not_fixed():
    """h + 0.1 (h² + 0.01) moves everywhere, least at h = 0, by 0.001."""
    system = rc.DynamicalSystem(lambda h: h + 0.1 * (h**2 + 0.01))
    starts = torch.linspace(-0.3, 0.3, 5, dtype=torch.float64)[:, None]
    found = rc.dynamics.slow_points(system, starts, speed=1e-6, distance=0.05)
    assert len(found) == 1
    assert found.points.item() == pytest.approx(0, abs=1e-3)
    assert found.speeds.item() == pytest.approx(0.001**2 / 2, rel=1e-2)
    assert len(rc.dynamics.fixed_points(system, starts)) == 0
    assert len(rc.dynamics.slow_points(system, starts, speed=1e-8)) == 0


def test_principal_components_of_an_orbit():
    system = rc.DynamicalSystem(lambda h: 0.5 * h)
    found = rc.dynamics.slow_points(system, torch.randn(4, 3, dtype=torch.float64))
    line = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None] * torch.tensor([3.0, 4.0, 0.0]).double()
    mean, axes = found.components(line, count=1)
    assert torch.allclose(mean, torch.zeros(3).double(), atol=1e-12)
    assert torch.allclose(axes[:, 0].abs(), torch.tensor([0.6, 0.8, 0.0]).double(), atol=1e-12)


def test_a_driven_system_must_be_frozen():
    with pytest.raises(InputError, match="system"):
        rc.dynamics.slow_points(rc.DynamicalSystem(lambda h, x: h + x), torch.zeros(1, 2))


def test_points_are_refined_to_rounding_after_few_steps_of_adam():
    system = rc.DynamicalSystem(lambda h: torch.tanh(2 * h))
    found = rc.dynamics.slow_points(system, torch.linspace(-1, 1, 9).double()[:, None], iterations=50)
    assert len(found) == 3
    assert found.speeds.max() < 1e-28


def test_refinement_does_not_leave_the_states_for_where_everything_stands_still():
    """h + h exp(-h²) rests at 0, and nearly at every large h, to which least squares lead from beyond 0.7."""
    system = rc.DynamicalSystem(lambda h: h + h * torch.exp(-h.square()))
    found = rc.dynamics.slow_points(system, torch.linspace(-1, 1, 9).double()[:, None], iterations=50)
    assert found.points.flatten().tolist() == pytest.approx([0.0], abs=1e-12)


def test_a_single_state_is_a_start():
    found = rc.dynamics.slow_points(rc.DynamicalSystem(lambda h: 0.5 * h), torch.ones(3, dtype=torch.float64))
    assert torch.allclose(found.points, torch.zeros(1, 3).double(), atol=1e-9)


@pytest.mark.slow
def test_a_trained_flip_flop_has_one_attractor_per_memory():
    """The network, left alone, ends at the stable points that are found; there are saddles between."""
    torch.manual_seed(2)
    task = tasks.flip_flop(length=80, bits=3, rate=0.1)
    layer, readout = rc.GRU(3, 24), nn.Linear(24, 3)
    adam = torch.optim.Adam([*layer.parameters(), *readout.parameters()], lr=0.02)
    falling = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, 900)
    for batch in task.batches(24, count=900, seed=0).epoch(0):
        adam.zero_grad()
        loss = (readout(layer(batch.inputs)[0]) - batch.targets).square().mean()
        loss.backward()
        adam.step()
        falling.step()
    assert loss < 0.01
    layer.double(), readout.double()
    with torch.no_grad():
        visited = layer(next(task.batches(12, seed=1).epoch(0)).inputs.double())[0].flatten(0, 1)
    system = rc.DynamicalSystem.of(layer).frozen(torch.zeros(3, dtype=torch.float64))
    starts = visited + 0.3 * torch.randn_like(visited)
    found = rc.dynamics.slow_points(system, starts, speed=1e-9, distance=0.05, iterations=1000)
    attractors = found.points[found.stable]
    ends = system.simulate(visited[::9], 1500)[-1]
    assert torch.cdist(ends, attractors).amin(1).max() < 0.1
    assert {tuple(row) for row in readout(attractors).sign().tolist()} == set(itertools.product((-1.0, 1.0), repeat=3))
    assert (found.unstable_directions == 1).sum() >= 8  # saddles between them
