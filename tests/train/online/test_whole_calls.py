"""Whole calls and fused updates in compiled code, against single steps in Python, for odd widths too."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import sigmoid, tanh

import recurra as rc
from recurra.engine.forward_mode.phases import phases_of
from recurra.engine.forward_mode.words import CODE, address
from recurra.train import RTRL, EProp, Predictor, SnAp
from recurra.train.online.influence_trackers import CompiledTracker


class TwoStates(rc.Cell):
    """Units on their own: two states that read each other, a vector that is read twice, a state that x alone makes."""

    states = ("h", "c", "late")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.f, self.u = self.affine("x"), self.affine("x"), self.vector()

    def step(self, x: Any, h: Any, c: Any, late: Any) -> Any:
        f = sigmoid(self.f(x) + self.u * h)
        c = f * c + (1 - f) * tanh(self.a(x) + self.u * c * late)
        return tanh(c) * f, c, self.a(x)


KINDS: dict[str, tuple[Any, Any]] = {
    "two states": (RTRL, TwoStates),
    "minGRU": (RTRL, "min_gru"),
    "GRU, one step": (SnAp, partial(rc.layer, "gru", reset_after=True)),
    "GRU, traces": (partial(EProp, feedback="random"), "gru"),
}


def layer_of(kind: Any, inputs: int, units: int) -> rc.Recurrent:
    if isinstance(kind, str):
        return rc.layer(kind, inputs, units)
    return (
        kind(input_size=inputs, hidden_size=units) if isinstance(kind, partial) else rc.Recurrent(kind, inputs, units)
    )


@pytest.mark.parametrize("update", ["call", "step"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("inputs", "units", "batch"), [(1, 5, 2), (2, 16, 1), (4, 17, 1), (8, 33, 3)])
def test_widths(kind: str, inputs: int, units: int, batch: int, update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurra.engine.forward_mode.chunk.LONGEST", 40)  # two chunks; 32 steps at a time and a rest
    torch.manual_seed(0)
    make, cell = KINDS[kind]
    model = Predictor(layer_of(cell, inputs, units), 2).double()
    x, target = torch.randn(64, batch, inputs).double(), torch.randn(64, batch, 2).double()
    mask, losses, models = torch.rand(64, batch) < 0.7, [], (model, copy.deepcopy(model))
    for number, own in enumerate(models):
        learner = make(own, "mse", "adam", 0.01, update=update, carry=True)
        if number:
            monkeypatch.setattr(CompiledTracker, "call_updates", lambda *_: None)
            monkeypatch.setattr(CompiledTracker, "call_gradient", lambda *_: None)
        pieces = [slice(0, 57), slice(57, 64)]
        losses.append([learner.step(x[piece], target[piece], mask[piece]) for piece in pieces])
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-9, atol=1e-10)
    for (name, a), b in zip(model.named_parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9, msg=name)  # Adam divides by small moments


def test_weights_without_a_gradient_still_take_the_updates_of_their_moments() -> None:
    """The reset gate of a GRU has no traces in e-prop; what BPTT left in Adam's moments goes on to move it."""
    torch.manual_seed(0)
    model = Predictor(rc.layer("gru", 3, 6), 1).double()
    x, target = torch.randn(9, 1, 3).double(), torch.randn(9, 1, 1).double()
    learner = EProp(model, "mse", "adam", 0.01, update="step")
    learner.step(x, target)
    gate = next(p for p in learner.step_fn.recurrent.values() if not learner.optimizer.state[p]["exp_avg"].any())
    before = gate.detach().clone()
    learner.step(x, target)
    assert torch.equal(gate, before)
    learner.optimizer.state[gate]["exp_avg"].fill_(1.0)
    learner.step(x, target)
    assert (gate - before).abs().min() > 1e-3


def test_words_that_no_state_needs_wait_until_after_the_loop() -> None:
    state, new, output = address(2, 0), address(3, 0), address(6, 0)
    words = [
        ["COPY", 4, 0, address(1, 0), 1],  # of the input
        ["ADD_PRODUCT", 4, new, 0, 1, state, 1],
        ["COPY", 4, 16, state, 1],  # read by an output alone
        ["ZERO", 4, output],
        ["ADD_PRODUCT", 4, output, 16, 1, 0, 1],
    ]
    flat: list[int] = []
    starts = []
    for word in words:
        starts.append(len(flat))
        flat += [CODE[str(word[0])], *(int(n) for n in word[1:])]
    before, during, after = phases_of(flat, starts, [0, 16])
    names = [[word[0] for word in part] for part in (before, during, after)]
    expected = ["COPY"], ["ADD_PRODUCT"], ["COPY", "ZERO", "ADD_PRODUCT"]
    assert names == [[CODE[name] for name in part] for part in expected]


@pytest.mark.parametrize("units", [3, 17, 70])
def test_steps_of_exact_rtrl_on_one_thread_and_on_several(units: int) -> None:
    """Products by our own loop and by BLAS."""
    torch.manual_seed(0)
    model = Predictor(rc.layer("rnn", 3, units), 2).double()
    x, target = torch.randn(4, 2, 3).double(), torch.randn(4, 2, 2).double()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            learner = RTRL(model, "mse")
            learner._whole_call = lambda *_: None  # pyrefly: ignore  # step by step
            found.append(learner.gradients(x, target))
    finally:
        torch.set_num_threads(before)
    for name, gradient in found[0].items():
        torch.testing.assert_close(gradient, found[1][name], rtol=1e-12, atol=1e-13, msg=name)
