"""What the plain cells and the cells with time scales must equal, by values and gradients."""

import math

import numpy as np
import pytest
import torch
from cases import Case, draw_inputs, draw_states, sampled_case
from cells.transcriptions.mathematics import sig
from cells.transcriptions.plain import unitary_matrix
from helpers import assert_close, compare, gate, put, run, runs, share
from torch import Tensor

import recurra as rc

RNN = Case("rnn")


@sampled_case
def test_two_chunks_with_the_state_carried_over_equal_one_run(case: Case):
    cell, x = case.cell(), draw_inputs(case, steps=6)

    def in_two(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        first, *state = run(cell, x[:2], *state)
        second, *state = run(cell, x[2:], *state)
        return torch.cat([first, second]), *state

    compare(in_two, runs(cell), x, *draw_states(cell, 2))


# ---------------------------------------------------------------------------------------------------- one matrix


def test_a_linear_network_at_the_scaled_identity_decays_geometrically():
    cell = Case("rnn", {"nonlinearity": "identity"}).cell()
    put(cell, a__U=0, a__b=0, a__W=0.9 * torch.eye(4, dtype=torch.float64))
    (h,) = draw_states(cell, 2)
    y, _ = run(cell, draw_inputs(RNN), h)
    assert_close(y, torch.stack([0.9**t * h for t in range(1, 6)]))


def test_identity_rnn_starts_with_the_spectral_radius_it_is_given():
    cell = rc.registry()["identity_rnn"](3, 16, scale=0.9, noise=0.0).double()
    assert torch.linalg.eigvals(cell.a.W).abs().max().item() == pytest.approx(0.9, abs=1e-7)


def test_irnn_at_its_start_holds_what_is_positive():
    cell = rc.registry()["irnn"](3, 4).double()
    (h,) = draw_states(cell, 2)
    y, _ = run(cell, torch.zeros(5, 2, 3, dtype=torch.float64), h)
    assert_close(y, torch.relu(h).expand(5, 2, 4), 0.0)


def test_irnn_is_a_rectified_rnn():
    cell = Case("irnn").cell()
    twin = share(Case("rnn", {"nonlinearity": "relu"}).cell(), cell)
    compare(runs(cell), runs(twin), draw_inputs(RNN), *draw_states(cell, 2))


@pytest.mark.parametrize("determinant", [1, -1])
def test_orthogonal_rnn_stays_orthogonal_under_an_optimiser(determinant: int):
    cell = rc.registry()["orthogonal_rnn"](3, 5, nonlinearity="identity", determinant=determinant).double()
    optimiser = torch.optim.Adam(cell.parameters(), lr=0.1)
    x, start = draw_inputs(RNN, batch=2), cell.a.W.detach().clone()
    for _ in range(20):
        optimiser.zero_grad()
        (run(cell, x)[0] - 1).square().mean().backward()
        optimiser.step()
    W = cell.a.W.detach()
    assert (W - start).abs().max() > 0.1
    assert_close(W.T @ W, torch.eye(5, dtype=torch.float64))
    assert_close(torch.linalg.det(W), torch.tensor(float(determinant), dtype=torch.float64))
    v = torch.randn(5, dtype=torch.float64)
    assert_close(torch.linalg.matrix_power(W, 50) @ v, torch.linalg.matrix_power(W.T, -50) @ v)
    assert_close((torch.linalg.matrix_power(W, 50) @ v).norm(), v.norm())


def test_residual_rnn_is_an_rnn_with_the_identity_added_and_every_eigenvalue_moved_by_one():
    cell = Case("residual_rnn").cell()
    twin = put(share(RNN.cell(), cell), a__W=cell.a.W + torch.eye(4))
    compare(runs(cell), runs(twin), draw_inputs(RNN), *draw_states(cell, 2))
    moved = torch.linalg.eigvals(twin.a.W) - torch.linalg.eigvals(cell.a.W)
    assert_close(moved.sum(), torch.tensor(4.0 + 0j, dtype=torch.complex128))


def test_rin_is_a_rectified_rnn_with_the_identity_added():
    cell = Case("rin").cell()
    twin = put(share(Case("irnn").cell(), cell), a__W=cell.a.W + torch.eye(4))
    compare(runs(cell), runs(twin), draw_inputs(RNN), *draw_states(cell, 2))
    without = put(Case("rin").cell(), a__W=0)
    start = put(share(Case("irnn").cell(), without), a__W=torch.eye(4))
    compare(runs(without), runs(start), draw_inputs(RNN), *draw_states(cell, 2))


def test_rin_with_two_transitions_is_two_steps_the_second_without_input():
    cell = Case("rin", {"transitions": 2}).cell()
    first = share(Case("rin").cell(), cell)
    second = put(Case("rin").cell(), a__W=cell.deeper[0].W, a__b=cell.deeper[0].b)

    def twice(x: Tensor, h: Tensor) -> Tensor:
        for x_t in x:
            h = second.step(torch.zeros_like(x_t), first.step(x_t, h))
        return h

    compare(lambda x, h: run(cell, x, h)[1], twice, draw_inputs(RNN), *draw_states(cell, 2))


# ---------------------------------------------------------------------------------------------------- unitary


def test_the_unitary_matrix_is_unitary_and_the_fast_path_applies_it():
    cell = put(Case("unitary_rnn").cell(), net__U=0, b=0)
    W = unitary_matrix({name: value.detach().numpy() for name, value in cell.weights().items()})
    np.testing.assert_allclose(W @ W.conj().T, np.eye(4), atol=1e-14)
    (h,) = draw_states(cell, 3)
    once = cell.step(torch.zeros(3, 3, dtype=torch.float64), h).detach().numpy()
    z = h.numpy()[:, :4] + 1j * h.numpy()[:, 4:]
    np.testing.assert_allclose(once[:, :4] + 1j * once[:, 4:], z @ W.T, rtol=1e-13, atol=1e-13)


def test_the_unitary_cell_without_input_and_bias_keeps_the_norm():
    cell = put(Case("unitary_rnn").cell(), net__U=0, b=0)
    (h,) = draw_states(cell, 2)
    y, _ = run(cell, torch.zeros(100, 2, 3, dtype=torch.float64), h)
    assert_close(y.norm(dim=-1), h.norm(dim=-1).expand(100, 2))


def test_the_unitary_cell_has_a_gradient_at_a_state_of_zero():
    """At zero, modReLU with bias b is multiplication by b: two steps are b W h and b² W² h."""
    cell = put(Case("unitary_rnn").cell(), net__U=0, b=0)
    W = cell.step(torch.zeros(8, 3, dtype=torch.float64), torch.eye(8, dtype=torch.float64)).detach()  # h ↦ h W
    put(cell, b=0.5)
    h = torch.zeros(2, 8, dtype=torch.float64, requires_grad=True)
    y, _ = run(cell, torch.zeros(2, 2, 3, dtype=torch.float64), h)
    (gradient,) = torch.autograd.grad(y.sum(), h)
    assert torch.equal(y, torch.zeros_like(y))
    assert_close(gradient, (0.5 * W + 0.25 * W @ W).sum(1).expand(2, 8))


# ---------------------------------------------------------------------------------------------------- time scales


def test_one_delay_of_one_is_the_plain_rnn():
    cell = Case("delay_rnn", {"delays": (1,)}).cell()
    twin = share(RNN.cell(), cell)
    (history,) = draw_states(cell, 2)
    y, final = run(cell, draw_inputs(RNN), history)
    expected, last = run(twin, draw_inputs(RNN), history[:, 0])
    assert_close(y, expected)
    assert_close(final[:, 0], last)


@pytest.mark.parametrize("k", [2, 3])
def test_one_delay_of_k_is_k_interleaved_networks(k: int):
    cell = Case("delay_rnn", {"delays": (k,)}).cell()
    twin = share(RNN.cell(), cell)
    (history,) = draw_states(cell, 2)

    def interleaved(x: Tensor, history: Tensor) -> Tensor:
        apart = [run(twin, x[phase::k], history[:, k - 1 - phase])[0] for phase in range(k)]
        return torch.stack([apart[t % k][t // k] for t in range(len(x))])

    compare(lambda x, h: run(cell, x, h)[0], interleaved, draw_inputs(RNN, steps=7), history)


def test_delays_are_a_plain_network_in_companion_form():
    """z_t = [h_t; h_{t-1}; h_{t-2}], driven by one block row of matrices."""
    cell = Case("delay_rnn").cell()
    (history,) = draw_states(cell, 1)

    def companion(x: Tensor, history: Tensor) -> Tensor:
        z, rows = history.flatten(), []
        block = torch.cat([cell.a.W_1, torch.zeros(4, 4, dtype=torch.float64), cell.a.W_3], dim=1)
        for x_t in x[:, 0]:
            z = torch.cat([torch.tanh(block @ z + cell.a.U @ x_t + cell.a.b), z[:8]])
            rows.append(z[:4])
        return torch.stack(rows)[:, None]

    compare(lambda x, h: run(cell, x, h)[0], companion, draw_inputs(RNN, batch=1), history)


def test_leaky_units_with_tau_one_are_the_plain_rnn():
    cell = Case("leaky_rnn", {"tau": 1.0}).cell()
    compare(runs(cell), runs(share(RNN.cell(), cell)), draw_inputs(RNN), *draw_states(cell, 2))


def test_leaky_units_are_a_gru_with_constant_gates():
    cell = Case("leaky_rnn", {"tau": 3.5}).cell()
    gru = put(Case("gru").cell(), c__W=cell.a.W, c__U=cell.a.U, c__b=cell.a.b)
    gru = gate(gate(gru, "r", 1.0), "z", 1 / 3.5)
    compare(runs(cell), runs(gru), draw_inputs(RNN), *draw_states(cell, 2))


def test_learned_time_constants_start_at_the_given_ones_and_never_fall_below_one():
    cell = rc.registry()["leaky_rnn"](3, 4, tau=torch.tensor([1.5, 2.0, 10.0, 50.0]), learn=True).double()
    fixed = share(Case("leaky_rnn").cell(), cell)
    fixed.tau.copy_(torch.tensor([1.5, 2.0, 10.0, 50.0]))
    y, expected = (run(each, draw_inputs(RNN))[0] for each in (cell, fixed))
    assert_close(y, expected, 1e-6)  # ρ was computed in single precision
    put(cell, rho=-50.0)
    y, expected = (run(each, draw_inputs(RNN))[0] for each in (cell, share(RNN.cell(), cell)))
    assert_close(y, expected)


def test_a_large_time_constant_keeps_the_gradient_alive():
    norms = []
    for tau in (1.0, 100.0):
        cell = Case("leaky_rnn", {"tau": tau}).cell()
        jacobian = torch.func.jacrev(lambda h, cell=cell: run(cell, draw_inputs(RNN, steps=50, batch=1), h)[1])
        norms.append(torch.linalg.matrix_norm(jacobian(draw_states(cell, 1)[0])[0, :, 0], ord=2).item())
    assert norms[0] < 1e-6 < 0.1 < norms[1]


def test_the_temporal_kernel_recursion_is_the_sum_over_all_earlier_steps():
    cell, x = Case("temporal_kernel_rnn").cell(), draw_inputs(RNN, steps=6, batch=1)
    w = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    decay, h = sig(w["rho"]), [np.zeros(4)]
    for t in range(6):
        nets = (w["net.W"] @ h[s] + w["net.U"] @ x[s, 0].numpy() + w["net.b"] for s in range(t + 1))
        h.append(sig(sum(decay ** (t - s) * net for s, net in enumerate(nets))))
    assert_close(run(cell, x)[0][:, 0], torch.from_numpy(np.stack(h[1:])))


def test_a_temporal_kernel_without_memory_is_the_plain_rnn():
    cell = put(Case("temporal_kernel_rnn").cell(), rho=-800.0)
    twin = put(Case("rnn", {"nonlinearity": "sigmoid"}).cell(), a__W=cell.net.W, a__U=cell.net.U, a__b=cell.net.b)
    h, a = draw_states(cell, 2)
    assert_close(run(cell, draw_inputs(RNN), h, a)[0], run(twin, draw_inputs(RNN), h)[0])


# ---------------------------------------------------------------------------------------------------- slow context


def test_scrn_is_one_network_with_a_block_matrix():
    cell = Case("scrn", {"context_size": 3, "alpha": 0.6}).cell()
    B, P, U, W = cell.B.U, cell.P.W, cell.net.U, cell.net.W
    eye, alpha = torch.eye(3, dtype=torch.float64), 0.6
    recurrent = torch.cat([torch.cat([W, alpha * P], 1), torch.cat([torch.zeros(3, 4).double(), alpha * eye], 1)])
    inputs = torch.cat([U + (1 - alpha) * P @ B, (1 - alpha) * B])

    def block(x: Tensor, h: Tensor, s: Tensor) -> tuple[Tensor, ...]:
        z, rows = torch.cat([h, s], dim=1), []
        for x_t in x:
            net = z @ recurrent.T + x_t @ inputs.T
            z = torch.cat([torch.sigmoid(net[:, :4]), net[:, 4:]], dim=1)
            rows.append(z)
        return torch.stack(rows), z[:, :4], z[:, 4:]

    compare(runs(cell), block, draw_inputs(RNN), *draw_states(cell, 2))


def test_scrn_without_alpha_has_no_memory_in_its_context():
    cell, x = Case("scrn", {"context_size": 3, "alpha": 0.0}).cell(), draw_inputs(RNN)
    assert_close(run(cell, x, *draw_states(cell, 2))[0][..., 4:], x @ cell.B.U.T)


def test_an_adaptive_alpha_starts_at_the_fixed_one():
    cell = rc.registry()["scrn"](3, 4, alpha=0.7, adaptive=True).double()
    fixed = share(Case("scrn", {"alpha": 0.7}).cell(), cell)
    put(cell, beta=math.log(0.7 / 0.3))
    compare(runs(cell), runs(fixed), draw_inputs(RNN), *draw_states(cell, 2))


def test_a_linear_focused_network_is_the_slow_block_of_scrn():
    scrn = Case("scrn", {"context_size": 4, "alpha": 0.6}).cell()
    cell = Case("focused_rnn", {"nonlinearity": "identity"}).cell()
    put(cell, a__U=0.4 * scrn.B.U, a__b=0, rho=math.log(0.6 / 0.4))
    h, s = draw_states(scrn, 2)
    assert_close(run(cell, draw_inputs(RNN), s)[0], run(scrn, draw_inputs(RNN), h, s)[0][..., 4:])


def test_a_linear_focused_network_is_a_diagonal_rnn():
    cell = Case("focused_rnn", {"nonlinearity": "identity"}).cell()
    twin = put(
        Case("rnn", {"nonlinearity": "identity"}).cell(),
        a__W=torch.diag(torch.sigmoid(cell.rho)), a__U=cell.a.U, a__b=cell.a.b,
    )  # fmt: skip
    compare(runs(cell), runs(twin), draw_inputs(RNN), *draw_states(cell, 2))


def test_focused_gradients_need_only_a_trace_that_runs_forward():
    """∂s_t/∂U = d ⊙ ∂s_{t-1}/∂U + f' x_tᵀ: one outer product a step, no history."""
    cell, x = Case("focused_rnn").cell(), draw_inputs(RNN, steps=6, batch=1)
    d = torch.sigmoid(cell.rho).detach()
    trace = torch.zeros(4, 3, dtype=torch.float64)
    for x_t in x[:, 0]:
        slope = 1 - torch.tanh(cell.a.U @ x_t + cell.a.b).detach() ** 2
        trace = d[:, None] * trace + slope[:, None] * x_t
    error = torch.randn(4, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((run(cell, x)[1][0] * error).sum(), cell.a.U)
    assert_close(gradient, error[:, None] * trace)
