"""mamba.py's block and SciPy's linear systems as oracles for linear recurrences; laws of their initialisation."""

import math

import numpy as np
import pytest
import torch
from cases import Case
from helpers import assert_close, put, run
from mambapy.mamba import MambaBlock, MambaConfig
from scipy.signal import cont2discrete, dlsim
from torch import Tensor

import recurra as rc
from recurra.cells.state_space import hippo_modes

X = torch.randn(30, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def test_mamba_is_the_block_of_mamba_py_before_its_output_projection():
    cell = Case("mamba", {"state_size": 3, "rank": 2}).cell()
    config = MambaConfig(d_model=3, n_layers=1, dt_rank=2, d_state=3, expand_factor=1, pscan=False)
    config.d_inner = 4
    block = MambaBlock(config).double()
    with torch.no_grad():
        block.in_proj.weight.copy_(torch.cat([cell.u.U, cell.z.U]))
        block.conv1d.weight.copy_(cell.k.flip(0).T[:, None])
        block.conv1d.bias.copy_(cell.k_b)
        block.x_proj.weight.copy_(torch.cat([cell.r.W, cell.b.W, cell.c.W]))
        block.dt_proj.weight.copy_(cell.dt.W)
        block.dt_proj.bias.copy_(cell.dt.b)
        block.A_log.copy_(cell.a.T)
        block.D.copy_(cell.d)
        block.out_proj = torch.nn.Identity()
    expected = block(X.transpose(0, 1)).transpose(0, 1)
    assert_close(run(cell, X)[0], expected, 2e-6)  # it computes A and D in single precision


def simulate(A: np.ndarray, B: np.ndarray, C: np.ndarray, D: np.ndarray, x: Tensor) -> np.ndarray:
    """SciPy's `x[t + 1] = A x[t] + B u[t]`, read one step later: ours counts the input of the same step."""
    u = np.vstack([x.numpy(), np.zeros((1, x.shape[1]))])
    states = dlsim((A, B, C, 0 * D, 1.0), u, t=np.arange(len(u)))[-1]
    return states[1:] @ C.T + x.numpy() @ D.T


def blocks(re: Tensor, im: Tensor) -> np.ndarray:
    """The real matrix of diagonal complex numbers, for states [re; im]."""
    re, im = np.diag(re.detach().numpy()), np.diag(im.detach().numpy())
    return np.block([[re, -im], [im, re]])


def linear_parts(cell: rc.Cell) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = (torch.cat([cell.b_re.U, cell.b_im.U]), torch.cat([cell.c_re.W, -cell.c_im.W], 1), cell.d.U)
    return tuple(part.detach().numpy() for part in parts)  # pyrefly: ignore


def test_s5_is_scipys_zero_order_hold_of_the_same_system():
    cell = Case("s5", {"modes": 3}).cell()
    B, C, D = linear_parts(cell)
    A, dt = blocks(-cell.rho.exp(), cell.omega), cell.dt.exp().detach().numpy()
    held = [cont2discrete((A, B, C, D), step, "zoh") for step in dt]  # each mode has its own time
    rows = np.arange(6) % 3
    A_bar, B_bar = (np.stack([held[mode][part][i] for i, mode in enumerate(rows)]) for part in (0, 1))
    found = run(cell, X)[0].detach()
    for b in range(2):
        np.testing.assert_allclose(found[:, b], simulate(A_bar, B_bar, 2 * C, D, X[:, b]), rtol=1e-10, atol=1e-12)


def test_s4d_is_one_system_of_scipys_for_each_unit():
    cell = Case("s4d", {"modes": 3}).cell()
    u = (X[:, 0] @ cell.u.U.T).detach()
    found = run(cell, X)[0].detach()
    for unit in range(4):
        A = blocks(-cell.rho[:, unit].exp(), cell.omega[:, unit])
        B, C = np.repeat([[1.0], [0.0]], 3, 0), torch.cat([cell.c_re, -cell.c_im])[:, unit].detach().numpy()[None]
        A, B, C, D, _ = cont2discrete(
            (A, B, 2 * C, cell.d[unit].detach().numpy().reshape(1, 1)), cell.dt[unit].exp().item()
        )
        expected = simulate(A, B, C, D, u[:, unit : unit + 1])[:, 0]
        np.testing.assert_allclose(found[:, 0, unit], expected, rtol=1e-10, atol=1e-12)


def test_lru_is_a_discrete_system_of_scipys():
    cell = Case("lru", {"modes": 3}).cell()
    B, C, D = linear_parts(cell)
    r, phi = (-cell.nu.exp()).exp(), cell.theta.exp()
    A = blocks(r * phi.cos(), r * phi.sin())
    gamma = torch.cat([cell.gamma, cell.gamma]).exp().detach().numpy()[:, None]
    np.testing.assert_allclose(run(cell, X)[0][:, 1].detach(), simulate(A, gamma * B, C, D, X[:, 1]), rtol=1e-10)


@pytest.mark.parametrize("modes", [1, 2, 8])
def test_hippo_modes_are_eigenvalues_of_legs_made_normal(modes: int):
    """The matrix of HiPPO-LegS plus P Pᵀ with P² = n + 1/2, for 2 · modes states."""
    n = np.arange(2 * modes)
    P = np.sqrt(1 + 2 * n)
    legs = -(np.tril(np.outer(P, P)) - np.diag(n))
    S = legs + np.outer(np.sqrt(n + 0.5), np.sqrt(n + 0.5))
    omega, V = hippo_modes(modes)
    values = np.linalg.eigvals(S)
    np.testing.assert_allclose(values.real, -0.5, atol=1e-7)
    np.testing.assert_allclose(np.sort(values.imag)[modes:], omega, rtol=1e-5)
    np.testing.assert_allclose(S @ V.numpy(), V.numpy() * (-0.5 + 1j * omega.numpy()), atol=1e-4 * np.abs(S).max())


def test_the_ring_of_an_lru():
    torch.manual_seed(0)
    cell = rc.registry()["lru"](3, 4000, smallest=0.5, largest=0.9, phase=0.3)
    r = torch.exp(-torch.exp(cell.nu))
    assert 0.5 <= r.min() < 0.51
    assert 0.89 < r.max() <= 0.9
    assert abs((r**2).mean() - (0.25 + 0.81) / 2) < 0.01  # evenly over the area of the ring
    assert cell.theta.exp().max() <= 0.3
    torch.testing.assert_close(cell.gamma.exp() ** 2, 1 - r**2)


def test_an_open_gate_of_rg_lru_decays_as_drawn_and_keeps_the_variance():
    torch.manual_seed(0)
    cell = put(rc.registry()["rg_lru"](1, 2000).double(), r__U=0.0, r__b=50.0, i__U=0.0, i__b=50.0)
    decay = cell.step(torch.zeros(1, 1).double(), torch.ones(1, 2000).double())[0]
    assert 0.9 <= decay.min() < decay.max() <= 0.999
    assert abs(decay.mean() - 0.9495) < 0.005
    u = cell.u.U[:, 0]
    added = cell.step(torch.ones(1, 1).double(), torch.zeros(1, 2000).double())[0]
    torch.testing.assert_close(decay**2 + (added / u) ** 2, torch.ones_like(u))


def test_sru_without_input_keeps_its_memory_at_the_highway():
    cell = put(Case("sru", {}).cell(), f__b=40.0, f__U=0.0, r__b=40.0, r__U=0.0)
    c = torch.tensor([[1.0, -2.0, 3.0, 0.5]], dtype=torch.float64)
    y, new = cell.step(torch.randn(1, 3, dtype=torch.float64), c)
    assert_close(y, c)
    assert_close(new, c)


def test_modes_of_hgrn_keep_their_modulus_under_a_floor_of_one():
    cell = Case("hgrn", {"floor": 1.0}).cell()
    re, im = torch.randn(2, 4).double(), torch.randn(2, 4).double()
    _, new_re, new_im = cell.step(torch.randn(2, 3).double(), re, im)
    assert_close(torch.hypot(new_re, new_im), torch.hypot(re, im))
    assert math.isclose(rc.registry()["hgrn"](3, 4).theta[0].item(), 1.0)


def test_gateloop_is_its_sum_over_the_past_in_complex_numbers():
    """Katsch 2023, the parallel form: y_t = Re(q_t Σ_s k_s v_s Π_{s<r≤t} a_r)."""
    layer, x = rc.layer("gateloop", 3, 4).double(), torch.randn(6, 2, 3, dtype=torch.float64)
    cell = layer.cell_list[0]
    q, k, v, f, theta = (part(x) for part in (cell.q, cell.k, cell.v, cell.f, cell.theta))
    log_a = torch.complex(torch.nn.functional.logsigmoid(f), theta).cumsum(0)
    weights = (log_a[:, None] - log_a[None]).exp()  # (t, s, B, H)
    past = torch.ones(6, 6, dtype=torch.float64).tril()[:, :, None, None]
    assert_close(layer(x)[0], q * (past * weights * (k * v)).sum(1).real)
