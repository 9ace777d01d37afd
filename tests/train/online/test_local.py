"""e-prop and RFLO: the equations of their papers in NumPy, and exact gradients where units see themselves alone."""

from functools import partial

import numpy as np
import pytest
import torch
from cases import Case, draw_inputs
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.cells.surrogates import spike
from recurra.train import RFLO, RTRL, EProp, Predictor

STEPS, UNITS, OUTPUTS = 7, 4, 2


class LIF(rc.Cell):
    """Leaky integrate-and-fire units; the reset is no part of the gradient, as in Bellec et al."""

    states = ("z", "v")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "z")

    def step(self, x: Tensor, z: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.9 * v + self.a(x, z) - 0.6 * z.detach()
        return spike(v - 0.6), v


def inputs(batch: int = 2) -> tuple[Tensor, Tensor]:
    x = torch.randn(STEPS, batch, 3, dtype=torch.float64) * 2
    return x, torch.randn(STEPS, batch, OUTPUTS, dtype=torch.float64)


def spiking_model() -> Predictor:
    torch.manual_seed(3)
    layer = rc.Recurrent(LIF, 3, UNITS).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    return Predictor(layer, OUTPUTS)


def leaky_model() -> Predictor:
    torch.manual_seed(1)
    return Predictor(rc.layer("leaky_rnn", 3, UNITS, tau=4.0).double(), OUTPUTS)


def eprop_by_hand(model: Predictor, x: np.ndarray, target: np.ndarray, feedback: np.ndarray) -> dict[str, np.ndarray]:
    """Bellec et al. 2020: ε ← α ε + z̄ (the presynaptic activity), e = ψ ε, dE/dW = Σ_t L_j e_ji."""
    weights = {n.rpartition(".")[2]: p.detach().numpy() for n, p in model.layer.named_parameters()}
    V, b = model.head.V.detach().numpy(), model.head.b.detach().numpy()
    batch = x.shape[1]
    v, z = np.zeros((batch, UNITS)), np.zeros((batch, UNITS))
    traces = {"U": np.zeros((batch, 3)), "W": np.zeros((batch, UNITS)), "b": np.zeros((batch, 1))}
    found = {"U": np.zeros((UNITS, 3)), "W": np.zeros((UNITS, UNITS)), "b": np.zeros((UNITS, 1))}
    for x_t, d_t in zip(x, target, strict=True):
        for name, presynaptic in (("U", x_t), ("W", z), ("b", np.ones((batch, 1)))):
            traces[name] = 0.9 * traces[name] + presynaptic
        v = 0.9 * v + x_t @ weights["U"].T + z @ weights["W"].T + weights["b"] - 0.6 * z
        z = (v > 0.6) * 1.0
        pseudo = surrogate_slope(v - 0.6)
        signal = 2 * (z @ V.T + b - d_t) / target.size @ feedback
        for name in found:
            found[name] += np.einsum("bj,bi->ji", signal * pseudo, traces[name])
    return found


def surrogate_slope(v: np.ndarray) -> np.ndarray:
    given = torch.tensor(v, requires_grad=True)
    return torch.autograd.grad(spike(given).sum(), given)[0].numpy()


@pytest.mark.parametrize("feedback", ["symmetric", "random"])
def test_eprop_of_spiking_units_is_the_paper(feedback: str) -> None:
    model, (x, target) = spiking_model(), inputs()
    learner = EProp(model, "mse", feedback=feedback)
    found = learner.gradients(x, target)
    assert not learner.tracker.why
    back = model.head.V.detach() if feedback == "symmetric" else learner.matrix
    expected = eprop_by_hand(model, x.numpy(), target.numpy(), back.numpy())
    assert sum(float(np.abs(g).sum()) for g in expected.values()) > 1e-3
    for name, gradient in expected.items():
        got = next(g for n, g in found.items() if n.endswith(f".{name}") and n.startswith("layer"))
        assert_close(got, torch.tensor(gradient).reshape(got.shape), 1e-12)


def test_rflo_of_leaky_units_is_the_paper() -> None:
    """Murray 2019: p ← (1 - 1/τ) p + φ'(a) [h; x] / τ, dW ∝ (B e)_j p_ji."""
    model, (x, target) = leaky_model(), inputs(batch=1)
    learner = RFLO(model, "mse")
    found = learner.gradients(x, target)
    w = {n.rpartition(".")[2]: p.detach().numpy() for n, p in model.layer.named_parameters() if p.dim()}
    V, b, B = (t.detach().numpy() for t in (model.head.V, model.head.b, learner.matrix))
    h, p, q = np.zeros(UNITS), np.zeros((UNITS, UNITS)), np.zeros((UNITS, 3))
    W, U = np.zeros((UNITS, UNITS)), np.zeros((UNITS, 3))
    for x_t, d_t in zip(x[:, 0].numpy(), target[:, 0].numpy(), strict=True):
        a = w["W"] @ h + w["U"] @ x_t + w["b"]
        slope = 1 - np.tanh(a) ** 2
        p = 0.75 * p + 0.25 * np.outer(slope, h)
        q = 0.75 * q + 0.25 * np.outer(slope, x_t)
        h = 0.75 * h + 0.25 * np.tanh(a)
        signal = B.T @ (2 * (V @ h + b - d_t) / target.numel())
        W += signal[:, None] * p
        U += signal[:, None] * q
    for leaf, expected in (("W", W), ("U", U)):
        got = next(g for n, g in found.items() if n.endswith(f".{leaf}"))
        assert_close(got, torch.tensor(expected), 1e-12)


@pytest.mark.parametrize("name", ["indrnn", "min_gru", "min_lstm", "focused_rnn"])
def test_exact_where_units_see_themselves_alone(name: str) -> None:
    torch.manual_seed(0)
    model, x = Predictor(Case(name).layer(), OUTPUTS), draw_inputs(Case(name))
    target = torch.randn(5, 2, OUTPUTS, dtype=torch.float64)
    local, exact = EProp(model, "mse").gradients(x, target), RTRL(model, "mse").gradients(x, target)
    for parameter, gradient in exact.items():
        assert_close(local[parameter], gradient, 1e-12)


def test_adaptive_feedback_follows_the_head() -> None:
    model, (x, target) = spiking_model(), inputs()
    learner = EProp(model, "mse", "sgd", 0.1, feedback="adaptive", update="step", decay=0.01)
    V = model.head.V.detach()
    before = float(torch.cosine_similarity(learner.matrix.flatten(), V.flatten(), dim=0))
    for _ in range(40):
        learner.step(x, target)
    after = float(torch.cosine_similarity(learner.matrix.flatten(), V.flatten(), dim=0))
    assert before < 0.3
    assert after > 0.6


@pytest.mark.parametrize("make", [EProp, RFLO, partial(EProp, feedback="random"), partial(EProp, feedback="adaptive")])
@pytest.mark.parametrize("build", [spiking_model, leaky_model], ids=["spiking", "leaky"])
def test_pieces_of_a_stream_and_a_resumed_one_are_bit_equal(make, build) -> None:
    """The resumed learner has another seed: its feedback matrix is that of the stream."""
    x, target = inputs()
    new = lambda **seed: make(build(), "mse", "adam", 0.1, update="step", carry=True, **seed)  # noqa: E731
    whole, pieces, first, resumed = new(), new(), new(), new(seed=5)
    whole.step(x, target)
    for low, high in ((0, 1), (1, 4), (4, STEPS)):
        pieces.step(x[low:high], target[low:high])
    first.step(x[:4], target[:4])
    resumed.load_state_dict(first.state_dict())
    resumed.step(x[4:], target[4:])
    for other in (pieces, resumed):
        assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True))


def test_one_layer_and_a_linear_head() -> None:
    with pytest.raises(rc.OptionError, match="2 layers"):
        EProp(Predictor(rc.GRU(3, 4, num_layers=2), 2))
    with pytest.raises(rc.OptionError, match="linear"):
        RFLO(rc.RNN(3, 4))
