"""Identities of the LSTM and GRU families: limits, zeroed terms and tied parameters, by values and gradients."""

import copy
import math

import pytest
import torch
from cases import Case, draw_inputs, draw_states
from helpers import EXACT, assert_close, compare, gate, put, run, runs, share
from torch import Tensor

import recurra as rc

VANILLA = Case("vanilla_lstm")
X = draw_inputs(VANILLA, steps=6)


def assert_same(cell: rc.Cell, twin: rc.Cell) -> None:
    """One function of x and the states both carry; states only the first has start at random and must not matter."""
    state = draw_states(cell, 2)
    count = min(len(cell.carried), len(twin.carried))

    def first(which: rc.Cell):
        return lambda x, *given: run(which, x, *given, *state[len(given) : len(which.carried)])[: 1 + count]

    compare(first(cell), first(twin), X, *state[:count])


def without_peepholes(cell: rc.Cell) -> rc.Cell:
    return put(cell, **{name: 0 for name, _ in cell.named_parameters() if name.startswith("p_")})


# ---------------------------------------------------------------------------------------------------- LSTM


def test_vanilla_without_peepholes_is_the_plain_lstm():
    cell = without_peepholes(VANILLA.cell())
    assert_same(cell, share(Case("lstm").cell(), cell))


@pytest.mark.parametrize(("name", "missing"), [("lstm_nfg", "f"), ("lstm_nig", "i"), ("lstm_nog", "o")])
def test_a_missing_gate_is_one_held_open(name: str, missing: str):
    cell = Case(name).cell()
    assert_same(cell, gate(share(VANILLA.cell(), cell), missing, 1.0))


def test_the_original_lstm_is_the_plain_one_with_its_forget_gate_open():
    cell = Case("original_lstm").cell()
    assert_same(cell, gate(share(Case("lstm").cell(), cell), "f", 1.0))


def test_the_squashers_of_1997_are_scaled_tanh():
    """4 sig(a) - 2 = 2 tanh(a / 2) and 2 sig(c) - 1 = tanh(c / 2)."""
    cell = Case("original_lstm", {"squash": "1997"}).cell()
    twin = share(Case("original_lstm").cell(), cell)
    put(twin, g__U=cell.g.U / 2, g__W=cell.g.W / 2, g__b=cell.g.b / 2)
    h, c = draw_states(cell, 2)
    assert_close(run(cell, X, h, c)[0], run(twin, X, h, c / 2)[0])


def test_a_memory_block_is_cells_with_equal_gates():
    cell = Case("original_lstm", {"squash": "1997", "block_size": 2}).cell()
    twin = share(Case("original_lstm", {"squash": "1997"}).cell(), cell)
    rows = {
        f"{g}__{n}": getattr(cell, g).get_parameter(f"{n}_raw")[[0, 0, 1, 1]] for g in "io" for n in ("U", "W", "b")
    }
    assert_same(cell, put(twin, **rows))
    assert sum(p.numel() for p in cell.i.parameters()) == 2 * (3 + 4 + 1)


def test_without_recurrence_the_memory_gradient_is_the_product_of_forget_gates():
    cell = put(Case("lstm").cell(), i__W=0, f__W=0, g__W=0, o__W=0)
    h, c = draw_states(cell, 2)
    c.requires_grad_()
    forget = torch.sigmoid(X @ cell.f.U.T + cell.f.b)
    (gradient,) = torch.autograd.grad(run(cell, X, h, c)[2].sum(), c)
    assert_close(gradient, forget.prod(dim=0).detach())


def test_coupled_gates_are_a_forget_gate_with_negated_parameters():
    """1 - sig(a) = sig(-a)."""
    cell = Case("lstm_cifg").cell()
    twin = put(share(VANILLA.cell(), cell), f__U=-cell.i.U, f__W=-cell.i.W, f__b=-cell.i.b, p_f=-cell.p_i)
    assert_same(cell, twin)


def test_coupled_gates_without_output_gate_activation_and_peepholes_are_ugrnn_negated():
    ugrnn = Case("ugrnn").cell()
    g, c = ugrnn.g, ugrnn.c
    cell = gate(without_peepholes(Case("lstm_noaf").cell()), "o", 1.0)
    put(cell, i__U=-g.U, i__W=-g.W, i__b=-g.b, f__U=g.U, f__W=g.W, f__b=g.b, g__U=c.U, g__W=c.W, g__b=c.b)
    compare(lambda x, h: run(cell, x, h, h)[0], lambda x, h: run(ugrnn, x, h)[0], X, *draw_states(ugrnn, 2))


def test_full_gate_recurrence_with_zero_matrices_is_vanilla():
    cell = Case("full_gate_lstm").cell()
    put(cell, **{f"{g}__W_{s}": 0 for g in "ifo" for s in "ifo"})
    twin = put(share(VANILLA.cell(), cell), **{f"{g}__W": getattr(cell, g).W_h for g in "ifo"})
    assert_same(cell, twin)


def test_full_gate_recurrence_with_diagonal_matrices_is_the_dynamic_cortex_memory():
    dcm = Case("dynamic_cortex_memory").cell()
    cell = share(Case("full_gate_lstm").cell(), dcm)
    put(cell, **{f"{g}__W_h": getattr(dcm, g).W for g in "ifo"})
    put(cell, **{f"{g}__W_{s}": torch.diag(getattr(dcm, f"r_{g}{s}")) for g in "ifo" for s in "ifo"})
    assert_same(dcm, cell)


@pytest.mark.parametrize("options", [{}, {"same_step": True}], ids=str)
def test_the_dynamic_cortex_memory_without_links_is_vanilla(options: dict):
    cell = Case("dynamic_cortex_memory", options).cell()
    put(cell, **{name: 0 for name, _ in cell.named_parameters() if name.startswith(("r_", "k_"))})
    assert_same(cell, share(VANILLA.cell(), cell))


def test_slopes_of_one_are_vanilla():
    cell = put(Case("slope_lstm").cell(), lambda_i=1, lambda_f=1, lambda_o=1)
    assert_same(cell, share(VANILLA.cell(), cell))


@pytest.mark.parametrize("per", ["unit", "gate"])
def test_slopes_rescale_the_parameters_of_their_gate(per: str):
    cell = Case("slope_lstm", {"per": per}).cell()
    twin = share(VANILLA.cell(), cell)
    for g in "ifo":
        slope, affine = getattr(cell, f"lambda_{g}"), getattr(cell, g)
        put(twin, **{f"{g}__U": slope[:, None] * affine.U, f"{g}__W": slope[:, None] * affine.W})
        put(twin, **{f"{g}__b": slope * affine.b, f"p_{g}": slope * getattr(cell, f"p_{g}")})
    assert_same(cell, twin)


def test_infinite_slopes_are_thresholds():
    cell = put(Case("slope_lstm").cell(), lambda_i=1e8, lambda_f=1e8, lambda_o=1e8)

    def thresholds(x: Tensor, h: Tensor, c: Tensor) -> Tensor:
        for x_t in x:
            i, f = (
                torch.heaviside(getattr(cell, g)(x_t, h) + getattr(cell, f"p_{g}") * c, h.new_zeros(())) for g in "if"
            )
            c = f * c + i * torch.tanh(cell.g(x_t, h))
            h = torch.heaviside(cell.o(x_t, h) + cell.p_o * c, h.new_zeros(())) * torch.tanh(c)
        return h

    state = draw_states(cell, 2)
    assert_close(run(cell, X, *state)[1], thresholds(X, *state))


# ---------------------------------------------------------------------------------------------------- projection


def test_a_projection_by_the_identity_is_vanilla():
    cell = put(Case("projection_lstm", {"proj_size": 4}).cell(), R__W=torch.eye(4))
    assert_same(cell, share(VANILLA.cell(), cell))


@pytest.mark.parametrize("n_p", [0, 5])
def test_projection_lstm_has_as_many_parameters_as_the_paper_counts(n_p: int):
    d, n_c, n_r = 3, 8, 4
    cell = rc.registry()["projection_lstm"](d, n_c, proj_size=n_r, output_proj_size=n_p)
    expected = 4 * n_c * (n_r + d + 1) + 3 * n_c + n_c * (n_r + n_p)
    assert sum(p.numel() for p in cell.parameters()) == expected


def test_the_forget_bias_of_run_time_is_a_stored_one():
    cell = Case("projection_lstm", {"peepholes": False, "forget_bias": 1.0}).cell()
    twin = share(Case("projection_lstm", {"peepholes": False}).cell(), cell)
    assert_same(cell, put(twin, f__b=cell.f.b + 1))


def test_clipping_bounds_the_memory_and_the_projection_and_stops_their_gradients():
    options = {"proj_size": 2, "cell_clip": 0.4, "proj_clip": 0.2}
    cell = put(Case("projection_lstm", options).cell(), g__b=20, i__b=20, R__W=5)
    r, c = draw_states(cell, 2)
    y, r_T, c_T = run(cell, X, r, c.requires_grad_())
    assert_close(c_T, torch.full_like(c_T, 0.4), 0.0)
    assert_close(r_T.abs(), torch.full_like(r_T, 0.2), 0.0)
    assert torch.autograd.grad(y.sum(), c)[0].abs().max() == 0


def test_wide_clips_change_nothing():
    wide = Case("projection_lstm", {"cell_clip": 50.0, "proj_clip": 50.0}).cell()
    assert_same(wide, share(Case("projection_lstm").cell(), wide))


# ---------------------------------------------------------------------------------------------------- GRU


def test_mgu_is_a_gru_with_tied_gates():
    cell = Case("mgu").cell()
    f, c = cell.f, cell.c
    tied = {f"{g}__{n}": getattr(f, n) for g in "rz" for n in ("U", "W", "b")}
    assert_same(cell, put(Case("gru").cell(), **tied, c__U=c.U, c__W=c.W, c__b=c.b))


@pytest.mark.parametrize(
    ("name", "zeroed", "fewer"),
    [("mgu1", ["f__U"], 4 * 3), ("mgu2", ["f__U", "f__b"], 4 * 3 + 4), ("mgu3", ["f__U", "f__W"], 4 * 3 + 4 * 4)],
)
def test_the_smaller_mgus_are_mgu_with_terms_zeroed(name: str, zeroed: list[str], fewer: int):
    cell, full = Case(name).cell(), Case("mgu").cell()
    twin = put(share(Case("mgu").cell(), cell), **dict.fromkeys(zeroed, 0))
    if name == "mgu3":
        put(twin, f__b=cell.b_f)
    assert_same(cell, twin)
    assert sum(p.numel() for p in full.parameters()) - sum(p.numel() for p in cell.parameters()) == fewer


def test_a_gru_whose_reset_gate_is_open_is_the_same_before_and_after_the_product():
    before = gate(Case("gru").cell(), "r", 1.0)
    after = put(share(Case("gru", {"reset_after": True}).cell(), before), m__W=before.c.W, m__b=0)
    assert_same(before, after)


def test_reset_before_and_after_differ_unless_the_candidate_matrix_is_diagonal():
    before = Case("gru").cell()
    after = put(share(Case("gru", {"reset_after": True}).cell(), before), m__W=before.c.W, m__b=0)
    state = draw_states(before, 2)
    assert (run(before, X, *state)[0] - run(after, X, *state)[0]).abs().max() > 1e-2
    diagonal = torch.diag(torch.rand(4))
    assert_same(put(before, c__W=diagonal), put(after, m__W=diagonal))


def test_mut2_is_a_gru_whose_reset_projection_is_e():
    cell = Case("mut2").cell()
    twin = share(Case("gru").cell(), cell)
    assert_same(cell, put(twin, r__U=cell.E.U))


def test_mut2_of_equal_sizes_is_a_gru_whose_reset_projection_is_the_identity():
    cell = Case("mut2", input_size=4).cell()
    twin = put(share(Case("gru", input_size=4).cell(), cell), r__U=torch.eye(4))
    x = draw_inputs(Case("mut2", input_size=4))
    compare(runs(cell), runs(twin), x, *draw_states(cell, 2))


def test_mut3_is_a_gru_where_the_state_is_small():
    cell = Case("mut3").cell()
    twin = share(Case("gru").cell(), cell)
    (h,) = draw_states(cell, 2)
    far, near = ((cell.step(X[0], scale * h) - twin.step(X[0], scale * h)).abs().max().item() for scale in (1.0, 0.01))
    assert near < 1e-6 < 1e-3 < far  # tanh(h) = h - h³/3 + …


# ---------------------------------------------------------------------------------------------------- descendants


def test_indrnn_is_a_rectified_rnn_with_a_diagonal_matrix():
    cell = Case("indrnn").cell()
    twin = put(share(Case("rnn", {"nonlinearity": "relu"}).cell(), cell), a__W=torch.diag(cell.u))
    assert_same(cell, twin)


def test_indrnn_bounds_its_recurrent_weights():
    cell = put(Case("indrnn", {"longest": 10, "gamma": 2.0}).cell(), u=torch.tensor([-3.0, 0.5, 2.0, 1.0]))
    bound = 2 ** (1 / 10)
    twin = put(share(Case("indrnn").cell(), cell), u=torch.tensor([-bound, 0.5, bound, 1.0], dtype=torch.float64))
    state = draw_states(cell, 2)
    assert_close(run(cell, X, *state)[0], run(twin, X, *state)[0])


def test_janet_with_beta_zero_is_ugrnn():
    cell = Case("janet", {"beta": 0.0}).cell()
    f, c = cell.f, cell.c
    assert_same(cell, put(Case("ugrnn").cell(), g__U=f.U, g__W=f.W, g__b=f.b, c__U=c.U, c__W=c.W, c__b=c.b))


def test_min_gru_is_a_cumulative_sum_in_log_space():
    """log h = a* + logcumsumexp(log z + log g - a*), a* = cumsum log(1 - z): for positive candidates and h_0 = 0."""
    cell = put(Case("min_gru").cell(), c__b=10.0)

    def parallel(x: Tensor) -> Tensor:
        net, candidate = cell.z(x.flatten(0, 1)).view(6, 2, 4), cell.c(x.flatten(0, 1)).view(6, 2, 4)
        total = torch.nn.functional.logsigmoid(-net).cumsum(0)
        logs = torch.nn.functional.logsigmoid(net) + candidate.log() - total
        return (total + logs.logcumsumexp(0)).exp()

    compare(lambda x: run(cell, x)[0], parallel, X)


def test_the_log_form_of_min_gru_is_the_papers_scan_in_logarithms():
    """log h = a* + logcumsumexp([log h_0, log z + log g - a*]), with log g(a) = log(a + 0.5) or -softplus(-a)."""
    cell, F = Case("min_gru", {"log_form": True}).cell(), torch.nn.functional
    h_0 = torch.rand(2, 4, dtype=torch.float64) + 0.1

    def in_logarithms(x: Tensor) -> Tensor:
        net, a = cell.z(x.flatten(0, 1)).view(6, 2, 4), cell.c(x.flatten(0, 1)).view(6, 2, 4)
        total = (-F.softplus(net)).cumsum(0)
        log_g = torch.where(a >= 0, torch.log(F.relu(a) + 0.5), -F.softplus(-a))
        terms = torch.cat([h_0.log()[None], -F.softplus(-net) + log_g - total])
        return (total + terms.logcumsumexp(0)[1:]).exp()

    compare(lambda x: run(cell, x, h_0)[0], in_logarithms, X)


def test_min_lstm_is_min_gru_with_the_gate_its_two_gates_amount_to():
    """i / (f + i) is one gate z, and 1 - z = f / (f + i)."""
    cell = Case("min_lstm").cell()

    def as_gru(x: Tensor, h: Tensor) -> Tensor:
        for x_t in x:
            f, i = torch.sigmoid(cell.f(x_t)), torch.sigmoid(cell.i(x_t))
            h = h + i / (f + i) * (cell.c(x_t) - h)
        return h

    compare(lambda x, h: run(cell, x, h)[1], as_gru, X, *draw_states(cell, 2))


@pytest.mark.parametrize("options", [{}, {"forget": "exp"}, {"heads": 2}], ids=str)
def test_stabilised_slstm_equals_the_unstabilised_one(options: dict):
    cell = Case("slstm", options).cell()

    def unstabilised(x: Tensor) -> Tensor:
        h, c, n = (torch.zeros(2, 4, dtype=torch.float64) for _ in range(3))
        rows = []
        for x_t in x:
            forget = cell.f(x_t, h)
            f = torch.sigmoid(forget) if cell.forget == "sigmoid" else torch.exp(forget)
            i = torch.exp(cell.i(x_t, h))
            c, n = f * c + i * torch.tanh(cell.z(x_t, h)), f * n + i
            h = torch.sigmoid(cell.o(x_t, h)) * c / n
            rows.append(h)
        return torch.stack(rows)

    compare(lambda x: run(cell, x)[0], unstabilised, X)


@pytest.mark.parametrize("bias", [-2000.0, 2000.0])
def test_slstm_does_not_depend_on_the_input_gates_bias_where_the_exponential_alone_would_overflow(bias: float):
    """e^bias multiplies memory and normaliser alike, and cancels in c / n."""
    cell = Case("slstm").cell()
    without, shifted = (put(copy.deepcopy(cell), i__b=value) for value in (0.0, bias))
    compare(lambda x: run(shifted, x)[0], lambda x: run(without, x)[0], X, tolerance=1e-10)


def test_the_antisymmetric_matrix_has_imaginary_eigenvalues_moved_left_by_the_diffusion():
    for name, affine in (("antisymmetric_rnn", "a"), ("gated_antisymmetric_rnn", "V")):
        cell = Case(name, {"gamma": 0.25}).cell(hidden_size=7)
        W, M = getattr(cell, affine).W, getattr(cell, affine).W_raw
        assert_close(W, M - M.T - 0.25 * torch.eye(7))
        real = torch.linalg.eigvals(W).real
        assert_close(real, torch.full_like(real, -0.25))


def test_a_gated_antisymmetric_network_whose_gate_is_open_is_the_plain_one():
    plain = Case("antisymmetric_rnn").cell()
    cell = put(Case("gated_antisymmetric_rnn").cell(), V__W_raw=plain.a.W_raw, c__U=plain.a.U, c__b=plain.a.b)
    assert_same(gate(cell, "z", 1.0), plain)


def test_cornn_without_force_is_a_damped_oscillator():
    """The update matrix of (y, z) for a force of zero: [[1 - Δt²γ, Δt(1 - Δtε)], [-Δtγ, 1 - Δtε]], per unit."""
    dt, gamma, epsilon = 0.1, 1.3, 0.7
    cell = put(Case("cornn", {"dt": dt, "gamma": gamma, "epsilon": epsilon}).cell(), a__U=0, a__W_y=0, a__W_z=0, a__b=0)
    step = torch.tensor(
        [[1 - dt**2 * gamma, dt * (1 - dt * epsilon)], [-dt * gamma, 1 - dt * epsilon]], dtype=torch.float64
    )
    y, z = draw_states(cell, 2)
    _, y_T, z_T = run(cell, X, y, z)
    assert_close(
        torch.stack([y_T, z_T]).flatten(1), torch.linalg.matrix_power(step, 6) @ torch.stack([y, z]).flatten(1)
    )


def test_lem_with_a_slow_gate_shut_keeps_its_output():
    cell = gate(Case("lem").cell(), "slow", 0.0)
    y, z = draw_states(cell, 2)
    assert_close(run(cell, X, y, z)[0], y.expand(6, 2, 4), EXACT)


def test_a_constant_gate_of_mgu3_forgets_geometrically():
    cell = put(Case("mgu3").cell(), c__U=0, c__W=0, c__b=0, b_f=math.log(0.25 / 0.75))
    (h,) = draw_states(cell, 2)
    assert_close(run(cell, X, h)[1], 0.75**6 * h)


@pytest.mark.parametrize("squash", ["tanh", "1997"])
def test_the_original_full_gate_lstm_without_its_recurrence_is_the_original(squash: str) -> None:
    cell = Case("original_full_gate_lstm", {"squash": squash}).cell()
    twin = Case("original_lstm", {"squash": squash}).cell()
    weights = {
        f"{k}.{n}": getattr(getattr(cell, k), m) for k in "io" for n, m in (("U", "U"), ("W", "W_h"), ("b", "b"))
    }
    weights |= {f"g.{n}": getattr(cell.g, n) for n in ("U", "W", "b")}
    with torch.no_grad():
        for name, value in weights.items():
            twin.get_parameter(name).copy_(value)
        for gate in (cell.i, cell.o):
            gate.W_i.zero_()
            gate.W_o.zero_()
    x = draw_inputs(Case("original_lstm"))
    for found, expected in zip(run(cell, x)[:3], run(twin, x)[:3], strict=True):
        assert_close(found, expected)
