"""Spectra and exponents against what is known: powers of matrices, orthogonal and nilpotent ones, chaotic maps."""

import math

import pytest
import torch
from cases import sampled_name
from torch import Tensor

import recurra as rc
from recurra.inspect import jacobian_spectrum, lyapunov, weight_spectrum
from recurra.inspect.inspected_model import InspectedModel
from recurra.inspect.jacobians import jacobians_along


def linear(W: Tensor, inputs: int = 2) -> rc.Recurrent:
    layer = rc.layer("rnn", inputs, len(W), nonlinearity="identity", dtype=torch.float64)
    with torch.no_grad():
        layer.cell_list[0].a.W.copy_(W)
    return layer


def steps(count: int, size: int = 2) -> Tensor:
    return torch.randn(count, 1, size, dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------- Jacobians


def test_a_transient_of_a_matrix_that_is_not_normal():
    """ρ = 0.9, and still ‖W¹⁰‖ = 19.4: what the spectral radius does not show."""
    found = jacobian_spectrum(linear(torch.tensor([[0.9, 5.0], [0.0, 0.9]])), steps(10)).cells[0]
    assert found.lags[-1] == 10
    assert float(found.singular[-1, 0]) == pytest.approx(math.log10(19.4), abs=2e-3)
    assert float(found.radius.max()) == pytest.approx(0.9, abs=1e-7)


def test_singular_values_over_many_steps_are_those_of_the_whole_map():
    layer = rc.layer("lstm", 3, 4, dtype=torch.float64)
    x = steps(9, 3)
    found = jacobian_spectrum(layer, x, steps=5).cells[0]
    _, start = layer(x[:4])

    def run(flat: Tensor) -> Tensor:
        h, c = flat.view(2, 1, 1, 4)
        return torch.cat([one.flatten() for one in layer(x[4:], (h, c))[1]])

    whole = torch.autograd.functional.jacobian(run, torch.cat([one.flatten() for one in start]).detach())
    torch.testing.assert_close(10 ** found.singular[-1], torch.linalg.svdvals(whole), rtol=1e-8, atol=1e-12)


def test_a_product_far_below_the_numbers_keeps_its_logarithm():
    found = jacobian_spectrum(linear(1e-5 * torch.eye(2, dtype=torch.float64)), steps(100)).cells[0]
    assert found.singular[-1].tolist() == pytest.approx([-500.0, -500.0], abs=1e-6)


def test_modifiers_are_in_the_jacobian():
    layer = rc.layer("gru", 3, 4, modifiers=rc.LayerNorm(), dtype=torch.float64)
    inspected = InspectedModel(layer, steps(6, 3))
    run = inspected.record()[1].runs()[0]
    jacobian = jacobians_along(run)[-1]
    _, before = layer(inspected.sample.inputs[:-1])
    expected = torch.autograd.functional.jacobian(
        lambda h: layer(inspected.sample.inputs[-1:].detach(), h.view(1, 1, 4))[1].flatten(), before.flatten().detach()
    )
    torch.testing.assert_close(jacobian, expected, rtol=1e-9, atol=1e-12)


@sampled_name
def test_every_cell_has_spectra(case):
    layer = case.layer()
    x = steps(5, 3)
    found = jacobian_spectrum(layer, x)
    assert found.cells[0].radius.shape == (5,)
    assert (found.cells[0].norm >= found.cells[0].radius * (1 - 1e-9)).all(), "a norm below the spectral radius"
    weights = weight_spectrum(layer)
    recurrent = [name for affine in layer.cell_list[0].affines() for name in affine.recurrent()]
    assert len(weights.matrices) == len(recurrent)


def test_before_and_after_stand_side_by_side():
    before, after = linear(0.5 * torch.eye(2)), linear(0.9 * torch.eye(2))
    for found in (jacobian_spectrum(after, steps(5), before=before), weight_spectrum(after, before=before)):
        assert "before: RNN" in found.summary()
        assert any(trace.name and trace.name.startswith("before") for trace in found.figure().data)


# ---------------------------------------------------------------------------------------------------- weights


def test_an_orthogonal_matrix_is_normal_with_all_values_one():
    found = weight_spectrum(rc.layer("orthogonal_rnn", 3, 6, dtype=torch.float64))["a.W"]
    torch.testing.assert_close(found.singular, torch.ones(6, dtype=torch.float64), rtol=1e-10, atol=0)
    torch.testing.assert_close(found.eigenvalues.abs(), torch.ones(6, dtype=torch.float64), rtol=1e-10, atol=0)
    assert found.departure < 1e-6


def test_a_nilpotent_matrix_is_as_far_from_normal_as_can_be():
    found = weight_spectrum(linear(torch.diag(torch.ones(3), 1)))["a.W"]
    assert found.departure == pytest.approx(1.0, abs=1e-6)
    assert found.radius == pytest.approx(0.0, abs=1e-3)
    assert found.norm == pytest.approx(1.0)


def test_the_effective_radius_of_leaky_units_is_jaegers():
    """ρ((1 - α) I + α W) with α = 1/τ, a unit each."""
    layer = rc.layer("leaky_rnn", 3, 5, dtype=torch.float64)
    torch.nn.init.normal_(layer.cell_list[0].a.b)  # a bias must not count
    rate = 1 / layer.cell_list[0].tau.double()
    expected = torch.linalg.eigvals(torch.diag(1 - rate) + torch.diag(rate) @ layer.cell_list[0].a.W.detach())
    found = weight_spectrum(layer).effective_radius["LeakyRNN"]
    assert found == pytest.approx(float(expected.abs().max()), abs=1e-10)


def test_an_echo_state_network_has_the_radius_it_was_given():
    series = torch.randn(300, 1, dtype=torch.float64).cumsum(0).sin().numpy()
    network = rc.EchoStateNetwork(units=40, spectral_radius=0.85, leak=0.4, random_state=1).fit(series)
    found = weight_spectrum(network)
    assert found.matrices[0].radius == pytest.approx(0.85, abs=1e-9)
    (effective,) = found.effective_radius.values()
    assert effective == pytest.approx(network.effective_spectral_radius_, abs=1e-9)


# ---------------------------------------------------------------------------------------------------- exponents


class LogisticMap(rc.Cell):
    """h ↦ 4 h (1 - h) in every unit, whatever it reads."""

    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.gain = self.vector(fill=4.0)
        self.start("h", 0.1234)

    def step(self, x, h):
        return self.gain * h * (1 - h) + 0 * x.sum(dim=-1, keepdim=True)


def test_the_logistic_map_has_exponent_ln_2():
    layer = rc.Recurrent(LogisticMap, 1, 1, dtype=torch.float64)
    found = lyapunov(layer, torch.zeros(6000, 1, 1), steps=6000, transient=100)
    assert found.largest() == pytest.approx(math.log(2), abs=0.01)
    assert "chaotic" in found.summary()


def test_a_linear_network_has_the_logarithms_of_its_eigenvalues():
    found = lyapunov(linear(torch.diag(torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64))), steps(200), transient=50)
    (values,) = found.exponents.values()
    torch.testing.assert_close(values, torch.tensor([0.9, 0.5, 0.1], dtype=torch.float64).log(), rtol=1e-6, atol=1e-8)
    assert "forgets" in found.summary()


def test_each_layer_of_a_stack_is_driven_by_the_one_below():
    layer = rc.layer("gru", 3, 4, num_layers=2)
    found = lyapunov(layer, torch.randn(60, 1, 3))
    assert list(found.exponents) == ["GRU · layer 1", "GRU · layer 2"]
    assert all(float(values[0]) < 0 for values in found.exponents.values())
