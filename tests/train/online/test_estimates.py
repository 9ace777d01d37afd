"""UORO, KF-RTRL and forward gradients: the mean of many draws is the exact gradient; streams go on exactly."""

import copy
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


@pytest.mark.parametrize("make", ESTIMATES)
def test_mean_is_the_gradient(make) -> None:
    check_unbiased(make, "rnn", groups=10, draws=200)


@pytest.mark.slow
@pytest.mark.parametrize("make", ESTIMATES)
@pytest.mark.parametrize("name", ["gru", "lstm", "indrnn"])
def test_mean_of_20000_draws_is_the_gradient(make, name: str) -> None:
    check_unbiased(make, name, groups=40, draws=500)


@pytest.mark.slow
@pytest.mark.parametrize("make", [UORO, ForwardGradient])
def test_mean_with_a_learned_start_and_two_layers(make) -> None:
    check_unbiased(make, "gru", groups=40, draws=500, num_layers=2, initial="learned")


@pytest.mark.parametrize("make", [UORO, ForwardGradient])
@pytest.mark.parametrize("name", ["gru", "lstm", "scrn", "leaky_rnn"])
def test_the_compiled_step_and_torch_func_give_the_same_draw(make, name: str) -> None:
    model, x = predictor(name, initial="learned"), draw_inputs(Case(name), steps=5)
    target, found = torch.randn(5, 2, 2, dtype=torch.float64), []
    direct = name != "leaky_rnn"  # there, the compiled step counts weights that are derived
    for backend in ("auto", "reference"):
        with set_backend(backend):
            learner = make(model, "mse")
            found.append(learner.gradients(x, target))
        assert bool(learner.tracker.why) == (backend == "reference")
    sizes = {name: g.shape for name, g in found[0].items()}
    assert sizes == {name: p.shape for name, p in model.named_parameters() if p.requires_grad}
    if make is UORO and direct:  # its signs belong to states
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
    assert torch.equal(found.pop("generator"), expected.pop("generator"))
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
