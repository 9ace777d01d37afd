"""snntorch, norse and ncps as oracles; laws that cells of hydrology and signals must obey."""

import math
from typing import Any

import pytest
import snntorch
import torch
from cases import Case, draw_inputs, draw_states
from helpers import assert_close, compare, put, run, runs
from ncps.torch import CfCCell, LTCCell
from ncps.wirings import FullyConnected
from numpy.polynomial import legendre
from torch import Tensor

import recurra as rc
from recurra.cells.continuous import legendre_memory

X = draw_inputs(Case("lif"), steps=30) * 2


def surrogate(slope: float):
    return snntorch.surrogate.fast_sigmoid(slope=slope)


def spikes(neuron, name: str, **options: float) -> tuple[Tensor, Tensor]:
    """Spikes of our cell and of snntorch's neuron, on the same currents."""
    cell = Case(name, options).cell()
    put(cell, current__b=0.2)
    currents = torch.stack([cell.current(x_t) for x_t in X])
    states, found = [torch.zeros(2, 4, dtype=torch.float64) for _ in cell.carried], []
    for current in currents:
        spike, *states = neuron.double()(current, *states)
        found.append(spike.double())  # they are single
    return run(cell, X)[0], torch.stack(found)


@pytest.mark.parametrize(("options", "theirs"), [({}, "subtract"), ({"reset": "zero"}, "zero")])
def test_lif_is_snntorchs_leaky(options: dict, theirs: str):
    neuron = snntorch.Leaky(beta=0.9, spike_grad=surrogate(25), reset_mechanism=theirs)
    ours, expected = spikes(neuron, "lif", **options)
    assert_close(ours, expected)
    assert 0.05 < ours.mean() < 0.95


def test_synaptic_is_snntorchs():
    ours, expected = spikes(snntorch.Synaptic(alpha=0.8, beta=0.9, spike_grad=surrogate(25)), "synaptic")
    assert_close(ours, expected)
    assert 0.05 < ours.mean() < 0.95


def test_alpha_is_snntorchs_below_the_threshold():
    """Above it, snntorch's reset changes the currents as well, ours only the potential."""
    cell = Case("alpha", {"threshold": 1e3}).cell()
    neuron = snntorch.Alpha(alpha=0.9, beta=0.8, threshold=1e3, spike_grad=surrogate(25)).double()
    states = [torch.zeros(2, 4, dtype=torch.float64) for _ in range(3)]
    for x_t in X:
        _, *states = neuron(cell.current(x_t), *states)
    for value, expected in zip(run(cell, X)[1:], states, strict=True):
        assert_close(value, expected, 1e-6)  # its decay constants are single


@pytest.fixture
def norse():
    """It needs torchvision, whose releases fit one release of torch each: with another torch it is absent."""
    return pytest.importorskip("norse.torch.functional")


@pytest.mark.filterwarnings("ignore:.*(torch.jit.script|PyTree type)")  # where norse makes its types
def test_parametric_lif_is_norses_neuron(norse):
    """norse's LIF without a synapse (its current decays within one step): one Euler step, then a reset to 0.

    The slope is 1, because the surrogate of norse 1.1.0 does not use its parameter `alpha`.
    """
    tau = 4.0
    cell = Case("parametric_lif", {"surrogate": "fast_sigmoid", "slope": 1.0}).cell()
    put(cell, w=-math.log(tau - 1))
    at_once, share = torch.tensor(1.0, dtype=torch.float64), torch.tensor(1 / tau, dtype=torch.float64)
    parameters = norse.lif.LIFParameters(tau_syn_inv=at_once, tau_mem_inv=share)
    zeros, x = torch.zeros(2, 4, dtype=torch.float64), (2 * X).requires_grad_()
    state, expected = norse.lif.LIFFeedForwardState(v=zeros, i=zeros), []
    for x_t in x:
        spikes, state = norse.lif.lif_feed_forward_step(cell.current(x_t), state, parameters, dt=1.0)
        expected.append(spikes)
    ours, v = run(cell, x)
    assert_close(ours, torch.stack(expected))
    assert_close(v, state.v)
    assert 0.05 < ours.mean() < 0.95
    (theirs,), (found,) = (torch.autograd.grad(end.sum(), x) for end in (state.v, v))
    assert_close(found, theirs)


def test_refractory_neurons_are_silent_after_a_spike():
    s = run(Case("lif", {"refractory": 3, "threshold": 0.3}).cell(), X)[0]
    assert s.sum() > 10
    for t in range(len(X) - 3):
        assert not (s[t].bool() & s[t + 1 : t + 4].any(0)).any()


def test_izhikevich_neurons_fire_regularly_and_fast_spiking_ones_faster():
    """With a current of 10 a regular-spiking neuron adapts; a fast-spiking one (a = 0.1, d = 2) does not."""
    counts = {}
    for name, options in (("regular", {}), ("fast", {"a": 0.1, "d": 2.0})):
        cell = rc.registry()["izhikevich"](1, 1, **options).double()
        put(cell, current__U=0)
        counts[name] = run(cell, torch.zeros(1000, 1, 1, dtype=torch.float64))[0].sum().item()
    assert 15 < counts["regular"] < 40
    assert counts["fast"] > 1.5 * counts["regular"]


def test_the_closed_form_network_is_ncps():
    oracle = CfCCell(2, 4, backbone_units=3, backbone_layers=1).double()
    cell = Case("cfc", {"timed": True, "backbone": 3}).cell()
    weight, bias = oracle.backbone[0].weight, oracle.backbone[0].bias
    cell.gain.fill_(1.7159)
    cell.slope.fill_(0.666)
    put(cell, backbone__U=weight[:, :2], backbone__W=weight[:, 2:], backbone__b=bias)
    for ours, theirs in (("f", "ff1"), ("g", "ff2"), ("a", "time_a"), ("b", "time_b")):
        head = getattr(oracle, theirs)
        put(cell, **{f"{ours}__W": head.weight, f"{ours}__b": head.bias})

    def looped(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x_t in x:
            h = oracle(x_t[:, :2], h, x_t[:, 2:])[0]
            outputs.append(h)
        return torch.stack(outputs), h

    x = draw_inputs(Case("cfc", {"timed": True}))
    compare(runs(cell), looped, x, *draw_states(cell, 2))


@pytest.mark.parametrize("synapses", ["of the input", "of each unit with itself"])
def test_liquid_time_constants_with_one_synapse_are_ncps(synapses: str):
    """ncps sums a sigmoid for every synapse, as its worm; the paper's f is one sigmoid of all. With one they agree."""
    oracle: Any = LTCCell(FullyConnected(4), 1, epsilon=0.0).double()
    cell = Case("ltc", {"timed": True}, input_size=2).cell()
    put(cell, **({"f__W": 0} if synapses == "of the input" else {"f__U": 0, "f__W": cell.f.W.diagonal().diag()}))
    reads_x = synapses == "of the input"
    weight = cell.f.U.T if reads_x else cell.f.W.diagonal().expand(4, 4)
    put(oracle, cm=1, vleak=0, gleak=torch.exp(-cell.rho), sparsity_mask=0 if reads_x else torch.eye(4))
    prefix = "sensory_" if reads_x else ""
    put(oracle, sensory_sparsity_mask=float(reads_x))
    put(oracle, **{f"{prefix}w": 1, f"{prefix}erev": cell.A.expand_as(weight)})
    put(oracle, **{f"{prefix}sigma": weight, f"{prefix}mu": -cell.f.b / weight})

    def looped(x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x_t in x:
            h = oracle(x_t[:, :1], h, x_t[:, 1:])[1]
            outputs.append(h)
        return torch.stack(outputs), h

    x = draw_inputs(Case("ltc", {"timed": True}, input_size=2))
    compare(runs(cell), looped, x, *draw_states(cell, 2))


def test_mass_is_conserved_over_ten_thousand_steps():
    cell = Case("mass_conserving_lstm", {"mass": 2}, input_size=4, hidden_size=6).cell()
    x = torch.rand(10_000, 1, 4, dtype=torch.float64)
    with torch.no_grad():
        y, c = run(cell, x)
    entered, left = x[..., :2].sum(), y.sum()
    assert abs(entered - left - c.sum()) / entered < 1e-10
    assert y.min() >= 0
    assert c.min() >= 0


def test_the_legendre_memory_holds_the_window_it_has_seen():
    """m is the Legendre series of the last θ inputs: evaluated inside the window, it gives them back."""
    theta, order = 200, 12
    A, B = (value.double() for value in legendre_memory(order, float(theta)))
    u = torch.sin(torch.arange(1000) / 40.0).double()
    m = torch.zeros(order, dtype=torch.float64)
    for value in u:
        m = A @ m + B * value
    for back in (0, 50, 100, 150, 199):  # steps into the past, shifted Legendre polynomials on [0, θ]
        found = legendre.legval(2 * back / theta - 1, m.numpy())
        assert found == pytest.approx(u[-1 - back].item(), abs=0.03)


def test_gru_d_without_missing_values_and_decay_is_a_gru():
    """Where nothing is missing and nothing decays, it is a GRU; products with the mask of ones go to the biases."""
    cell = Case("gru_d").cell()
    put(cell, gamma_h__W=0, gamma_h__b=-1)
    gru = Case("gru").cell()
    for name in "rzc":
        affine, mask = getattr(cell, name), getattr(cell, f"m_{name}")
        put(gru, **{f"{name}__U": affine.U, f"{name}__W": affine.W, f"{name}__b": affine.b + mask.W.sum(1)})
    x = draw_inputs(Case("gru"))
    assert_close(run(cell, x)[0], run(gru, x)[0])


def test_a_phased_lstm_that_is_always_open_is_the_peephole_lstm_at_the_peak_of_its_gate():
    """A step of half a period from phase zero, with ratio one, has k = 1."""
    cell = put(Case("phased_lstm", {"timed": True, "ratio": 1.0}).cell(), rho=0, shift=0)
    x = draw_inputs(Case("phased_lstm"), steps=1)
    x[..., -1] = 0.5
    twin = Case("vanilla_lstm", input_size=2).cell()
    for name, value in cell.named_parameters():
        if name in dict(twin.named_parameters()):
            put(twin, **{name.replace(".", "__"): value})
    h, c, _ = draw_states(cell, 2)
    clock = torch.zeros(2, 1, dtype=torch.float64)
    assert_close(run(cell, x, h, c, clock)[0], run(twin, x[..., :2], h, c)[0])


def test_dales_law_holds_under_an_optimiser():
    cell = rc.registry()["ctrnn"](3, 10, excitatory=0.8)
    optimiser = torch.optim.Adam(cell.parameters(), lr=0.5)
    for _ in range(5):
        optimiser.zero_grad()
        run(cell, torch.randn(4, 2, 3))[0].sum().backward()
        optimiser.step()
    W = cell.a.W
    assert (W[:, :8] >= 0).all()
    assert (W[:, 8:] <= 0).all()
    assert torch.equal(W.diagonal(), torch.zeros(10))


def test_a_noisy_rate_network_is_an_ornstein_uhlenbeck_process():
    """Without weights, h ← (1 - α) h + √(2α) σ ξ: variance σ² · 2 / (2 - α), correlation (1 - α) a step apart."""
    alpha, sigma = 0.25, 0.3
    layer = rc.layer("ctrnn", 1, 50, tau=4.0, dt=1.0, nonlinearity="identity", noise=sigma).double()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    torch.manual_seed(0)
    with torch.no_grad():
        h = layer(torch.zeros(4000, 10, 1, dtype=torch.float64))[0][100:]
    variance = sigma**2 * 2 / (2 - alpha)
    assert abs(h.var() / variance - 1) < 0.01  # 2e6 numbers, of which about one in eight is independent
    assert abs((h[1:] * h[:-1]).mean() / variance - (1 - alpha)) < 0.01


def test_noise_of_a_rate_network_is_the_same_on_every_engine():
    layer, x = rc.layer("ctrnn", 3, 6, noise=0.2, excitatory=0.5).double(), torch.randn(7, 2, 3, dtype=torch.float64)
    torch.manual_seed(1)
    compiled = layer(x)[0]
    torch.manual_seed(1)
    with rc.set_backend("reference"):
        assert_close(layer(x)[0], compiled, 1e-12)
    assert not torch.equal(layer(x)[0], compiled)


def test_a_low_rank_network_is_a_rate_network_with_the_product_of_its_factors():
    cell = Case("low_rank_rnn", {"rank": 2}).cell()
    twin = Case("ctrnn", {"nonlinearity": "tanh"}).cell()
    put(twin, a__W=cell.M.W @ torch.diag(cell.share) @ cell.N.W, a__U=cell.I.U, a__b=cell.I.b)
    compare(runs(cell), runs(twin), draw_inputs(Case("ctrnn")), *draw_states(cell, 2))


def test_an_almost_linear_network_with_every_unit_rectified_is_a_plrnn():
    cell = Case("al_rnn", {"rectified": 4}).cell()
    twin = put(Case("plrnn").cell(), A=cell.A, C__U=cell.C.U, C__b=cell.C.b)
    put(cell, W__W=cell.W.W - torch.diag(cell.W.W.diagonal()))
    put(twin, W__W_raw=cell.W.W)
    compare(runs(cell), runs(twin), draw_inputs(Case("plrnn")), *draw_states(cell, 2))


def test_a_clipped_shallow_plrnn_stays_bounded():
    cell = put(Case("shallow_plrnn", {"clipped": True}).cell(), A=0.9)
    x = torch.zeros(500, 1, 3, dtype=torch.float64)
    z = 100 * torch.ones(1, 4, dtype=torch.float64)
    bound = (cell.outer.W.abs() @ cell.inner.b.abs() + cell.C.b.abs()) / (1 - 0.9)  # |φ(a) - φ(a - b)| ≤ |b|
    assert (run(cell, x, z)[1].abs() <= bound + 1e-9).all()
