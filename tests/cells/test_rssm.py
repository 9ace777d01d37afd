"""The recurrent state-space model: one step in NumPy with the same noise, its gradients, its samples."""

import numpy as np
import pytest
import torch
from cases import randomise
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.errors import InputError

L, K, F64 = 3, 4, torch.float64


def layer(**options: object) -> rc.Recurrent:
    torch.manual_seed(0)
    return randomise(rc.Recurrent(rc.cells.RSSM, 7, 5, actions=2, latents=L, classes=K, dtype=F64, **options))


def sig(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def transcribed(cell: rc.Cell, x: np.ndarray, u: np.ndarray, imagine: bool) -> np.ndarray:
    """Outputs (T, H + 3 L K) of one sequence, from equations 1 to 4 of the paper."""
    w = {name: value.detach().numpy() for name, value in cell.named_parameters()}
    h, z, outputs = np.zeros(5), np.zeros(L * K), []
    for x_t, u_t in zip(x, u, strict=True):
        e, a = x_t[:5], x_t[5:]
        reset, update, new = (
            w[f"{g}.U"] @ a + w[f"{g}.W_h"] @ h + w[f"{g}.W_z"] @ z + w[f"{g}.b"] for g in ("r", "k", "c")
        )
        gate = sig(update - 1)
        h = (1 - gate) * h + gate * np.tanh(sig(reset) * new)
        found = []
        for logits in (w["prior.W"] @ h + w["prior.b"], w["posterior.W"] @ h + w["posterior.b"] + w["seen.W"] @ e):
            shares = np.exp(logits.reshape(L, K))
            found.append(0.99 * shares / shares.sum(1, keepdims=True) + 0.01 / K)
        chosen = (np.log(found[0 if imagine else 1]) - np.log(-np.log(u_t.reshape(L, K)))).argmax(1)
        z = np.eye(K)[chosen].reshape(-1)
        outputs.append(np.concatenate([h, z, np.log(found[0]).reshape(-1), np.log(found[1]).reshape(-1)]))
    return np.stack(outputs)


@pytest.mark.parametrize("imagine", [False, True])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_sequence_is_the_papers(backend: str, imagine: bool):
    made, x = layer(), torch.randn(6, 2, 7, dtype=F64)
    made.cell_list[0].imagine = imagine
    with set_backend(backend):
        torch.manual_seed(3)
        y = made(x)[0]
        if backend == "auto":
            assert "backend: compiled" in rc.explain(made, x)
    torch.manual_seed(3)
    u = torch.rand(6, 2, L * K, dtype=F64)
    for row in range(2):
        wanted = transcribed(made.cell_list[0], x[:, row].numpy(), u[:, row].numpy(), imagine)
        np.testing.assert_allclose(y[:, row].detach().numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_gradients_agree_between_engines_and_pass_straight_through():
    made, x = layer(), torch.randn(6, 2, 7, dtype=F64)
    found: list[list[Tensor]] = []
    for backend in ("reference", "auto"):
        with set_backend(backend):
            torch.manual_seed(3)
            y = made(x)[0]
            found.append(
                list(torch.autograd.grad((y * torch.sin(torch.arange(41.0, dtype=F64))).sum(), list(made.parameters())))
            )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert all(gradient.abs().sum() > 0 for gradient in found[0])


def test_samples_follow_the_posterior():
    made = layer()
    x = torch.randn(1, 1, 7, dtype=F64).expand(1, 20_000, 7)
    with torch.no_grad():
        _, z, _, posterior = made.cell_list[0].split(made(x)[0][0])
    p = posterior[0].exp()
    assert ((z.mean(0) - p).abs() <= 5 * (p * (1 - p) / 20_000).sqrt()).all()


@pytest.mark.parametrize("options", [{"actions": 7}, {"unimix": 1.0}, {"classes": 0}])
def test_a_bad_option_is_named(options: dict):
    with pytest.raises(InputError, match=rf"^{next(iter(options))}: got "):
        rc.cells.RSSM(7, 5, **options)


def test_equations_show_where_no_gradient_flows():
    """z = s + q - stop(q): without the word the last two terms would cancel."""
    text = rc.cells.RSSM(10, 4, actions=2, latents=2, classes=2).equations()
    assert r"z_{t} &= s_{t} + q_{t} - \mathrm{stop}\left(q_{t}\right)" in text
