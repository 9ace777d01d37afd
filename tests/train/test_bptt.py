"""BPTT: whole and truncated, with the tricks of Bengio et al. 2013."""

from typing import Any

import pytest
import torch
from cases import Case, draw_inputs
from helpers import assert_close
from torch import Tensor, nn

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import BPTT, Nesterov, Predictor, fit, leaks
from recurra.train.tensor_trees import detach_tree


@pytest.fixture(autouse=True)
def _plain_loop():
    with set_backend("reference"):
        yield


def predictor(name: str = "rnn", **arguments) -> Predictor:
    torch.manual_seed(0)
    return Predictor(Case(name).layer(**arguments), 2)


def data(steps: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return draw_inputs(Case("rnn"), steps), torch.randn(steps, 2, 2, generator=generator, dtype=torch.float64)


def change(model: nn.Module, learner: BPTT, *batch: Tensor) -> dict[str, Tensor]:
    """The gradient, as one step of plain descent with rate 1 shows it."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    learner.step(*batch)
    return {n: before[n] - p.detach() for n, p in model.named_parameters()}


def full(x: Tensor, target: Tensor, **settings) -> dict[str, Tensor]:
    model = predictor()
    return change(model, BPTT(model, "mse", "sgd", 1.0, update="call", **settings), x, target)


def test_a_window_of_the_whole_is_full_bptt() -> None:
    x, target = data()
    expected = full(x, target)
    for k1, k2 in ((1, 7), (3, 9), (7, 7), (2, 8)):
        for name, gradient in full(x, target, k1=k1, k2=k2).items():
            assert_close(gradient, expected[name], 1e-12)


@pytest.mark.parametrize("k2", [1, 2, 4])
def test_truncated_is_the_recursion_cut_off(k2: int) -> None:
    """k1 = 1: δ_t = Vᵀ g_t, then k2 - 1 steps back and no further (A5)."""
    x, target = data()
    model = predictor()
    cell, V = model.layer.cells[0], model.head.V.detach()
    W = cell.a.W.detach()
    with torch.no_grad():
        h = torch.cat([torch.zeros(1, 2, 4, dtype=torch.float64), model.layer(x)[0]])  # h_0 first
        g = (model.head(h[1:]) - target) * 2 / target.numel()
    expected = torch.zeros_like(W)
    for t in range(1, 8):
        delta = g[t - 1] @ V
        for s in range(t, max(t - k2, 0), -1):
            e = delta * (1 - h[s] ** 2)
            expected += e.T @ h[s - 1]
            delta = e @ W
    assert_close(full(x, target, k1=1, k2=k2)["layer.cells.0.a.W"], expected, 1e-12)


def test_chunks_carry_the_state_and_cut_the_gradient() -> None:
    x, target = data(6)
    model = predictor("lstm")
    found = change(model, BPTT(model, "mse", "sgd", 1.0, k1=2, k2=2, update="call"), x, target)
    model = predictor("lstm")
    state, loss = None, 0.0
    for start in range(0, 6, 2):
        y, state = model(x[start : start + 2], state)
        loss = loss + (y - target[start : start + 2]).square().sum() / target.numel()
        state = tuple(s.detach() for s in state)
    loss.backward()
    for name, p in model.named_parameters():
        assert_close(found[name], p.grad, 1e-12)


def test_carried_calls_are_one_stream() -> None:
    """Windows of a stream, in one call, are calls that are a window each."""
    x, target = data(6)
    one, other = predictor("gru"), predictor("gru")
    whole = BPTT(one, "mse", "sgd", 0.1, k1=2, k2=2, carry=True)
    pieces = BPTT(other, "mse", "sgd", 0.1, carry=True)
    a = whole.step(x, target)
    b = sum(pieces.step(x[t : t + 2], target[t : t + 2]) for t in range(0, 6, 2)) / 3
    assert a == pytest.approx(b, rel=1e-12)
    assert_close(whole.state, pieces.state, 1e-12)
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        assert_close(p, q, 1e-12)


def test_joint_norm_clipping_is_torch_s() -> None:
    x, target = data()
    raw = full(x, target)
    norm = torch.cat([g.flatten() for g in raw.values()]).norm()
    for name, gradient in full(x, target, clip=float(norm) / 3).items():
        assert_close(gradient, raw[name] / 3, 1e-5)  # torch adds 1e-6 to the norm it divides by


def test_l1_on_activations() -> None:
    x, target = data()
    model = predictor("irnn")
    found = change(model, BPTT(model, "mse", "sgd", 1.0, l1=0.3), x, target)
    model = predictor("irnn")
    h = model.layer(x)[0]
    ((model.head(h) - target).square().mean() + 0.3 * h.abs().sum() / 14).backward()
    for name, p in model.named_parameters():
        assert_close(found[name], p.grad, 1e-12)


def test_nesterov_is_the_two_step_form() -> None:
    """v ← μ v - ε ∇f(θ + μ v); θ ← θ + v, with momentum and rate that change (B23)."""
    momentum, A = (lambda t: 1 - 0.5 / (t + 1)), torch.tensor([[3.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    point = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimizer = Nesterov([point], lr=0.1, momentum=momentum)
    theta, v = point.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for t in range(6):
        optimizer.param_groups[0]["lr"] = rate = 0.1 / (t + 1)
        point.grad = A @ point.detach()
        optimizer.step()
        v = momentum(t) * v - rate * (A @ (theta + momentum(t) * v))
        theta = theta + v
        assert_close(point.detach(), theta + momentum(t + 1) * v, 1e-14)


def test_leaks_keep_a_share_of_the_past() -> None:
    tau = leaks(50, 0.1, 0.3, torch.Generator().manual_seed(0))
    keep = 1 - 1 / tau
    assert float(keep.min()) >= 0.1 - 1e-12
    assert float(keep.max()) <= 0.3 + 1e-12
    assert float(keep.std()) > 0.02
    layer = rc.layer("leaky_rnn", 3, 50, tau=tau)
    assert_close(layer.cells[0].tau.double(), tau, 1e-6)


def test_any_model_with_one_answer_a_sequence() -> None:
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.inside = nn.GRU(3, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.inside(x)[0][-1])

    model = Last()
    learner = BPTT(model, rate=0.05)
    x, target = torch.randn(5, 8, 3), torch.randint(0, 2, (8,))
    losses = [learner.step(x, target) for _ in range(40)]
    assert losses[-1] < losses[0] / 3
    with pytest.raises(rc.RecurraError, match="returns no state"):
        BPTT(model, k1=2, k2=2).step(x, target)


def test_padding_does_not_reach_a_bidirectional_model() -> None:
    x, target = data(6)
    mask = torch.arange(6)[:, None] < torch.tensor([6, 3])
    results = []
    for fill in (0.0, 100.0):
        model = Predictor(Case("gru").layer(bidirectional=True), 2)
        torch.manual_seed(0)
        nn.init.normal_(model.head.V)
        results.append(BPTT(model, "mse").step(x.masked_fill(~mask[..., None], fill), target, mask))
    assert results[0] == results[1]


def test_resume_is_exact() -> None:
    x, target = data(6)
    make = lambda: BPTT(predictor("lstm"), "mse", "adam", 0.1, k1=2, k2=4, carry=True)  # noqa: E731
    straight, first, second = make(), make(), make()
    for _ in range(2):
        straight.step(x, target)
    first.step(x, target)
    second.load_state_dict(first.state_dict())
    second.step(x, target)
    for p, q in zip(straight.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_bad_settings() -> None:
    model = predictor()
    with pytest.raises(rc.RecurraError, match="k2: got 1, expected at least k1"):
        BPTT(model, k1=3, k2=1)
    with pytest.raises(rc.RecurraError, match="did you mean 'adam'"):
        BPTT(model, optimizer="adan")
    with pytest.raises(rc.RecurraError, match="target: got shape"):
        BPTT(model).step(torch.zeros(3, 2, 3, dtype=torch.float64), torch.zeros(5, 2, 2))
    with pytest.raises(rc.RecurraError, match="mask: got shape"):
        BPTT(model).step(*data(), torch.ones(3, 3))


# ------------------------------------------------------------------------------------------ networks with a state


NETWORKS = {
    "hierarchical": lambda: rc.HierarchicalRNN(3, [4, 2], [1, 3], "lstm"),
    "clockwork": lambda: rc.ClockworkRNN(3, 6, periods=(1, 2, 4)),
    "narx": lambda: rc.NARX(3, 6, 5, input_delays=(0, 2), output_delays=(1, 3)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_with_a_state_learn_in_windows(name: str) -> None:
    """The gradient of windows of two steps, against autograd over the network with its state detached."""
    torch.manual_seed(1)
    model = NETWORKS[name]().double()
    x, target = draw_inputs(Case("rnn"), 7), torch.randn(7, 2, 6, dtype=torch.float64)
    state, total = None, 0.0
    for start in range(0, 7, 2):
        y, state = model(x[start : start + 2]) if state is None else model(x[start : start + 2], state=state)
        state = detach_tree(state)
        total = total + (y - target[start : start + 2]).square().sum()
    (total / target.numel()).backward()
    expected = {n: p.grad.clone() for n, p in model.named_parameters()}
    found = change(model, BPTT(model, "mse", "sgd", 1.0, k1=2, update="call"), x, target)
    for n, gradient in expected.items():
        assert_close(found[n], gradient, 1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_carried_state_is_that_of_one_call(name: str) -> None:
    torch.manual_seed(1)
    model = NETWORKS[name]().double()
    x, target = draw_inputs(Case("rnn"), 8), torch.zeros(8, 2, 6, dtype=torch.float64)
    learner = BPTT(model, "mse", "sgd", 1e-30, carry=True)
    pieces = [learner.step(x[:3], target[:3]) * 3, learner.step(x[3:], target[3:]) * 5]
    assert sum(pieces) / 8 == pytest.approx(float(model(x)[0].detach().square().mean()), rel=1e-12)


class Inside(nn.Module):
    """A model with a layer that reads the batch first; it may turn its input."""

    def __init__(self, layer: nn.Module, turned: bool):
        super().__init__()
        self.layer, self.turned, self.head = layer, turned, nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        h, state = self.layer(x.transpose(0, 1) if self.turned else x, state)
        return self.head(h.transpose(0, 1) if self.turned else h), state


@pytest.mark.parametrize("make", [nn.LSTM, rc.LSTM])
def test_a_layer_inside_that_takes_steps_for_the_batch_is_refused(make: Any) -> None:
    x, target = torch.randn(6, 5, 3), torch.randn(6, 5, 2)
    for steps in (6, 5):  # with 5 steps of 5 sequences, too
        given = x[:steps], target[:steps]
        with pytest.raises(rc.InputError, match="takes steps for the batch"):
            BPTT(Inside(make(3, 4, batch_first=True), turned=False), "mse", k1=steps).step(*given)
        BPTT(Inside(make(3, 4, batch_first=True), turned=True), "mse", k1=steps).step(*given)
    BPTT(Inside(make(3, 4), turned=False), "mse", k1=2).step(x, target)
    data = rc.data.SequenceSet.from_arrays(list(x.unbind(1)), list(target.unbind(1)), "transduction")
    with pytest.raises(rc.InputError, match="takes steps for the batch"):
        fit(Inside(make(3, 4, batch_first=True), turned=False), data, epochs=1, progress=False)


def test_layers_that_read_the_batch_first_are_refused() -> None:
    for model in (rc.LSTM(3, 4, batch_first=True), rc.HierarchicalRNN(3, [4], [1], batch_first=True)):
        with pytest.raises(rc.InputError, match="batch_first=True"):
            BPTT(model, k1=2)


def test_windows_over_both_directions_are_refused() -> None:
    both = rc.LSTM(3, 4, bidirectional=True)
    for model in (both, Predictor(both, 2), nn.Sequential(nn.GRU(3, 4, bidirectional=True)), rc.BaldiBRNN(3, 4, 2)):
        with pytest.raises(rc.OptionError, match="reads both directions"):
            BPTT(model, k1=2)
        with pytest.raises(rc.OptionError, match="reads both directions"):
            BPTT(model, carry=True)
    BPTT(Predictor(both.double(), 2), "mse").step(*data())  # the whole sequence at once is fine


def test_a_carried_state_has_read_masked_steps_in_windows_or_not() -> None:
    x, target = torch.randn(6, 2, 2), torch.randn(6, 2, 2)
    mask = torch.ones(6, 2, dtype=torch.bool)
    mask[3:, 1] = False  # no labels there; a stream goes on
    states = []
    for windows in ({}, {"k1": 2, "k2": 6}):
        torch.manual_seed(0)
        learner = BPTT(rc.RNN(2, 2), "mse", "sgd", 1e-30, carry=True, **windows)
        learner.step(x, target, mask)
        states.append(learner.state)
    assert torch.allclose(*states, atol=1e-6)
    assert torch.allclose(states[0], learner.model(x)[1], atol=1e-6)
