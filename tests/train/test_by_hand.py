"""The survey's section 2.3 equals autograd."""

import pytest
import torch
from cases import Case, draw_inputs, randomise, softsign
from helpers import assert_close, runs
from torch import Tensor

import recurra as rc
from recurra.train import gradients_by_hand

CASES = [
    Case("rnn"),
    Case("rnn", {"nonlinearity": "relu"}),
    Case("rnn", {"nonlinearity": "sigmoid"}),
    Case("rnn", {"nonlinearity": softsign}),
    Case("lstm"),
    Case("vanilla_lstm"),
    Case("gru"),
]


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
    for name in hand.vec:
        assert_close(hand.vec[name], getattr(hand, name), 1e-12)
    assert bool(hand.vec) == (case.name == "rnn")


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


def test_other_layers_are_refused() -> None:
    layer = rc.layer("gru", 3, 4, reset_after=True)
    with pytest.raises(rc.RecurraError, match="reset before"):
        gradients_by_hand(layer, rc.Readout(layer, 2), torch.zeros(2, 1, 3), torch.zeros(2, 1, 2))


def test_a_gated_cell_has_no_single_w() -> None:
    layer = rc.LSTM(3, 4)
    hand = gradients_by_hand(layer, rc.Readout(layer, 2), torch.randn(2, 1, 3), torch.randn(2, 1, 2))
    with pytest.raises(rc.UnknownNameError, match=r"parameters: got 'a\.W', expected .*i\.W"):
        _ = hand.W
