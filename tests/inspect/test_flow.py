"""The flow around slow points: kinds, movement and unstable directions of a system whose structure is known."""

import pytest
import torch

import recurra as rc

pytest.importorskip("plotly")


def doubled() -> tuple[rc.DynamicalSystem, torch.Tensor]:
    """Two uncoupled units h ← tanh(2 h): each rests at 0, unstable, and at ±0.9575, so that nine points rest."""
    system = rc.DynamicalSystem(lambda h: torch.tanh(2 * h))
    line = torch.tensor([-0.9, -0.3, 0.0, 0.3, 0.9], dtype=torch.float64)
    return system, torch.cartesian_prod(line * 1.001, line)


def test_kinds_and_directions_of_known_points():
    system, starts = doubled()
    found = rc.dynamics.slow_points(system, starts, speed=1e-10, iterations=800)
    result = rc.inspect.flow(system, found, system.simulate(starts, 30))
    assert (
        sorted(result.kinds)
        == ["attractor"] * 4 + ["more unstable directions"] + ["saddle, one unstable direction"] * 4
    )
    for point, kind, direction in zip(found.points, result.kinds, result.directions, strict=True):
        if kind == "attractor":
            assert not direction.any()
        if kind.startswith("saddle"):  # it leaves along the unit that is at zero
            axis = torch.zeros(2, dtype=torch.float64)
            axis[point.abs().argmin()] = 1.0
            _, axes = found.components(system.simulate(starts, 30))
            assert abs(float(direction @ (axis @ axes))) > 1 - 1e-6
    assert result.explained == pytest.approx(1.0)
    assert "4" in result.summary()


def test_movement_is_that_of_the_system_and_the_figure_shows_all():
    system, starts = doubled()
    found = rc.dynamics.slow_points(system, starts, speed=1e-10, iterations=800)
    orbit = system.simulate(starts, 20)
    result = rc.inspect.flow(system, found, orbit)
    mean, axes = found.components(orbit)
    states = mean + result.grid @ axes.T
    assert torch.allclose(result.moves @ axes.T, torch.tanh(2 * states) - states)
    names = {trace.name for trace in result.figure().data}
    assert {"movement", "orbit", "unstable direction", "attractor"} <= names


def test_bad_input():
    system, starts = doubled()
    found = rc.dynamics.slow_points(system, starts, iterations=5, speed=1.0)
    with pytest.raises(rc.ShapeError, match="orbit"):
        rc.inspect.flow(system, found, torch.zeros(5, 3))
    with pytest.raises(rc.InputError, match="driven"):
        rc.inspect.flow(rc.DynamicalSystem(lambda h, x: h + x), found, starts)
