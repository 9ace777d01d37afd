"""A stream cut anywhere into calls is one stream: the same weights, bit for bit, for every learner."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.train import (
    BPTT,
    DEKF,
    DNI,
    FORCE,
    FPTT,
    KFRTRL,
    RFLO,
    RTRL,
    UKF,
    UORO,
    EProp,
    ForwardGradient,
    Learner,
    OriginalLSTMRule,
    Predictor,
    SnAp,
)

CUTS = (1, 1, 4, 2, 5, 1, 7)  # no window of 3, 4 or 6 steps ends at all of them
LENGTH = sum(CUTS) + 6  # one more call, so that a resumed stream goes on


def predictor(cell: str = "gru", head: nn.Module | int = 2, layers: int = 1) -> Predictor:
    torch.manual_seed(0)
    return Predictor(rc.layer(cell, 3, 5, num_layers=layers), head).double()


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Two streams, some of whose steps have no target."""
    g = torch.Generator().manual_seed(1)
    x, target = (torch.randn(LENGTH, 2, n, generator=g, dtype=torch.float64) for n in (3, 2))
    return x, target, torch.rand(LENGTH, 2, generator=g) < 0.7


def dropout_head() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.4), nn.Linear(5, 2))


by_step = {"update": "step", "carry": True}
LEARNERS = {
    "bptt": lambda: BPTT(predictor(), "mse", rate=0.05, k1=3, carry=True),
    "bptt, longer gradients": lambda: BPTT(predictor("lstm"), "mse", rate=0.05, k1=3, k2=7, carry=True, clip=0.5),
    "bptt, window longer than calls": lambda: BPTT(predictor(layers=2), "mse", rate=0.05, k1=9, carry=True, l1=0.01),
    "bptt, dropout": lambda: BPTT(predictor(head=dropout_head()), "mse", rate=0.05, k1=4, k2=6, carry=True),
    "dni": lambda: DNI(predictor("lstm"), "mse", rate=0.05, window=4, carry=True),
    "fptt": lambda: FPTT(predictor(), "mse", rate=0.05, window=3, carry=True),
    "fptt, every step": lambda: FPTT(predictor(), "mse", rate=0.05, carry=True),
    "rtrl": lambda: RTRL(predictor(layers=2), "mse", rate=0.05, **by_step),
    "rtrl, snap1": lambda: RTRL(predictor(), "mse", rate=0.05, approximation="snap1", **by_step),
    "rtrl, elementwise": lambda: RTRL(predictor("min_gru"), "mse", rate=0.05, **by_step),
    "snap": lambda: SnAp(predictor("lstm"), "mse", rate=0.05, n=1, **by_step),
    "snap, two steps": lambda: SnAp(predictor(), "mse", rate=0.05, n=2, **by_step),
    "uoro": lambda: UORO(predictor(), "mse", rate=0.05, **by_step),
    "kfrtrl": lambda: KFRTRL(predictor(), "mse", rate=0.05, **by_step),
    "forward gradient": lambda: ForwardGradient(predictor(), "mse", rate=0.05, redraw=5, **by_step),
    "rflo": lambda: RFLO(predictor("leaky_rnn"), "mse", rate=0.05, **by_step),
    "eprop": lambda: EProp(predictor("lif"), "mse", rate=0.05, feedback="adaptive", **by_step),
    "dekf, windows": lambda: DEKF(predictor(), window=3, derivatives="bptt", carry=True),
    "dekf": lambda: DEKF(predictor(), derivatives="rtrl", carry=True),
    "ukf": lambda: UKF(predictor(), carry=True),
    "force": lambda: FORCE(predictor(), carry=True),
    "1997 rule": lambda: OriginalLSTMRule(predictor("original_lstm"), "mse", rate=0.05, **by_step),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_a_stream_cut_anywhere_is_one_stream(name: str) -> None:
    x, target, mask = data()
    one = (1,) * LENGTH
    losses, ends = [], []
    for cuts in ((LENGTH,), (*CUTS, 6), one):
        torch.manual_seed(2)
        learner = LEARNERS[name]()
        total = _feed(learner, cuts, x, target, mask)
        losses.append(total), ends.append(learner)
    if "dropout" not in name:  # a step whose window is open is read with draws of its own
        assert losses[1:] == [pytest.approx(losses[0], rel=1e-12)] * 2
    for other in ends[1:]:
        pairs = zip(ends[0].model.named_parameters(), other.model.parameters(), strict=True)
        assert all(torch.equal(a, b) for (_, a), b in pairs)


@pytest.mark.parametrize("name", LEARNERS)
def test_a_stream_resumed_between_two_calls_is_the_same_stream(name: str) -> None:
    x, target, mask = data()
    done = sum(CUTS)
    torch.manual_seed(2)
    whole = LEARNERS[name]()
    _feed(whole, CUTS, x, target, mask)
    resumed = LEARNERS[name]()
    resumed.load_state_dict(whole.state_dict())
    for learner in (whole, resumed):
        torch.manual_seed(3)
        _feed(learner, (6,), x[done:], target[done:], mask[done:])
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))


def _feed(learner: Learner, cuts: tuple[int, ...], x: Tensor, target: Tensor, mask: Tensor) -> float:
    """Feed calls of these lengths; the sum of all losses."""
    if isinstance(learner, UKF):  # of one stream
        x, target, mask = x[:, :1], target[:, :1], mask[:, :1]
    at, total = 0, 0.0
    for length in cuts:
        piece = slice(at, at + length)
        total += learner.step(x[piece], target[piece], mask[piece]) * int(mask[piece].sum())
        at += length
    return total


def test_an_open_window_takes_steps_of_its_own_shape_only() -> None:
    learner = LEARNERS["bptt"]()
    x, target, _ = data()
    learner.step(x[:2], target[:2])
    with pytest.raises(rc.errors.ShapeError, match="as the stream had"):
        learner.step(x[2:4, :1], target[2:4, :1])


ONLINE = ("rtrl", "snap", "uoro", "kfrtrl", "forward gradient", "rflo")


@pytest.mark.parametrize("name", ONLINE)
def test_a_stream_keeps_its_sequences_and_its_inputs(name: str) -> None:
    learner = LEARNERS[name]()
    x, target, _ = data()
    for wrong in (x[:2, :, :2], torch.cat([x[:2], x[:2]], 2)):
        with pytest.raises(rc.errors.ShapeError, match=r"expected \(T, B, 3\)"):
            learner.step(wrong, target[:2])
    learner.step(x[:2], target[:2])
    for call in (learner.step, lambda x, _: learner.predict(x)):
        with pytest.raises(rc.errors.ShapeError, match="as the stream had"):
            call(x[2:4, :1], target[2:4, :1])


@pytest.mark.parametrize("kind", [RTRL, SnAp, UORO, KFRTRL, ForwardGradient, RFLO])
def test_a_model_that_has_changed_is_noticed(kind: type) -> None:
    """Dropout that training mode switches on is refused; back in evaluation, the stream goes on as if nothing was."""
    x, target, _ = data()

    def new() -> Learner:
        torch.manual_seed(0)
        layer = rc.layer("gru", 3, 5, modifiers=[rc.VariationalDropout(0.5)])
        return kind(Predictor(layer, 2).double().eval(), "mse", **by_step)

    learner, other = new(), new()
    for own in (learner, other):
        own.step(x[:3], target[:3])
    learner.model.train()
    with pytest.raises(rc.OptionError, match="training mode"):
        learner.step(x[3:], target[3:])
    learner.model.eval()
    for own in (learner, other):
        own.step(x[3:], target[3:])
    assert all(torch.equal(a, b) for a, b in zip(learner.model.parameters(), other.model.parameters(), strict=True))
    learner.model.head.requires_grad_(False)
    with pytest.raises(rc.OptionError, match="requires_grad has changed"):
        learner.step(x[3:], target[3:])


@pytest.mark.parametrize("make", [RTRL, SnAp, EProp, UORO, KFRTRL], ids=lambda make: make.__name__)
@pytest.mark.parametrize(("cell", "update"), [("min_gru", "call"), ("gru", "step")])
def test_a_look_at_the_gradients_does_not_move_a_stream(make: Any, cell: str, update: str) -> None:
    """A stream that is asked for its gradients goes on as one that is not, bit for bit."""
    torch.manual_seed(0)
    model, ends = Predictor(rc.layer(cell, 2, 3), 1).double(), []
    x, target = torch.randn(9, 1, 2).double(), torch.randn(9, 1, 1).double()
    for asks in (False, True):
        learner = make(copy.deepcopy(model), "mse", update=update, carry=True)
        for piece in (slice(0, 4), slice(4, 9)):
            if asks:
                found = [learner.gradients(x[piece], target[piece]) for _ in range(2)]
                assert piece.start == 0 or all(torch.equal(found[0][name], found[1][name]) for name in found[0])
            if asks and piece.start == 0:  # what has not begun draws anew
                learner.generator.manual_seed(0)
            learner.step(x[piece], target[piece])
        ends.append(learner.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
