"""The survey's section 2.3 equals autograd."""

import pytest
import torch
from cases import Case, draw_inputs, randomise, softsign
from helpers import assert_close, runs
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import gradients_by_hand

CASES = [
    Case("rnn"),
    Case("rnn", {"nonlinearity": "relu"}),
    Case("rnn", {"nonlinearity": "sigmoid"}),
    Case("rnn", {"nonlinearity": softsign}),
    Case("identity_rnn"),
    Case("irnn"),
    Case("residual_rnn"),
    Case("leaky_rnn", {"tau": torch.tensor([1.0, 1.5, 3.0, 20.0])}),
    Case("leaky_rnn", {"learn": True}),
    Case("delay_rnn"),
    Case("delay_rnn", {"delays": (2, 4)}),
    Case("delay_rnn", {"delays": (1,)}),
    Case("lstm"),
    Case("lstm_np"),
    Case("vanilla_lstm"),
    Case("gru"),
    Case("mgu"),
]
SIMPLE = ("rnn", "identity_rnn", "irnn", "residual_rnn", "leaky_rnn", "delay_rnn")


def squared(y: Tensor, d: Tensor) -> Tensor:
    return 0.5 * (y - d).square().sum()


def cross_entropy(y: Tensor, d: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(y, d, reduction="sum")


def quartic(y: Tensor, d: Tensor) -> Tensor:
    return (y - d).pow(4).sum() + (y.sin() * d).sum()


def compare(case: Case, softmax: bool, named, formula, target: Tensor) -> None:
    layer = case.layer()
    head = randomise(rc.Readout(layer, 3, softmax=softmax).double())
    x = draw_inputs(case, steps=6).requires_grad_()
    cell = layer.cells[0]
    hand = gradients_by_hand(layer, head, x.detach(), target, named)
    start = [value.clone().requires_grad_() for value in cell.initial_state(2, x)]
    h = runs(cell)(x, *start)[0]
    h.retain_grad()
    y = torch.nn.functional.linear(h, head.V, head.b)
    y.retain_grad()
    seen = y.softmax(-1) if softmax and named is not cross_entropy else y
    loss = sum(formula(a, b) for a, b in zip(seen, target, strict=True))
    loss.backward()
    pairs = {"loss": (hand.loss, loss.detach()), "y": (hand.y, y.grad), "x": (hand.x, x.grad), "h": (hand.h, h.grad)}
    pairs |= {"V": (hand.V, head.V.grad), "b_y": (hand.b_y, head.b.grad)}
    pairs |= {n: (hand.parameters[n], p.grad) for n, p in cell.named_parameters()}
    pairs |= {s.name: (hand.start[s.name], g.grad) for s, g in zip(cell.carried, start, strict=True)}
    for name, (found, expected) in pairs.items():
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")
    of_vec = {"W": "a.W", "U": "a.U"} | {f"W_{k}": f"a.W_{k}" for k in range(1, 5)}
    for name, found in hand.vec.items():
        assert_close(found, hand.parameters[of_vec[name]], 1e-12)
    assert bool(hand.vec) == (case.name in SIMPLE)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_squared_error(case: Case) -> None:
    compare(case, False, "squared", squared, torch.randn(6, 2, 3, dtype=torch.float64))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_cross_entropy_of_the_softmax(case: Case) -> None:
    compare(case, False, "cross_entropy", cross_entropy, torch.randint(0, 3, (6, 2)))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("softmax", [False, True])
def test_any_loss(case: Case, softmax: bool) -> None:
    compare(case, softmax, quartic, quartic, torch.randn(6, 2, 3, dtype=torch.float64))


def test_against_central_differences() -> None:
    case = Case("vanilla_lstm")
    layer = case.layer()
    head = randomise(rc.Readout(layer, 2).double())
    x, target = draw_inputs(case, steps=4), torch.randn(4, 2, 2, dtype=torch.float64)
    hand = gradients_by_hand(layer, head, x, target)
    weight, eps = layer.cells[0].f.W, 1e-6
    for place in ((0, 1), (3, 2)):
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                weight[place] += sign * eps
                values.append(float(gradients_by_hand(layer, head, x, target).loss))
                weight[place] -= sign * eps
        slope = (values[0] - values[1]) / (2 * eps)
        assert slope == pytest.approx(float(hand.parameters["f.W"][place]), rel=1e-6, abs=1e-9)


# ------------------------------------------------------------------------------------------ options of the layer

OPTIONS = [
    {"batch_first": True},
    {"initial": "learned"},
    {"initial": "carried"},
    {"bidirectional": True},
    {"bidirectional": "separate", "initial": "learned", "batch_first": True},
    {"bias": False},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", ["rnn", "residual_rnn", "leaky_rnn", "delay_rnn", "vanilla_lstm", "gru", "mgu"])
@pytest.mark.parametrize("linear", [False, True], ids=["readout", "linear"])
def test_options_of_the_layer_are_honoured(name: str, options: dict, linear: bool) -> None:
    layer = randomise(rc.layer(name, 3, 4, **options).double())
    head = torch.nn.Linear(layer.output_size, 2).double() if linear else rc.Readout(layer, 2, softmax=True).double()
    x = torch.randn(5, 5, 3, dtype=torch.float64)
    target = torch.randn(5, 5, 2, dtype=torch.float64)
    with set_backend("reference"):
        layer(torch.randn(5, 5, 3, dtype=torch.float64))  # leaves a state where states are carried
        hand = gradients_by_hand(layer, head, x, target)
        leaf = x.clone().requires_grad_()
        loss = 0.5 * (head(layer(leaf)[0]) - target).square().sum()
    loss.backward()
    assert_close(hand.loss, loss.detach(), 1e-12)
    assert_close(hand.x, leaf.grad, 1e-11)
    V, b = (head.weight, head.bias) if linear else (head.V, head.b)
    assert_close(hand.V, V.grad, 1e-11)
    assert_close(hand.b_y, b.grad, 1e-11)
    for found, cell in zip(hand.directions, layer.cells, strict=True):
        expected = {n: p.grad for n, p in cell.named_parameters()}
        assert found.parameters.keys() == expected.keys()
        for n, gradient in expected.items():
            torch.testing.assert_close(found.parameters[n], gradient, rtol=1e-11, atol=1e-11, msg=f"{n}")


def test_directions_are_asked_for_by_name() -> None:
    layer = rc.RNN(3, 4, bidirectional=True)
    hand = gradients_by_hand(layer, rc.Readout(layer, 2), torch.randn(3, 2, 3), torch.randn(3, 2, 2))
    assert hand.backward.deltas["h"].shape == (3, 2, 4)
    with pytest.raises(rc.OptionError, match=r"one direction: \.forward or \.backward"):
        _ = hand.W
    one = rc.RNN(3, 4)
    hand = gradients_by_hand(one, rc.Readout(one, 2), torch.randn(3, 2, 3), torch.randn(3, 2, 2))
    with pytest.raises(rc.OptionError, match="bidirectional layer"):
        _ = hand.backward


# ------------------------------------------------------------------------------------------ every δ


def lstm_with_pushes(w, x, h, c, push):
    """A peephole LSTM to whose intermediates zeros are added: their gradients are those of the intermediates."""
    hs, sig, tanh = [], torch.sigmoid, torch.tanh
    for t, x_t in enumerate(x):
        a = {k: x_t @ w[f"{k}.U"].T + h @ w[f"{k}.W"].T + w[f"{k}.b"] + push[f"a_{k}"][t] for k in "ifgo"}
        c_new = sig(a["f"] + w["p_f"] * c) * c + sig(a["i"] + w["p_i"] * c) * tanh(a["g"]) + push["c"][t]
        h, c = sig(a["o"] + w["p_o"] * c_new) * tanh(c_new) + push["h"][t], c_new
        hs.append(h)
    return torch.stack(hs)


def gru_with_pushes(w, x, h, push):
    hs, sig = [], torch.sigmoid
    for t, x_t in enumerate(x):
        r, z = (sig(x_t @ w[f"{k}.U"].T + h @ w[f"{k}.W"].T + w[f"{k}.b"] + push[f"a_{k}"][t]) for k in "rz")
        g = torch.tanh(x_t @ w["c.U"].T + (r * h) @ w["c.W"].T + w["c.b"] + push["a_c"][t])
        h = (1 - z) * h + z * g + push["h"][t]
        hs.append(h)
    return torch.stack(hs)


def mgu_with_pushes(w, x, h, push):
    hs = []
    for t, x_t in enumerate(x):
        f = torch.sigmoid(x_t @ w["f.U"].T + h @ w["f.W"].T + w["f.b"] + push["a_f"][t])
        g = torch.tanh(x_t @ w["c.U"].T + (f * h) @ w["c.W"].T + w["c.b"] + push["a_c"][t])
        h = (1 - f) * h + f * g + push["h"][t]
        hs.append(h)
    return torch.stack(hs)


def rnn_with_pushes(w, x, h, push):
    alpha, hs = (1 / w["tau"] if "tau" in w else 1.0), []
    for t, x_t in enumerate(x):
        h = (1 - alpha) * h + alpha * torch.tanh(x_t @ w["a.U"].T + h @ w["a.W"].T + w["a.b"] + push["i"][t])
        h = h + push["h"][t]
        hs.append(h)
    return torch.stack(hs)


PUSHED = [
    ("rnn", rnn_with_pushes, ("h", "i")),
    ("leaky_rnn", rnn_with_pushes, ("h", "i")),
    ("vanilla_lstm", lstm_with_pushes, ("h", "c", "a_i", "a_f", "a_g", "a_o")),
    ("gru", gru_with_pushes, ("h", "a_r", "a_z", "a_c")),
    ("mgu", mgu_with_pushes, ("h", "a_f", "a_c")),
]


@pytest.mark.parametrize(("name", "forward", "names"), PUSHED, ids=[name for name, *_ in PUSHED])
def test_every_named_delta(name: str, forward, names: tuple[str, ...]) -> None:
    layer = Case(name).layer()
    head = randomise(rc.Readout(layer, 2).double())
    x, target = draw_inputs(Case(name), steps=5), torch.randn(5, 2, 2, dtype=torch.float64)
    hand = gradients_by_hand(layer, head, x, target)
    push = {n: torch.zeros(5, 2, 4, dtype=torch.float64, requires_grad=True) for n in names}
    weights = {n: v.detach() for n, v in layer.cells[0].weights().items()}
    h = forward(weights, x, *(v.detach() for v in layer.cells[0].initial_state(2, x)), push)
    (0.5 * (head(h) - target).square().sum()).backward()
    assert hand.deltas.keys() == push.keys()
    for n, value in push.items():
        torch.testing.assert_close(hand.deltas[n], value.grad, rtol=1e-12, atol=1e-12, msg=n)


def test_targets_are_not_broadcast() -> None:
    layer = rc.RNN(3, 4)
    with pytest.raises(rc.ShapeError, match="target"):
        gradients_by_hand(layer, rc.Readout(layer, 2), torch.zeros(3, 2, 3), torch.zeros(3, 2, 1))


@pytest.mark.parametrize(
    ("layer", "got"),
    [
        (lambda: rc.GRU(3, 4, reset_after=True), "GRU with reset_after=True"),
        (lambda: rc.LSTM(3, 4, modifiers=rc.Zoneout(0.1)), "LSTM with modifiers"),
        (lambda: rc.layer("scrn", 3, 4), "SCRN"),
        (lambda: rc.RNN(3, 4, 2), "2 layers"),
        (lambda: torch.nn.RNN(3, 4), "RNN"),
    ],
)
def test_other_layers_are_refused_in_few_words(layer, got: str) -> None:
    with pytest.raises(rc.InputError, match=f"^layer: got {got}, expected one layer of rnn, .* before the product"):
        gradients_by_hand(layer(), torch.nn.Linear(4, 2), torch.zeros(2, 1, 3), torch.zeros(2, 1, 2))


def test_a_gated_cell_has_no_single_w() -> None:
    layer = rc.LSTM(3, 4)
    hand = gradients_by_hand(layer, rc.Readout(layer, 2), torch.randn(2, 1, 3), torch.randn(2, 1, 2))
    with pytest.raises(rc.UnknownNameError, match=r"parameters: got 'a\.W', expected .*i\.W"):
        _ = hand.W
