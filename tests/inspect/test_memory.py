"""Memory: capacities that are known, time scales that are set, and short and ragged data."""

import pytest
import torch
from torch import Tensor

import recurra as rc
from recurra.errors import InputError
from recurra.inspect import memory_curve


def linear(W: Tensor, u: Tensor) -> rc.Recurrent:
    layer = rc.layer("rnn", 1, len(W), nonlinearity="identity", dtype=torch.float64)
    with torch.no_grad():
        layer.cell_list[0].a.W.copy_(W)
        layer.cell_list[0].a.U.copy_(u)
    return layer


def noise(steps: int = 4000) -> Tensor:
    return torch.rand(steps, 1, 1, dtype=torch.float64) * 2 - 1


def test_a_shift_register_recalls_exactly_as_many_steps_as_it_has_units():
    size = 6
    shift = torch.diag(torch.ones(size - 1), -1)
    found = memory_curve(linear(shift, torch.eye(size)[:, :1]), noise(), delays=12)
    (curve,) = found.recalled.values()
    torch.testing.assert_close(curve[:size], torch.ones(size, dtype=torch.float64), rtol=1e-6, atol=0)
    assert curve[size:].max() < 0.01
    assert found.capacity() == pytest.approx(size, abs=0.05)


def test_the_capacity_of_a_linear_network_is_its_number_of_units():
    size = 8
    rotation = 0.9 * torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0]
    found = memory_curve(linear(rotation, torch.randn(size, 1)), noise(), delays=150)
    assert found.capacity() == pytest.approx(size, abs=0.35)


def test_squashing_costs_memory():
    torch.manual_seed(3)
    size = 8
    rotation, u = 0.9 * torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0], torch.randn(size, 1)
    straight = linear(rotation, u)
    activation_kinds = rc.layer("rnn", 1, size, dtype=torch.float64)
    activation_kinds.load_state_dict(straight.state_dict())
    data = noise()
    assert memory_curve(activation_kinds, data).capacity() < memory_curve(straight, data).capacity() - 1


def test_time_scales_are_those_the_gates_hold():
    lstm = rc.layer("lstm", 2, 3)
    gru = rc.layer("gru", 2, 3)
    leaky = rc.layer("leaky_rnn", 2, 3, tau=torch.tensor([1.0, 5.0, 80.0]))
    with torch.no_grad():
        for gate in (lstm.cell_list[0].f, gru.cell_list[0].z):
            for parameter in gate.parameters():
                parameter.zero_()
        lstm.cell_list[0].f.b.fill_(torch.tensor(0.95).logit())
        gru.cell_list[0].z.b.fill_(torch.tensor(0.05).logit())
    data = torch.randn(60, 2, 2)
    assert memory_curve(lstm, data).time_scales["LSTM · f"].tolist() == pytest.approx([20.0] * 3, rel=1e-4)
    assert memory_curve(gru, data).time_scales["GRU · z"].tolist() == pytest.approx([20.0] * 3, rel=1e-4)
    assert memory_curve(leaky, data).time_scales["LeakyRNN · tau"].tolist() == pytest.approx([1.0, 5.0, 80.0])


def test_tokens_and_ragged_sequences():
    sequences = [torch.randn(length, 3) for length in (30, 22, 40, 25)]
    found = memory_curve(rc.layer("rnn", 3, 5), sequences)
    (curve,) = found.recalled.values()
    assert 1 < len(curve) <= 41
    assert ((curve >= 0) & (curve <= 1)).all()
    assert found.figure().data[0].y[0] == pytest.approx(float(curve[0]), rel=1e-3)


def test_one_step_has_no_past():
    with pytest.raises(InputError, match="to have past inputs"):
        memory_curve(rc.layer("rnn", 3, 5), torch.randn(1, 4, 3))
