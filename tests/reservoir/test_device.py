"""Reservoirs through the layer engine on a device: the numbers of the sparse loop."""

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.reservoir.core import EngineReservoir, LeakyReservoir
from recurra.reservoir.matrices import draw
from recurra.reservoir.readout import Ridge

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def wave(steps: int = 600) -> np.ndarray:
    return np.sin(0.2 * np.arange(float(steps)))[:, None]


@pytest.mark.parametrize("device", DEVICES)
def test_states_are_those_of_the_sparse_loop(device: str) -> None:
    """Both leak constants, feedback, bias, noise, starts at random, several series, a call in two parts."""
    recipe = {"input_scaling": 0.5, "feedback": 0.3, "bias": 0.1, "radius": 0.9, "density": 0.2}
    plain = LeakyReservoir(draw(40, 2, 1, random=np.random.default_rng(0), **recipe), 0.4, 0.05, 1.3)
    engine = EngineReservoir(plain, device, torch.float64)
    drive, found = np.random.default_rng(1).normal(size=(12, 3, 3)), []
    for reservoir in (plain, engine):
        noise, state = np.random.default_rng(3), reservoir.initial(3, np.random.default_rng(2))
        first, state = reservoir.run(drive[:5], state, noise)
        nothing, state = reservoir.run(drive[:0], state, noise)
        rest, _ = reservoir.run(drive[5:], state, noise)
        assert nothing.shape == (0, 3, 40)
        found.append(np.concatenate([first, rest]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)
    assert engine.layer.cell_list[0].recurrent_matrices()[0].device.type == device


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("options", [{"units": [30, 20]}, {"units": 30, "cell": "gru"}, {"units": 30, "ridge": "loo"}])
def test_a_network_on_a_device_learns_the_same(device: str, options: dict) -> None:
    here, there = (
        rc.EchoStateNetwork(random_state=0, **{"ridge": 1e-3} | options, device=where).fit(wave())
        for where in (None, device)
    )
    np.testing.assert_allclose(there.predict(wave()), here.predict(wave()), atol=2e-3)
    np.testing.assert_allclose(there.generate(5), here.generate(5), atol=1e-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("penalty", [0.0, 1e-12, 1.0])
def test_ridge_on_a_device_is_least_squares(device: str, penalty: float) -> None:
    random = np.random.default_rng(0)
    S, D = random.normal(size=(50, 6)), random.normal(size=(50, 2))
    solver = Ridge(penalty, device)
    solver.add(S[:20], D[:20])
    solver.add(S[20:], D[20:])
    expected = np.linalg.solve(S.T @ S + penalty * np.eye(6), S.T @ D)
    np.testing.assert_allclose(solver.weights(penalty), expected, atol=1e-10)


def test_weights_are_allocated_without_being_drawn() -> None:
    """Ten thousand units would spend minutes on an orthogonal matrix that is replaced."""
    recipe = {"input_scaling": 0.5, "feedback": 0.0, "bias": 0.1, "radius": 0.9, "density": 0.01}
    plain, before = (
        LeakyReservoir(draw(30, 1, 0, random=np.random.default_rng(0), **recipe), 1.0, 0.0),
        torch.get_rng_state(),
    )
    engine = EngineReservoir(plain, "cpu")
    assert torch.equal(torch.get_rng_state(), before)
    matrix = engine.layer.cell_list[0].recurrent_matrices()[0]
    np.testing.assert_allclose(matrix.numpy(), plain.weights.W.toarray(), rtol=1e-6)
    assert {p.device.type for p in engine.layer.parameters()} == {"cpu"}


def test_a_device_that_is_not_there_is_named() -> None:
    with pytest.raises(rc.DeviceError, match="'cuda:99'"):
        rc.EchoStateNetwork(units=10, device="cuda:99").fit(wave())
