"""RTRL: the sum of its gradients is BPTT's, for every cell; and what it costs is said first."""

import pytest
import torch
from cases import Case, draw_inputs, sampled_case
from helpers import assert_close

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.train import BPTT, RTRL, CostError, Predictor
from recurra.train.sensitivity import Dense, Elementwise, Masked, Rows, exact, has_rows, is_elementwise, snap1
from recurra.train.step_function import StepFunction

LIMIT = 1 << 30


def predictor(case: Case, outputs: int = 2, **arguments) -> Predictor:
    torch.manual_seed(0)  # the same head every time
    return Predictor(case.layer(**arguments), outputs)


def bptt_gradients(model: Predictor, x, target, mask=None) -> dict[str, torch.Tensor]:
    """Autograd through the unrolled loop: the oracle."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    model.zero_grad()
    with set_backend("reference"):
        y, _ = model(x)
    torch.nn.functional.mse_loss(y[mask], target[mask]).backward()
    learned = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in learned.items()}


@sampled_case
def test_sum_equals_bptt(case: Case) -> None:
    model = predictor(case)
    x = draw_inputs(case, steps=4)
    target = torch.randn(4, 2, 2, dtype=torch.float64)
    with set_backend("reference"):  # through torch.func; tests/train/online covers the compiled step
        found = RTRL(model, "mse").gradients(x, target)
    expected = bptt_gradients(model, x, target)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-10)


ELEMENTWISE = ("indrnn", "min_gru", "min_lstm", "focused_rnn")


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_cells_take_the_cheap_trace(name: str) -> None:
    step_fn = StepFunction(predictor(Case(name)))
    cheap, dense = exact(step_fn, 2, LIMIT), Dense(step_fn)
    assert type(cheap) is Elementwise
    _same_derivatives(cheap, dense, draw_inputs(Case(name)))
    assert cheap.influence.shape[1] == 1
    assert dense.influence.shape[1] == 4


def test_a_product_of_states_is_not_elementwise() -> None:
    for name in ("rnn", "lstm", "gru", "scrn", "unitary_rnn", "delay_rnn", "slstm"):
        assert not is_elementwise(StepFunction(predictor(Case(name)))), name


@pytest.mark.parametrize("name", ["rnn", "lstm", "vanilla_lstm", "full_gate_lstm", "leaky_rnn", "cornn"])
def test_snap1_in_rows_is_the_masked_whole(name: str) -> None:
    step_fn = StepFunction(predictor(Case(name)))
    assert has_rows(step_fn)
    rows, masked = snap1(step_fn, 2, LIMIT), Masked(step_fn)
    assert type(rows) is Rows
    _same_derivatives(rows, masked, draw_inputs(Case(name)))


def test_snap1_of_a_cell_whose_gates_mix_units_is_masked() -> None:
    step_fn = StepFunction(predictor(Case("gru")))
    assert type(snap1(step_fn, 2, LIMIT)) is Masked


def test_snap1_is_an_approximation() -> None:
    case = Case("lstm")
    model, x = predictor(case), draw_inputs(case, steps=8)
    target = torch.randn(8, 2, 2, dtype=torch.float64)
    approximate = RTRL(model, "mse", approximation="snap1").gradients(x, target)
    expected = bptt_gradients(model, x, target)
    assert_close(approximate["head.V"], expected["head.V"], 1e-10)  # nothing recurrent lies behind it
    flat = lambda g: torch.cat([v.flatten() for n, v in g.items() if n.startswith("layer")])  # noqa: E731
    error = (flat(approximate) - flat(expected)).norm() / flat(expected).norm()
    assert 1e-3 < error < 0.9


def _same_derivatives(one, other, x) -> None:
    one.reset(x.shape[1]), other.reset(x.shape[1])
    for step in x:
        for a, b in zip(one.advance(step), other.advance(step), strict=True):
            assert_close(a, b, 1e-11)


def test_a_stack_of_layers_with_learned_start() -> None:
    case = Case("gru")
    model = predictor(case, num_layers=2, initial="learned")
    x, target = draw_inputs(case, steps=4), torch.randn(4, 2, 2, dtype=torch.float64)
    found, expected = RTRL(model, "mse").gradients(x, target), bptt_gradients(model, x, target)
    assert float(expected["layer.cells.0.h_0"].abs().max()) > 1e-4
    for name, gradient in expected.items():
        assert_close(found[name], gradient, 1e-10)


def test_learned_start_of_an_elementwise_cell() -> None:
    case = Case("indrnn")
    model = predictor(case, initial="learned")
    x, target = draw_inputs(case, steps=4), torch.randn(4, 2, 2, dtype=torch.float64)
    expected = bptt_gradients(model, x, target)
    for backend in ("auto", "reference"):  # compiled, and through torch.func
        with set_backend(backend):
            found = RTRL(model, "mse").gradients(x, target)
        for name, gradient in found.items():
            assert_close(gradient, expected[name], 1e-10)


def test_a_mask_keeps_steps_out() -> None:
    case = Case("rnn")
    model, x = predictor(case), draw_inputs(case)
    target = torch.randn(5, 2, 2, dtype=torch.float64)
    mask = torch.rand(5, 2) > 0.4
    expected = bptt_gradients(model, x, target, mask)
    for name, gradient in RTRL(model, "mse").gradients(x, target, mask).items():
        assert_close(gradient, expected[name], 1e-10)


def test_one_step_at_a_time_is_the_same_stream() -> None:
    case = Case("lstm")
    x, target = draw_inputs(case), torch.randn(5, 2, 2, dtype=torch.float64)
    whole, stream = (RTRL(predictor(case), "mse", "sgd", 0.1, update="step", carry=True) for _ in range(2))
    whole.step(x, target)
    for t in range(5):
        stream.step(x[t : t + 1], target[t : t + 1])
    _same_weights(whole.model, stream.model)


def test_resume_is_exact() -> None:
    case = Case("lstm")
    x, target = draw_inputs(case), torch.randn(5, 2, 2, dtype=torch.float64)
    make = lambda: RTRL(predictor(case), "mse", "adam", 0.1, update="step", carry=True)  # noqa: E731
    straight, first, second = make(), make(), make()
    for _ in range(2):
        straight.step(x, target)
    first.step(x, target)
    second.load_state_dict(first.state_dict())
    second.step(x, target)
    _same_weights(straight.model, second.model)


def test_a_call_learns_as_bptt_does() -> None:
    case = Case("vanilla_lstm")
    x, target = draw_inputs(case), torch.randint(0, 2, (2,))
    one = RTRL(predictor(case), optimizer="sgd", rate=0.5)
    other = BPTT(predictor(case), optimizer="sgd", rate=0.5)
    for _ in range(3):
        assert one.step(x, target) == pytest.approx(other.step(x, target), abs=1e-12)
    _same_weights(one.model, other.model)


def _same_weights(one, other) -> None:
    for (name, a), b in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11, msg=name)


def test_a_huge_cell_is_refused_with_its_cost() -> None:
    with pytest.raises(CostError, match=r"2048 states × .* weights.*GiB|TiB.*snap1"):
        RTRL(Predictor(rc.layer("lstm", 64, 1024), 2))


def test_what_it_cannot_read_is_refused() -> None:
    with pytest.raises(rc.RecurraError, match="bidirectional"):
        RTRL(Predictor(rc.layer("gru", 3, 4, bidirectional=True), 2))
    with pytest.raises(rc.RecurraError, match="from_torch"):
        RTRL(torch.nn.Sequential(torch.nn.LSTM(3, 4)))


@pytest.mark.parametrize("backend", ["auto", "compiled", "reference"])
def test_every_backend_gives_the_same(backend: str) -> None:
    """Forward mode through an operation of the compiled engine would be a silent zero."""
    case = Case("lstm")
    model, x = predictor(case), draw_inputs(case, steps=6)
    target = torch.randn(6, 2, 2, dtype=torch.float64)
    expected = bptt_gradients(model, x, target)
    for approximation in (None, "snap1"):
        with set_backend(backend):
            found = RTRL(model, "mse", approximation=approximation).gradients(x, target)
        assert all(float(gradient.abs().max()) > 1e-6 for gradient in found.values())
        if approximation is None:
            for name, gradient in expected.items():
                assert_close(found[name], gradient, 1e-10)


def test_gradients_are_named_as_the_parameters() -> None:
    case = Case("rnn")
    x, target = draw_inputs(case, steps=3), torch.randn(3, 2, 4, dtype=torch.float64)
    for model in (case.layer(), Predictor(case.layer(), 4)):
        found = RTRL(model, "mse").gradients(x, target)
        assert found.keys() == dict(model.named_parameters()).keys()


@pytest.mark.parametrize("learner", [RTRL, rc.train.SnAp, rc.train.UORO, rc.train.ForwardGradient])
def test_a_module_without_recurrence_is_refused_by_name(learner: type) -> None:
    with pytest.raises(rc.errors.InputError, match="Linear, without recurrence"):
        learner(torch.nn.Linear(2, 3), "mse")
