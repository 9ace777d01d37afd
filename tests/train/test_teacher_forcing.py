"""Teacher forcing against its loop in NumPy, its limits, and a linear system that it must recover."""

import copy

import numpy as np
import pytest
import torch

import recurra as rc
from recurra.errors import InputError, OptionError, ShapeError

TIMES, BATCH, STATES = 9, 4, 5


def layer_of(name: str = "shallow_plrnn", states: int = STATES, inputs: int = 2) -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.layer(name, inputs, states, dtype=torch.float64)


def data(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(TIMES, BATCH, 2, generator=random, dtype=torch.float64)
    return x, torch.randn(TIMES, BATCH, width, generator=random, dtype=torch.float64)


def numpy_predictions(cell, x, y, matrix, strength, every):
    """The shallow PLRNN, moved by the data with NumPy's least squares."""
    w = {name: value.detach().numpy() for name, value in cell.weights().items()}
    z, out = np.linalg.pinv(matrix) @ y[0].T, []
    for t in range(1, len(y)):
        if (t - 1) % every == 0:
            z = z + strength * np.linalg.lstsq(matrix, y[t - 1].T - matrix @ z, rcond=None)[0]
        hidden = np.maximum(w["inner.W"] @ z + w["inner.b"][:, None], 0)
        z = w["A"][:, None] * z + w["outer.W"] @ hidden + w["C.U"] @ x[t].T + w["C.b"][:, None]
        out.append((matrix @ z).T)
    return np.stack(out)


@pytest.mark.parametrize(("strength", "every"), [(1.0, 1), (1.0, 3), (0.3, 1), (0.0, 1)])
@pytest.mark.parametrize("observed", ["all", "first two", "mixed"])
def test_predictions_are_those_of_the_loop(strength, every, observed):
    matrix = {"all": torch.eye(5), "first two": torch.eye(2, 5), "mixed": torch.linspace(-1, 2, 15).view(3, 5) ** 2}
    B = matrix[observed].double()
    layer = layer_of()
    learner = rc.train.TeacherForcing(layer, strength, every, B if observed == "mixed" else None)
    x, y = data(len(B))
    expected = numpy_predictions(layer.cell_list[0], x.numpy(), y.numpy(), B.numpy(), strength, every)
    np.testing.assert_allclose(learner.predict(x, y).detach().numpy(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["plrnn", "shallow_plrnn", "dendritic_plrnn", "al_rnn", "gru"])
def test_without_forcing_it_is_the_layer_itself(name):
    layer = layer_of(name)
    x, y = data(STATES)
    free = layer(x[1:], y[0][None])[0]
    found = rc.train.TeacherForcing(layer, strength=0.0).predict(x, y)
    torch.testing.assert_close(found, free, rtol=0, atol=1e-12)


def test_weights_move_along_the_gradient_of_the_loss():
    layer, (x, y) = layer_of(), data(STATES)
    learner = rc.train.TeacherForcing(layer, 0.4, optimizer="sgd", rate=1.0)
    before = layer.cell_list[0].A.detach().clone()
    learner.step(x, y)
    moved, h = before - layer.cell_list[0].A.detach(), 1e-6
    for k in range(STATES):
        other, losses = layer_of(), []
        for sign in (h, -h):
            other.cell_list[0].A.data.copy_(before + sign * torch.eye(STATES, dtype=torch.float64)[k])
            losses.append((rc.train.TeacherForcing(other, 0.4).predict(x, y) - y[1:]).square().mean().item())
        assert moved[k].item() == pytest.approx((losses[0] - losses[1]) / (2 * h), abs=1e-7)


def test_a_mask_leaves_out_predictions_and_a_resumed_learner_goes_on():
    x, y = data(STATES)
    mask = torch.ones(TIMES, BATCH, dtype=torch.bool)
    mask[4:] = False
    first, second = (rc.train.TeacherForcing(layer_of(), 0.2) for _ in range(2))
    assert first.step(x, y, mask) == pytest.approx((second.predict(x, y)[:3] - y[1:4]).square().mean().item())
    first.strength = 0.1
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert [first.step(x, y) for _ in range(3)] == [second.step(x, y) for _ in range(3)]


def test_an_oscillation_is_learned_from_two_delays():
    t = torch.arange(40, dtype=torch.float64)[:, None, None] + 7 * torch.arange(6, dtype=torch.float64)[:, None]
    y = torch.sin(0.5 * t)
    delayed = torch.cat([y[1:], y[:-1]], dim=2)
    learner = rc.train.TeacherForcing(layer_of("shallow_plrnn", 2, 1), strength=0.3, rate=0.03)
    losses = [learner.step(torch.zeros(39, 6, 1, dtype=torch.float64), delayed) for _ in range(400)]
    assert losses[-1] < 1e-3 < 0.1 < losses[0]


def test_bad_arguments_are_named():
    with pytest.raises(OptionError, match="one state"):
        rc.train.TeacherForcing(rc.LSTM(2, 5))
    with pytest.raises(InputError, match="strength"):
        rc.train.TeacherForcing(layer_of(), strength=1.5)
    with pytest.raises(ShapeError, match="observation"):
        rc.train.TeacherForcing(layer_of(), observation=torch.eye(3))
    x, y = data(STATES)
    with pytest.raises(ShapeError, match="target"):
        rc.train.TeacherForcing(layer_of(), observation=torch.eye(2, 5)).step(x, y)
