"""The compiled loop of updates after every step, against the loop in Python."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import recurra as rc
from recurra.train import RFLO, RTRL, EProp, Predictor, SnAp
from recurra.train.online.compiled_update import update_compiled
from recurra.train.online.influence_trackers import CompiledTracker, HeadOfChunks


def network(name: str, head: Any = 2, **options: Any) -> Predictor:
    torch.manual_seed(0)
    return Predictor(rc.layer(name, 3, 5, **options), head).double()


def stream(steps: int = 23, batch: int = 1, classes: bool = False) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(steps, batch, 3, generator=random, dtype=torch.float64)
    if classes:
        return x, torch.randint(0, 2, (steps, batch), generator=random)
    return x, torch.randn(steps, batch, 2, generator=random, dtype=torch.float64)


def both_ways(
    make: Callable[[nn.Module], Any], model: nn.Module, monkeypatch: pytest.MonkeyPatch, *given: Any
) -> tuple[Any, Any]:
    """A learner after two calls by the compiled loop, and one by the loop in Python."""
    compiled, plain = make(model), make(copy.deepcopy(model))
    losses = [compiled.step(*given) for _ in range(2)]
    assert compiled.tracker.loop is not None
    monkeypatch.setattr(CompiledTracker, "call_updates", lambda *_: None)
    torch.testing.assert_close(losses, [plain.step(*given) for _ in range(2)], rtol=1e-10, atol=1e-10)
    return compiled, plain


def assert_alike(compiled: Any, plain: Any) -> None:
    for (name, a), b in zip(compiled.model.named_parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-10, msg=name)
    for a, b in zip(compiled.model.parameters(), plain.model.parameters(), strict=True):
        for moment, value in plain.optimizer.state[b].items():
            own = compiled.optimizer.state[a][moment]
            torch.testing.assert_close(own, value, rtol=1e-8, atol=1e-10, msg=moment)


MODELS: dict[str, tuple[Callable, Callable[[], Predictor]]] = {
    "SnAp of a GRU": (SnAp, lambda: network("gru", reset_after=True)),
    "SnAp of an LSTM": (SnAp, lambda: network("lstm")),
    "RTRL of a minGRU": (RTRL, lambda: network("min_gru")),
    "RTRL of an IndRNN and nn.Linear": (RTRL, lambda: network("indrnn", nn.Linear(5, 2))),
    "RTRL of units that spike": (RTRL, lambda: network("lif", nn.Linear(5, 2, bias=False))),
    "RTRL with a learned start": (RTRL, lambda: network("min_gru", initial="learned")),
    "EProp of a GRU": (EProp, lambda: network("gru")),
    "RFLO of a GRU": (RFLO, lambda: network("gru")),
    "EProp whose feedback follows the head": (partial(EProp, feedback="adaptive", decay=0.01), lambda: network("gru")),
    "RFLO of leaky units, whose rate is derived": (RFLO, lambda: network("leaky_rnn", tau=3.0)),
    "RTRL of a start and a matrix that do not learn": (RTRL, lambda: network("gru_d")),
    "EProp of an LSTM with peepholes": (EProp, lambda: network("peephole_lstm")),
    "RTRL of a GRU": (RTRL, lambda: network("gru")),
    "RTRL of an LSTM with peepholes": (RTRL, lambda: network("peephole_lstm")),
    "RTRL of two layers with learned starts": (RTRL, lambda: network("rnn", num_layers=2, initial="learned")),
    "RTRL of a cell with four states": (RTRL, lambda: network("slstm")),
    "RTRL of layers that all speak": (RTRL, lambda: network("gru", num_layers=2, depth="graves")),
    "RTRL of units whose rates are derived": (RTRL, lambda: network("rg_lru")),
    "RTRL of liquid time constants": (RTRL, lambda: network("ltc")),
    "EProp of a learned leak": (EProp, lambda: network("plif", nn.Linear(5, 2))),
    "SnAp of everything": (lambda *a, **o: SnAp(*a, n=9, **o), lambda: network("mgu")),
    "the layer's own output": (RTRL, lambda: Predictor(rc.layer("min_gru", 3, 2).double())),
}


OPTIMIZERS: dict[str, Any] = {
    "sgd": "sgd",
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99)),
    "rmsprop": "rmsprop",
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [1, 3])
def test_weights_and_moments_are_those_of_the_loop_in_python(
    name: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, make = MODELS[name]
    given = stream(batch=batch)
    compiled, plain = both_ways(
        lambda m: kind(m, "mse", OPTIMIZERS["momentum"], update="step", carry=True), make(), monkeypatch, *given
    )
    assert_alike(compiled, plain)
    if name.endswith("follows the head"):
        torch.testing.assert_close(compiled.matrix, plain.matrix, rtol=1e-8, atol=1e-10)
    assert compiled.predict(given[0]).allclose(plain.predict(given[0]), rtol=1e-8)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_optimizers_and_clipping(name: str, clip: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(model: nn.Module) -> SnAp:
        return SnAp(model, "mse", OPTIMIZERS[name], 0.01, update="step", carry=True, clip=clip)

    assert_alike(*both_ways(make, network("lstm"), monkeypatch, *stream()))


def test_classes_and_steps_that_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    x, target = stream(batch=3, classes=True)
    mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(2)) < 0.4
    assert not mask.any(1).all()
    assert_alike(*both_ways(lambda m: SnAp(m, update="step"), network("lstm"), monkeypatch, x, target, mask))


@pytest.mark.parametrize("kind", [SnAp, RFLO, RTRL])
def test_pieces_and_a_resumed_stream_are_bit_equal(kind: type) -> None:
    x, target = stream(60)
    options = {"update": "step", "carry": True, "clip": 1.0}
    whole, pieces = (kind(network("gru", reset_after=True).float(), "mse", **options) for _ in range(2))
    x, target = x.float(), target.float()
    whole.step(x, target)
    for start, stop in ((0, 1), (1, 2), (2, 31), (31, 60)):
        pieces.step(x[start:stop], target[start:stop])
        resumed = kind(network("gru", reset_after=True).float(), "mse", **options)
        resumed.load_state_dict(pieces.state_dict())
        pieces = resumed
    for a, b in zip(whole.model.parameters(), pieces.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_the_loop_does_not_take_goes_step_by_step() -> None:
    x, target = stream()
    for learner in (
        SnAp(network("lstm"), "mae", update="step"),
        SnAp(network("lstm"), "mse", lambda p: torch.optim.Adam(p, weight_decay=0.1), update="step"),
        SnAp(network("lstm", nn.Sequential(nn.Linear(5, 2))), "mse", update="step"),
    ):
        before = [p.detach().clone() for p in learner.model.parameters()]
        learner.step(x, target)
        assert not any(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))


def test_a_layer_sees_the_weights_that_the_loop_wrote() -> None:
    model = network("min_gru").float()
    x, target = (t.float() for t in stream())
    before = model(x)[0]
    RTRL(model, "mse", rate=0.1, update="step").step(x, target)
    after = model(x)[0]
    fresh = copy.deepcopy(model)(x)[0]
    assert torch.equal(after, fresh)
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("clip", [None, 0.05])
def test_an_update_per_call_is_that_of_torch(name: str, clip: float | None, monkeypatch: pytest.MonkeyPatch) -> None:
    given, losses = stream(), []
    learners = [RTRL(network("gru"), "mse", OPTIMIZERS[name], 0.01, clip=clip) for _ in range(2)]
    for learner in learners:
        losses.append([learner.step(*given) for _ in range(3)])
        monkeypatch.setattr("recurra.train.online.learner.update_compiled", lambda *_: False)
    torch.testing.assert_close(*losses, rtol=1e-10, atol=1e-10)
    assert_alike(*learners)


def test_an_optimizer_of_some_weights_updates_these() -> None:
    """Gradients are clipped by the norm of all."""
    x, target = stream()

    def after(clip: float) -> Predictor:
        model = network("gru")
        RTRL(model, "mse", lambda p: torch.optim.SGD(list(p)[:1], lr=1.0), clip=clip).step(x, target)
        return model

    moved = [after(clip) for clip in (0.01, 0.02)]
    start = network("gru")
    changes = [[(b - a).detach() for a, b in zip(start.parameters(), m.parameters(), strict=True)] for m in moved]
    torch.testing.assert_close(2 * changes[0][0], changes[1][0])
    assert 0 < float(changes[0][0].norm()) < 0.0099
    assert not any(bool(change.any()) for change in changes[0][1:])


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("kind", [RTRL, SnAp, partial(EProp, feedback="random"), EProp])
def test_the_head_of_a_call_is_that_of_autograd(kind: Any, classes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recurra.engine.forward_mode.chunk.LONGEST", 9)  # 23 steps: two chunks and a rest
    x, target = stream(batch=3, classes=classes)
    mask = torch.rand(x.shape[:2], generator=torch.Generator().manual_seed(2)) < 0.6
    compiled, plain = (kind(network("gru", reset_after=True)) for _ in range(2))
    monkeypatch.setattr(plain.tracker, "_reader", lambda *given: HeadOfChunks(plain.tracker, *given))
    losses, found = [], []
    for learner in (compiled, plain):
        found.append(learner.gradients(x[:, :1], target[:, :1], mask[:, :1]))
        losses.append(learner.step(x[:, :1], target[:, :1], mask[:, :1]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-12)


def test_a_hook_and_a_dtype_that_come_later_are_noticed() -> None:
    x, target = stream()
    learner, seen = SnAp(network("lstm").float(), "mse", update="step", carry=True), []
    learner.step(x.float(), target.float())
    assert learner.tracker.loop is not None
    hook = learner.model.head.register_forward_hook(lambda *_: seen.append(1))
    learner.step(x.float(), target.float())
    assert len(seen) == len(x)
    hook.remove()
    learner.model.double()
    with pytest.raises(RuntimeError, match="dtype"):  # torch's words: moments of Adam stay what they were
        learner.step(x, target)


def test_an_optimiser_that_takes_steps_of_its_own_or_gets_another_state_is_read_again() -> None:
    """What the loop knows of moments and counts of updates holds while they are those that it left."""
    x, target = stream()
    start = network("min_gru")
    learners = [SnAp(copy.deepcopy(start), "mse", "adam", 0.01, update=u, carry=True) for u in ("step", "call")]
    for learner in learners:
        adam, parameters = learner.optimizer, list(learner.model.parameters())
        learner.step(x, target)
        done = adam.state[parameters[0]]["step"].item()
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        adam.step()
        learner.step(x, target)
        assert adam.state[parameters[0]]["step"].item() == 2 * done + 1
        saved = copy.deepcopy(adam.state_dict())
        learner.step(x, target)
        adam.load_state_dict(saved)
        copied = SnAp(copy.deepcopy(learner.model), "mse", "adam", 0.01, update=learner.update, carry=True)
        copied.load_state_dict(copy.deepcopy(learner.state_dict()))
        assert learner.step(x, target) == copied.step(x, target)
        assert adam.state[parameters[0]]["step"].item() == 3 * done + 1
        for a, b in zip(parameters, copied.model.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_the_factors_of_adam_are_those_of_torch_after_many_updates() -> None:
    """Far from the start, where powers of the decays vanish, and where factors that were computed ahead end."""
    for done in (254, 3000, 200_000):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(5, dtype=torch.float64))
        other = nn.Parameter(weight.detach().clone())
        ours, theirs = (torch.optim.Adam([p], lr=0.01) for p in (weight, other))
        for optimizer, parameter in ((ours, weight), (theirs, other)):
            moments = torch.full((5,), 0.3, dtype=torch.float64), torch.full((5,), 0.2, dtype=torch.float64)
            state = {"step": torch.tensor(float(done)), "exp_avg": moments[0], "exp_avg_sq": moments[1]}
            optimizer.state[parameter] = state
        for number in range(5):
            weight.grad, other.grad = (torch.full((5,), 0.1 * number, dtype=torch.float64) for _ in range(2))
            assert update_compiled(ours, [weight], None)
            theirs.step()
        torch.testing.assert_close(weight, other, rtol=1e-12, atol=1e-14)
        assert ours.state[weight]["step"].item() == done + 5
