"""Where parameters start: what each paper recommends, and the public initialisers that override it."""

import math

import pytest
import torch
from cases import Case
from helpers import assert_close, run
from torch import Tensor

import recurra as rc
from recurra.affine import Affine
from recurra.errors import InputError

D, P = 50, 200  # large enough for statistics, small enough to be quick


def fresh(name: str, **options) -> rc.Cell:
    return rc.registry()[name](D, P, **options)


def tensors(cell: rc.Cell, *names: str) -> list[Tensor]:
    return [cell.get_parameter(name).detach() for name in names]


# ---------------------------------------------------------------------------------------------------- papers


def assert_normal(values: Tensor, std: float) -> None:
    """Mean and spread within five standard errors, and not bounded as a uniform draw would be."""
    n = values.numel()
    assert abs(values.mean().item()) < 5 * std / math.sqrt(n)
    assert values.std().item() == pytest.approx(std, rel=5 / math.sqrt(2 * n))
    assert values.abs().max() > 2.2 * std


def assert_uniform(values: Tensor, low: float, high: float) -> None:
    n, width = values.numel(), high - low
    assert low <= values.min()
    assert values.max() <= high
    assert values.mean().item() == pytest.approx((low + high) / 2, abs=5 * width / math.sqrt(12 * n))
    assert values.std().item() == pytest.approx(width / math.sqrt(12), rel=5 / math.sqrt(n))


def assert_orthogonal(W: Tensor, gain: float = 1.0) -> None:
    torch.testing.assert_close(W.T @ W, gain**2 * torch.eye(W.shape[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "remembering"),
    [
        ("rnn", None),
        ("mgu", None),
        ("mut3", None),
        ("lstm", "f"),
        ("slope_lstm", "f"),
        ("dynamic_cortex_memory", "f"),
        ("slstm", "f"),
        ("ugrnn", "g"),
    ],
)
def test_where_papers_are_silent_inputs_are_glorot_recurrence_orthogonal_biases_zero(
    name: str, remembering: str | None
):
    """But the bias of a gate that keeps the memory is one: it starts by remembering."""
    cell, bound = fresh(name), math.sqrt(6 / (D + P))
    for gate, affine in cell.named_children():
        if isinstance(affine, Affine):
            assert_uniform(affine.U.detach(), -bound, bound)
            assert_orthogonal(affine.W.detach())
            assert torch.equal(affine.b, torch.ones(P) if gate == remembering else torch.zeros(P))


@pytest.mark.parametrize(
    ("name", "std"),
    [
        ("full_gate_lstm", 0.1),
        ("scrn", 0.05),
        *((f"lstm_{v}", 0.1) for v in ("nig", "nfg", "nog", "niaf", "noaf", "cifg")),
    ],
)
def test_gaussian_starts(name: str, std: float):
    assert_normal(torch.cat([p.detach().flatten() for p in fresh(name).parameters()]), std)


@pytest.mark.parametrize(
    ("name", "bound"), [("vanilla_lstm", 0.1), ("projection_lstm", 0.02), ("lem", 1 / math.sqrt(P))]
)
def test_uniform_starts(name: str, bound: float):
    assert_uniform(torch.cat([p.detach().flatten() for p in fresh(name).parameters()]), -bound, bound)


def test_identity_rnn_starts_close_to_the_identity():
    (W,) = tensors(fresh("identity_rnn", scale=0.9, noise=0.01), "a.W")
    assert_normal((W - 0.9 * torch.eye(P)).flatten(), 0.01 / math.sqrt(P))


def test_irnn_starts_at_the_identity_with_small_inputs():
    W, U, b = tensors(fresh("irnn"), "a.W", "a.U", "a.b")
    assert torch.equal(W, torch.eye(P))
    assert not b.any()
    assert_normal(U.flatten(), 1e-3)
    assert torch.equal(tensors(fresh("irnn", scale=0.01), "a.W")[0], 0.01 * torch.eye(P))


@pytest.mark.parametrize(("name", "weights"), [("residual_rnn", ["a.W"]), ("rin", ["a.W", "a.U", "deeper.0.W"])])
def test_residual_forms_start_near_zero(name: str, weights: list[str]):
    cell = fresh(name, transitions=2) if name == "rin" else fresh(name)
    for weight in tensors(cell, *weights):
        assert_normal(weight.flatten(), 1e-3)


def test_orthogonal_rnn_starts_at_a_rotation_drawn_evenly():
    cell = fresh("orthogonal_rnn").double()
    W = cell.a.W.detach()
    assert_close(W.T @ W, torch.eye(P, dtype=torch.float64))
    angles = torch.linalg.eigvals(W).angle().abs()  # of an even draw: spread evenly over the half circle
    assert (angles < math.pi / 2).double().mean().item() == pytest.approx(0.5, abs=0.05)
    assert W.abs().max() < 6 / math.sqrt(P)


def test_delays_share_the_scale():
    for W in tensors(fresh("delay_rnn", delays=(1, 2, 5, 9)), "a.W_1", "a.W_2", "a.W_5", "a.W_9"):
        assert_orthogonal(W, 1 / 2)


@pytest.mark.parametrize("learn", [False, True])
def test_time_constants_are_spread_evenly_on_a_logarithmic_scale(learn: bool):
    cell = rc.registry()["leaky_rnn"](3, 500, longest=50.0, learn=learn)
    tau = 1 + torch.nn.functional.softplus(cell.rho.detach()) if learn else cell.tau
    assert_uniform(tau.log(), -1e-6, math.log(50.0) + 1e-6)


def test_decays_start_where_they_are_told():
    for name in ("temporal_kernel_rnn", "focused_rnn"):
        torch.testing.assert_close(torch.sigmoid(fresh(name, decay=0.8).rho), torch.full((P,), 0.8))
    assert not fresh("temporal_kernel_rnn", learn=False).rho.requires_grad


def test_unitary_rnn_starts_as_its_paper_says():
    cell = fresh("unitary_rnn")
    assert_uniform(torch.cat(tensors(cell, "theta_1", "theta_2", "theta_3")), -math.pi, math.pi)
    assert_uniform(torch.cat(tensors(cell, "v_1", "v_2")), -1.0, 1.0)
    assert not cell.b.any()
    norms = torch.stack([rc.registry()["unitary_rnn"](2, 50).h_0.detach().norm() ** 2 for _ in range(100)])
    assert norms.mean().item() == pytest.approx(1.0, abs=0.05)
    assert sorted(cell.permutation.tolist()) == list(range(P))


def test_the_original_lstm_opens_its_blocks_one_after_the_other():
    cell = rc.registry()["original_lstm"](3, 8)
    assert cell.o.b.tolist() == [-1, -2, -3, -4, -1, -2, -3, -4]
    blocks = rc.registry()["original_lstm"](3, 8, block_size=4)
    assert blocks.o.b.tolist() == [-1] * 4 + [-2] * 4


def test_gru_starts_with_small_inputs_and_orthogonal_recurrence():
    cell = fresh("gru")
    for affine in (cell.r, cell.z, cell.c):
        assert_normal(affine.U.detach().flatten(), 0.01)
        assert_orthogonal(affine.W.detach())


def test_slopes_links_and_peepholes_start_neutral():
    assert all(torch.equal(p, torch.ones(P)) for p in tensors(fresh("slope_lstm"), "lambda_i", "lambda_f", "lambda_o"))
    dcm = fresh("dynamic_cortex_memory", same_step=True)
    assert not any(p.any() for name, p in dcm.named_parameters() if name.startswith(("r_", "k_", "p_")))


def test_slstm_heads_start_orthogonal_each():
    cell = fresh("slstm", heads=4)
    for affine in (cell.i, cell.f, cell.z, cell.o):
        assert affine.W_raw.shape == (4, P // 4, P // 4)
        assert_orthogonal(affine.W.detach())
        assert not affine.W[: P // 4, P // 4 :].any()


# ---------------------------------------------------------------------------------------------------- rc.init


def test_identity_on_a_cell_and_on_a_tensor():
    cell = fresh("lstm")
    U = cell.i.U.detach().clone()
    rc.init.identity(0.5)(cell)
    assert all(torch.equal(affine.W, 0.5 * torch.eye(P)) for affine in cell.affines())
    assert torch.equal(cell.i.U, U)
    tensor = torch.empty(4, 4)
    rc.init.identity(2.0)(tensor)
    assert torch.equal(tensor, 2 * torch.eye(4))


def test_identity_makes_the_orthogonal_network_start_at_the_identity():
    cell = fresh("orthogonal_rnn")
    rc.init.identity()(cell)
    assert torch.equal(cell.a.W, torch.eye(P))


def test_orthogonal_on_a_cell_and_on_a_tensor():
    cell = fresh("full_gate_lstm")
    rc.init.orthogonal(0.7)(cell)
    for affine in (cell.i, cell.f, cell.o):
        for weight in (affine.W_h, affine.W_i, affine.W_f, affine.W_o):
            assert_orthogonal(weight.detach(), 0.7)
    tall = torch.empty(6, 3)
    rc.init.orthogonal()(tall)
    assert_orthogonal(tall)


@pytest.mark.parametrize("density", [1.0, 0.1])
def test_spectral_radius_on_a_cell(density: float):
    cell = fresh("rnn")
    rc.init.spectral_radius(0.8, density)(cell)
    W = cell.a.W.detach().double()
    assert torch.linalg.eigvals(W).abs().max().item() == pytest.approx(0.8, abs=1e-5)
    assert (W != 0).double().mean().item() == pytest.approx(density, abs=0.02)


def test_chrono_spreads_memories_over_the_range():
    """1 / (1 - sig(b_f)) = 1 + u with u even on [1, T - 1], and b_i = -b_f."""
    cell = rc.registry()["lstm"](3, 500)
    rc.init.chrono(100)(cell)
    assert torch.equal(cell.i.b, -cell.f.b)
    span = 1 / (1 - torch.sigmoid(cell.f.b.detach().double())) - 1
    assert_uniform(span, 1.0 - 1e-3, 99.0 + 1e-3)


@pytest.mark.parametrize(
    ("name", "gate", "sign"), [("gru", "z", -1), ("mgu", "f", -1), ("min_gru", "z", -1), ("ugrnn", "g", 1)]
)
def test_chrono_has_the_sign_of_the_gate(name: str, gate: str, sign: int):
    cell = rc.registry()[name](3, 500)
    rc.init.chrono(50)(cell)
    assert_uniform((sign * getattr(cell, gate).b.detach()).exp(), 1.0 - 1e-3, 49.0 + 1e-3)


def test_janet_starts_chrono():
    cell = rc.registry()["janet"](3, 500, longest=30.0)
    assert_uniform(cell.f.b.detach().exp(), 1.0 - 1e-3, 29.0 + 1e-3)


def test_a_chrono_unit_remembers_for_its_span():
    """With gates that see nothing, memory decays by sig(b_f) a step: e-folding after about 1 + u steps."""
    cell = Case("lstm").cell()
    rc.init.chrono(40)(cell)
    with torch.no_grad():
        for gate in (cell.i, cell.f, cell.o, cell.g):
            gate.U.zero_()
            gate.W.zero_()
        cell.g.b.zero_()
    x, ones = torch.zeros(20, 1, 3, dtype=torch.float64), torch.ones(1, 4, dtype=torch.float64)
    assert_close(run(cell, x, 0 * ones, ones)[2], torch.sigmoid(cell.f.b.detach())[None] ** 20)


@pytest.mark.parametrize(
    ("name", "gate", "expected"),
    [("lstm", "f", 2.0), ("vanilla_lstm", "f", 2.0), ("gru", "z", -2.0), ("mgu", "f", -2.0)],
)
def test_forget_bias_keeps_in_every_polarity(name: str, gate: str, expected: float):
    cell = fresh(name)
    rc.init.forget_bias(2.0)(cell)
    assert torch.equal(getattr(cell, gate).b, torch.full((P,), expected))


@pytest.mark.parametrize("name", ["rnn", "mgu2", "mgu3", "cornn", "scrn", "unitary_rnn"])
@pytest.mark.parametrize("initialiser", [rc.init.chrono(50), rc.init.forget_bias()], ids=["chrono", "forget_bias"])
def test_a_cell_without_memory_gates_says_so(name: str, initialiser: rc.init.Initialiser):
    with pytest.raises(
        InputError, match=r"^init: got (chrono|forget_bias), expected a cell whose memory gates have biases"
    ):
        initialiser(fresh(name))


def test_bad_settings_of_initialisers_are_named():
    with pytest.raises(InputError, match=r"^longest: got 2"):
        rc.init.chrono(2)
    with pytest.raises(InputError, match=r"^density: got 0"):
        rc.init.spectral_radius(0.9, density=0.0)


def test_a_layer_takes_initialisers_for_all_its_cells():
    layer = rc.layer(
        "lstm", 3, 6, num_layers=2, bidirectional=True, init=[rc.init.identity(), rc.init.forget_bias(3.0)]
    )
    for cell in layer.cell_list:
        assert torch.equal(cell.o.W, torch.eye(6))
        assert torch.equal(cell.f.b, torch.full((6,), 3.0))


def test_heads_are_initialised_each_for_itself():
    cell = rc.layer("slstm", 3, 6, heads=2, init=rc.init.identity(0.5)).cell_list[0]
    for gate in (cell.i, cell.f, cell.z, cell.o):
        torch.testing.assert_close(gate.W, 0.5 * torch.eye(6))


@pytest.mark.parametrize("name", ["projection_lstm", "indrnn", "min_gru", "focused_rnn", "unitary_rnn"])
def test_a_matrix_initialiser_needs_a_square_recurrent_matrix(name):
    with pytest.raises(InputError, match="square recurrent matrix"):
        rc.layer(name, 3, 4, init=rc.init.orthogonal())


@pytest.mark.parametrize("name", ["original_lstm", "lstm_nfg", "rnn"])
def test_a_memory_that_is_never_overwritten_has_no_gate_to_start_open(name):
    with pytest.raises(InputError, match="memory gates"):
        rc.layer(name, 3, 4, init=rc.init.forget_bias())


@pytest.mark.parametrize("name", [f"lstm_{v}" for v in ("nig", "nfg", "nog", "niaf", "noaf", "np", "cifg", "fgr")])
def test_greffs_variants_start_alike(name: str) -> None:
    """N(0, 0.1²) everywhere, forget biases included: one thing changes at a time."""
    torch.manual_seed(0)
    cell = rc.layer(name, 30, 100).cells[0]
    for parameter_name, parameter in cell.named_parameters():
        error = 4 / parameter.numel() ** 0.5
        assert abs(float(parameter.detach().mean()) / 0.1) < error, parameter_name
        assert abs(float(parameter.detach().std()) / 0.1 - 1) < error, parameter_name


def test_a_clipped_plrnn_starts_where_all_its_weights_learn():
    cell = rc.registry()["shallow_plrnn"](2, 3, units=50, clipped=True)
    cell.step(torch.randn(40, 2), torch.randn(40, 3)).square().sum().backward()
    assert all(bool(weight.grad.any()) for weight in cell.parameters())
    assert 0.5 < float(cell.inner.b.detach().std()) < 1.2


@pytest.mark.parametrize("density", [1.0, 0.5])
def test_a_network_of_dales_law_starts_balanced_at_its_radius(density: float):
    """Song, Yang & Wang 2016: excitation and inhibition of a unit cancel on average; the spectral radius is 1.5."""
    W = rc.registry()["ctrnn"](3, 200, excitatory=0.8, density=density).a.W.detach()
    assert torch.linalg.eigvals(W.double()).abs().max().item() == pytest.approx(1.5, abs=1e-4)
    excitation, inhibition = W.relu().sum(1), (-W).relu().sum(1)
    assert (excitation / inhibition).log().mean().abs() < 0.05
    assert not W.diagonal().any()


@pytest.mark.parametrize(("size", "excitatory"), [(1, 0.5), (2, 0.5), (5, 1.0), (5, 0.0)])
def test_small_networks_of_dales_law_start_finite_and_alive(size: int, excitatory: float):
    raw = rc.registry()["ctrnn"](3, size, excitatory=excitatory).a.W_raw
    assert bool((raw > 0).all())
    assert bool((raw < 10).all())


def test_adaptive_neurons_fire_from_the_start_and_adapt():
    """With the weights and the threshold of Bellec et al.; a constant current makes them fire less and less."""
    torch.manual_seed(0)
    layer = rc.layer("adaptive_lif", 20, 100)
    W = layer.cells[0].current.W
    assert not W.diagonal().any()
    assert 0.09 < float(W.detach().std()) < 0.11
    with torch.no_grad():
        s = layer(torch.randn(1, 16, 20).expand(200, -1, -1))[0]
    early, late = s[:20].mean(), s[-20:].mean()
    assert 0.02 < late < 0.7 * early


def test_an_entity_aware_lstm_starts_as_its_authors_program():
    cell = fresh("ea_lstm")
    for gate in (cell.f, cell.g, cell.o):
        assert torch.equal(gate.W, torch.eye(P))
        assert_orthogonal(gate.U.detach())
    assert torch.equal(cell.f.b, torch.full((P,), 5.0))


def test_a_mass_conserving_lstm_keeps_its_mass_at_first():
    cell = rc.registry()["mass_conserving_lstm"](3, 5)
    assert torch.equal(cell.R.b, torch.eye(5).flatten())
    assert torch.equal(cell.o.b, torch.full((5,), -3.0))


def test_gru_d_starts_from_the_mean_of_a_feature():
    """Before it was seen, a feature is its mean: as if the mean had been seen long ago."""
    layer = rc.layer("gru_d", 2, 3, mean=torch.tensor([0.5, -2.0])).double()
    x = torch.randn(4, 1, 2, dtype=torch.float64)
    x[:, :, 0] = float("nan")
    (h, v, _), mean = layer(x)[1], torch.tensor([0.5, -2.0], dtype=torch.float64)
    assert v[0, 0, 0] == mean[0]
    far = (torch.zeros(1, 1, 3, dtype=torch.float64), mean.expand(1, 1, 2), -torch.ones(1, 1, 2, dtype=torch.float64))
    torch.testing.assert_close(layer(x, far)[1][0], h)


def test_gru_d_counts_time_from_the_first_step():
    """As in the paper, where the first interval is 0: without times it is the cell that is told 0, 1, 1, …"""
    told, plain = rc.layer("gru_d", 3, 4, timed=True).double(), rc.layer("gru_d", 2, 4).double()
    with torch.no_grad():
        for parameter in told.parameters():
            parameter.uniform_(-0.9, 0.9)
    plain.load_state_dict(told.state_dict())
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    x[:3, :, 1] = float("nan")
    times = torch.ones(5, 2, 1, dtype=torch.float64)
    times[0] = 0
    torch.testing.assert_close(plain(x)[0], told(torch.cat([x, times], -1))[0])


@pytest.mark.parametrize("tau", ["learned", True, [1.0, 2.0], torch.ones(2, 3)])
def test_time_constants_that_do_not_fit_are_refused(tau: object) -> None:
    with pytest.raises(rc.errors.InputError, match="tau: got"):
        rc.layer("leaky_rnn", 2, 3, tau=tau)
