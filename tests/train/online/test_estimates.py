"""UORO, KF-RTRL and forward gradients: the mean of many draws is the exact gradient; streams go on exactly."""

import copy
import math
from functools import partial

import pytest
import torch
from cases import Case, draw_inputs
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import KFRTRL, RTRL, UORO, ForwardGradient, Predictor
from recurra.train.online.estimate_trackers import EstimateTracker

ESTIMATES = (UORO, KFRTRL, ForwardGradient)
STEPS = 4


def predictor(name: str, **arguments) -> Predictor:
    torch.manual_seed(0)
    return Predictor(Case(name).layer(**arguments), 2)


def recurrent(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for name, g in gradients.items() if name.startswith("layer")])


def check_unbiased(make, name: str, groups: int, draws: int, **arguments) -> None:
    """Each group is one batch of copies of the same sequence; every copy draws for itself."""
    model = predictor(name, **arguments)
    x = draw_inputs(Case(name), steps=STEPS, batch=1)
    target = torch.randn(STEPS, 1, 2, dtype=torch.float64)
    exact = recurrent(RTRL(model, "mse").gradients(x, target))
    many = x.expand(-1, draws, -1).contiguous(), target.expand(-1, draws, -1).contiguous()
    found = torch.stack([recurrent(make(model, "mse", seed=seed).gradients(*many)) for seed in range(groups)])
    error = found.std(0) / groups**0.5
    assert float(error.norm() / exact.norm()) < 0.2  # the test can tell a wrong mean
    assert bool(((found.mean(0) - exact).abs() <= 4 * error + 1e-12).all())


def test_mean_is_the_gradient() -> None:
    check_unbiased(ForwardGradient, "rnn", groups=10, draws=200)


def every_sign(monkeypatch, *shape: int) -> int:
    """Make each sequence of a batch draw other signs, so that all of so many signs occur once; how many sequences."""
    count = math.prod(shape)
    bits = (torch.arange(2**count)[:, None] >> torch.arange(count)) & 1  # (batch, signs of a sequence)
    table, used = (2.0 * bits - 1).double(), [0]

    def signs(self: EstimateTracker, *wanted: int) -> Tensor:
        at = wanted.index(2**count)
        others = wanted[:at] + wanted[at + 1 :]
        number = math.prod(others)
        columns = (torch.arange(number) + used[0]) % count
        used[0] += number
        return table[:, columns].unflatten(1, others).movedim(0, at).contiguous()

    monkeypatch.setattr(EstimateTracker, "signs", signs)
    return 2**count


class Spoken(rc.Cell):
    """A state that no layer above reads as it is: what speaks is no state."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size, output_size=hidden_size)
        self.a, self.b = self.affine("x", "h", bias=False), self.affine("h", bias=False)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(self.a(x, h))
        return torch.tanh(self.b(h)), h


@pytest.mark.parametrize("kind", ["UORO", "UORO by steps", "KFRTRL", "KFRTRL by steps", "KFRTRL of two layers"])
def test_the_mean_over_all_signs_is_the_gradient_exactly(kind: str, monkeypatch) -> None:
    """Signs of the first two of three steps: those of the last reach no loss."""
    torch.manual_seed(0)
    layers, steps = (2, 2) if "two" in kind else (1, 3)
    model = Predictor(rc.Recurrent(Spoken, 2, 3, num_layers=layers, dtype=torch.float64), 2)
    x, target = torch.randn(steps, 1, 2, dtype=torch.float64), torch.randn(steps, 1, 2, dtype=torch.float64)
    exact = RTRL(model, "mse").gradients(x, target)
    make = KFRTRL if "KFRTRL" in kind else UORO
    learner = make(model, "mse")
    of_a_step = (3,) if make is UORO else (2, len(learner.tracker.groups))
    many = every_sign(monkeypatch, steps - 1, *of_a_step)
    if "by steps" in kind:
        learner._whole_call = lambda *_: None  # pyrefly: ignore
    found = learner.gradients(*(t.expand(-1, many, -1).contiguous() for t in (x, target)))
    for name, gradient in exact.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("make", ESTIMATES)
@pytest.mark.parametrize("name", ["gru", "lstm", "indrnn"])
def test_mean_of_20000_draws_is_the_gradient(make, name: str) -> None:
    check_unbiased(make, name, groups=40, draws=500)


@pytest.mark.parametrize("make", ESTIMATES)
def test_a_run_without_carry_goes_on_with_the_same_draws(make) -> None:
    """And calls with other numbers of sequences do not repeat those of the first one."""
    x, target = draw_inputs(Case("gru"), steps=3), torch.randn(3, 2, 2, dtype=torch.float64)
    whole, resumed = (make(predictor("gru"), "mse", rate=0.1) for _ in range(2))
    whole.step(x, target)
    resumed.load_state_dict(whole.state_dict())
    whole.step(x, target), resumed.step(x, target)
    assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True))
    draws = []
    for _ in range(2):
        draws.append(recurrent(whole.gradients(x, target)))
        whole.predict(x)  # draws nothing
        whole.gradients(x[:, :1], target[:, :1])
    assert not torch.equal(*draws)
    resumed.predict(x)
    assert torch.equal(recurrent(resumed.gradients(x, target)), draws[0])


@pytest.mark.slow
@pytest.mark.parametrize("make", [UORO, ForwardGradient])
def test_mean_with_a_learned_start_and_two_layers(make) -> None:
    check_unbiased(make, "gru", groups=40, draws=500, num_layers=2, initial="learned")


@pytest.mark.parametrize("make", [UORO, ForwardGradient])
@pytest.mark.parametrize("name", ["gru", "lstm", "scrn", "leaky_rnn"])
def test_the_compiled_step_and_torch_func_give_the_same_draw(make, name: str) -> None:
    model, x = predictor(name, initial="learned"), draw_inputs(Case(name), steps=5)
    target, found = torch.randn(5, 2, 2, dtype=torch.float64), []
    for backend in ("auto", "reference"):
        with set_backend(backend):
            learner = make(model, "mse")
            found.append(learner.gradients(x, target))
        assert bool(learner.tracker.why) == (backend == "reference")
    sizes = {name: g.shape for name, g in found[0].items()}
    assert sizes == {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    if make is UORO:  # its signs belong to states
        for name in found[0]:
            torch.testing.assert_close(found[0][name], found[1][name], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("make", ESTIMATES)
def test_pieces_of_a_stream_and_a_resumed_one_are_bit_equal(make) -> None:
    x, target = draw_inputs(Case("lstm"), steps=9), torch.randn(9, 2, 2, dtype=torch.float64)
    new = lambda: make(predictor("lstm"), "mse", "adam", 0.1, update="step", carry=True)  # noqa: E731
    whole, pieces, first, resumed = new(), new(), new(), new()
    whole.step(x, target)
    for low, high in ((0, 1), (1, 4), (4, 9)):
        pieces.step(x[low:high], target[low:high])
    first.step(x[:4], target[:4])
    resumed.load_state_dict(first.state_dict())
    resumed.step(x[4:], target[4:])
    for other in (pieces, resumed):
        assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True))


COMPILED = {
    "UORO": UORO,
    "KF-RTRL": KFRTRL,
    "forward gradient": ForwardGradient,
    "forward gradient that turns": partial(ForwardGradient, redraw=3),
}


@pytest.mark.parametrize("update", ["step", "call"])
@pytest.mark.parametrize("make", COMPILED.values(), ids=COMPILED)
@pytest.mark.parametrize("name", ["gru", "scrn", "mogrifier_lstm", "delay_rnn", "slstm"])
def test_the_compiled_loop_is_the_loop_in_python(name: str, make, update: str, monkeypatch) -> None:
    """Weights, losses, what is carried and the random numbers drawn, after calls in which not every step counts."""
    model = predictor(name, num_layers=2, depth="graves" if update == "step" else "stack")
    x, target = draw_inputs(Case(name), steps=7, batch=3), torch.randn(7, 3, 2, dtype=torch.float64)
    mask = torch.rand(7, 3) < 0.7
    mask[2] = False
    compiled, plain = (make(copy.deepcopy(model), "mse", "adam", 0.01, update=update, carry=True) for _ in range(2))
    losses = [compiled.step(x, target, mask) for _ in range(2)]
    assert compiled.tracker.loop is not None
    for method in ("call_updates", "call_gradient"):
        monkeypatch.setattr(EstimateTracker, method, lambda *_: None)
    assert losses == pytest.approx([plain.step(x, target, mask) for _ in range(2)], rel=1e-12)
    for a, b in zip(compiled.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)  # Adam divides by small gradients
    found, expected = compiled.tracker.state_dict(), plain.tracker.state_dict()
    assert torch.equal(compiled.generator.get_state(), plain.generator.get_state())
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_kronecker_factors_have_less_variance_than_rank_one() -> None:
    model, x = predictor("lstm"), draw_inputs(Case("lstm"), steps=6, batch=1)
    target = torch.randn(6, 1, 2, dtype=torch.float64)
    spread = [
        torch.stack([recurrent(make(model, "mse", seed=s).gradients(x, target)) for s in range(30)]).var(0).sum()
        for make in (KFRTRL, UORO)
    ]
    assert spread[0] < spread[1] / 2


def test_what_kronecker_factors_need() -> None:
    with pytest.raises(rc.OptionError, match="complex"):
        KFRTRL(predictor("unitary_rnn"))
    with pytest.raises(rc.OptionError, match="learned start"):
        KFRTRL(predictor("gru", initial="learned"))
