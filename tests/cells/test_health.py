"""Every registered cell as it starts: over 200 steps it neither dies, saturates nor blows up, and all of it learns."""

import pytest
import torch

import recurra as rc
from recurra.cells import canonical_names
from recurra.cells.spiking import Spiking

STEPS, BATCH, FEATURES, UNITS = 200, 4, 4, 16
SMALL = {"projection_lstm"}  # its paper's weights are at most 0.02


def drawn(name: str) -> torch.Tensor:
    """Normal inputs; a mass is positive, and values are missing where a cell knows that."""
    x = torch.randn(STEPS, BATCH, FEATURES)
    if name == "mass_conserving_lstm":
        return x.abs()
    if name == "gru_d":
        x[torch.rand_like(x) < 0.3] = torch.nan
    return x


@pytest.mark.parametrize("name", canonical_names())
def test_a_cell_starts_alive(name: str):
    torch.manual_seed(0)
    layer = rc.layer(name, FEATURES, UNITS)
    y, _ = layer(drawn(name))
    assert bool(y.isfinite().all())
    late = y.detach()[STEPS // 2 :]
    assert late.abs().max() < 100
    assert late.std(0).mean() > (1e-4 if name in SMALL else 1e-3)
    spikes = isinstance(layer.cells[0], Spiking)
    alive = (late.std(0) > 1e-4 * late.std(0).mean()).float().mean()
    assert alive > (0.7 if spikes or name == "fast_weights" else 0.9)  # units of fast weights compete
    if spikes:
        assert 0.01 < late.mean() < 0.5
    names, weights = zip(*((n, p) for n, p in layer.named_parameters() if p.requires_grad), strict=True)
    gradients = torch.autograd.grad((y * torch.randn_like(y)).sum(), weights)
    for weight, gradient in zip(names, gradients, strict=True):
        assert bool(gradient.isfinite().all()), weight
        assert bool(gradient.any()), weight


@pytest.mark.parametrize(("features", "units"), [(1, 128), (64, 128)])
@pytest.mark.parametrize("name", ["lif", "recurrent_lif", "synaptic", "alpha", "srm", "parametric_lif", "adaptive_lif"])
def test_stacks_of_neurons_fire_at_every_size(name: str, features: int, units: int):
    """Weights that shrink with the number of neurons leave a wide layer of few inputs silent for ever."""
    torch.manual_seed(0)
    x = torch.randn(STEPS, BATCH, features)
    for cell in rc.layer(name, features, units, num_layers=3).cells:
        layer = rc.layer(name, cell.input_size, units)
        layer.cells[0].load_state_dict(cell.state_dict())
        x = layer(x)[0].detach()
        assert 0.005 < x.mean() < 0.5


@pytest.mark.parametrize("name", ["ode_rnn", "plrnn", "shallow_plrnn", "dendritic_plrnn", "al_rnn"])
@pytest.mark.parametrize("units", [8, 128])
def test_flows_stay_bounded_for_a_thousand_steps(name: str, units: int):
    torch.manual_seed(0)
    layer = rc.layer(name, 8, units)
    y, _ = layer(torch.randn(1000, 2, 8))
    assert y.abs().max() < 100  # almost linear units wander
    gradients = torch.autograd.grad(y.square().mean(), list(layer.parameters()))
    assert all(bool((gradient.abs() < 1e6).all()) for gradient in gradients)


@pytest.mark.parametrize("units", [5, 40])
def test_no_piece_of_a_plrnn_expands_at_first(units: int):
    torch.manual_seed(0)
    cell = rc.registry()["plrnn"](2, units).double()
    for _ in range(20):
        rectified = (torch.rand(units) < 0.5).double()
        J = cell.A.detach().diag() + cell.W.W.detach() * rectified
        assert torch.linalg.eigvals(J).abs().max() < 1 + 1e-6
    J = (cell.A.diag() + cell.W.W).detach()
    assert torch.linalg.eigvalsh(J)[-1].item() == pytest.approx(1.0, abs=1e-6)


def test_gradients_of_izhikevich_neurons_do_not_grow_with_every_spike():
    torch.manual_seed(0)
    layer = rc.layer("izhikevich", 8, 16)
    y, _ = layer(torch.randn(1000, 2, 8))
    assert 10 < y.sum(0).mean() < 40  # spikes of each neuron
    for gradient in torch.autograd.grad((y * torch.randn_like(y)).sum(), list(layer.parameters())):
        assert gradient.abs().max() < 1e5
