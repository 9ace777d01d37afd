"""The compiled influence: RTRL is BPTT for every cell, SnAp-n what n steps reach, and streams go on exactly."""

from functools import partial

import pytest
import torch
from cases import CASES, REPRESENTATIVES, Case, draw_inputs, sampled_case
from helpers import assert_close
from torch import Tensor

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.forward_mode import chunk
from recurra.train import RFLO, RTRL, UORO, CostError, EProp, Predictor, SnAp
from recurra.train.objective import LOSSES
from recurra.train.sensitivity import Masked
from recurra.train.step_function import StepFunction

MANY = 1000  # steps that reach everything
NOT_COMPILED = {"unitary_rnn"}  # complex numbers


def predictor(case: Case, **arguments) -> Predictor:
    torch.manual_seed(0)
    return Predictor(case.layer(**arguments), 3)


def bptt_gradients(model: Predictor, x: Tensor, target: Tensor, loss: str) -> dict[str, Tensor]:
    model.zero_grad()
    with set_backend("reference"):
        y, _ = model(x)
    LOSSES[loss](y.flatten(0, 1), target.flatten(0, 1)).backward()
    learned = {n: p for n, p in model.named_parameters() if p.requires_grad}
    return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in learned.items()}


def targets(loss: str, steps: int = 5) -> Tensor:
    if loss == "cross_entropy":
        return torch.randint(0, 3, (steps, 2))
    return torch.randn(steps, 2, 3, dtype=torch.float64)


def same_gradients(case: Case, loss: str, **arguments) -> None:
    model, x, target = predictor(case, **arguments), draw_inputs(case), targets(loss)
    expected = bptt_gradients(model, x, target, loss)
    learner = RTRL(model, loss)
    found = [learner.gradients(x, target)]
    assert bool(learner.tracker.why) == (case.name in NOT_COMPILED), learner.tracker.why
    if not learner.tracker.why:
        found.append(SnAp(model, loss, n=MANY).gradients(x, target))
    for gradients in found:
        assert gradients.keys() == expected.keys()
        for name, gradient in gradients.items():
            assert_close(gradient, expected[name], 1e-12)


@sampled_case
def test_rtrl_and_snap_of_many_steps_are_bptt(case: Case) -> None:
    same_gradients(case, "mse")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.name in REPRESENTATIVES], ids=str)
def test_stacks_and_classes(case: Case) -> None:
    same_gradients(case, "cross_entropy", num_layers=2)


@pytest.mark.parametrize("depth", ["stack", "residual", "graves"])
@pytest.mark.parametrize("name", ["gru", "indrnn", "scrn"])
def test_every_way_to_stack(name: str, depth: str) -> None:
    same_gradients(Case(name), "mse", num_layers=3, initial="learned", depth=depth)


@pytest.mark.parametrize("name", ["rnn", "lstm", "gru", "gru_after", "vanilla_lstm", "cornn", "mgu", "ugrnn"])
def test_snap1_is_the_masked_influence(name: str) -> None:
    """Menick et al.: the full influence, multiplied at every step by the pattern of one step (which probes find)."""
    case = Case("gru", {"reset_after": True}) if name == "gru_after" else Case(name)
    model, x, target = predictor(case), draw_inputs(case, steps=6), targets("mse", 6)
    learner = SnAp(model, "mse")
    found = torch.cat([g.flatten() for n, g in learner.gradients(x, target).items() if n.startswith("layer")])
    assert not learner.tracker.why
    expected, sensitivity = 0.0, Masked(StepFunction(model.layer))
    sensitivity.reset(2)
    for row, wanted in zip(x, target, strict=True):
        h, by_weights, _ = sensitivity.advance(row)
        g = 2 * (model.head(h) - wanted) / target.numel() @ model.head.V
        expected = expected + torch.einsum("bq,bqp->p", g, by_weights)
    assert_close(found, expected.detach(), 1e-12)


@pytest.mark.parametrize("name", ["slstm", "irnn", "shallow_plrnn", "gru_d", "clockwork", "intersection_rnn", "al_rnn"])
def test_probes_find_every_branch(name: str) -> None:
    """Without the compiled step, the pattern is probed: a branch of a maximum or relu that no probe took is no zero."""
    case = Case("shallow_plrnn", {"clipped": True}) if name == "shallow_plrnn" else Case(name)
    model, target = predictor(case), targets("mse", 6)
    x = 2 * torch.randn(6, 2, case.layer().input_size, dtype=torch.float64)
    compiled = SnAp(model, "mse")
    found = compiled.gradients(x, target)
    assert not compiled.tracker.why
    with set_backend("reference"):
        probed = SnAp(model, "mse")
        assert isinstance(probed.tracker.sensitivity, Masked)
        for key, gradient in probed.gradients(x, target).items():
            assert_close(found[key], gradient, 1e-12)


def test_an_output_that_is_no_state_has_all_that_the_states_give() -> None:
    """The first output of an intersection RNN reads weights of its state only a step later."""
    model, target = predictor(Case("intersection_rnn")), targets("mse")
    gradients = SnAp(model, "mse").gradients(draw_inputs(Case("intersection_rnn")), target)
    assert all(bool(gradient.any()) for gradient in gradients.values())


def test_snap_grows_to_rtrl() -> None:
    """A layer reads the new output of the one below, so that one step reaches the top; then units mix with their own
    past only: two steps reach what any number does."""
    model, x, target = predictor(Case("indrnn"), num_layers=2), draw_inputs(Case("indrnn")), targets("mse")
    exact = RTRL(model, "mse").gradients(x, target)
    twice = SnAp(model, "mse", n=2).gradients(x, target)
    for name in exact:
        assert_close(twice[name], exact[name], 1e-12)


class Halves(rc.Cell):
    """What a step derives before the loop is a condition by unit, and a buffer that may change."""

    states = ("h",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")
        self.register_buffer("leak", torch.tensor(0.5))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.a(x, torch.where(torch.arange(h.shape[1]) % 2 == 0, h, self.leak * 2 * h)))


def test_conditions_and_buffers_before_the_loop() -> None:
    torch.manual_seed(0)
    model, target = Predictor(rc.Recurrent(Halves, 2, 5, dtype=torch.float64), 3), targets("mse")
    x = torch.randn(5, 2, 2, dtype=torch.float64)
    learner = RTRL(model, "mse")
    for leak in (0.5, 0.1):
        model.layer.cells[0].leak.fill_(leak)
        expected = bptt_gradients(model, x, target, "mse")
        found = learner.gradients(x, target)
        assert not learner.tracker.why
        for name, gradient in expected.items():
            assert_close(found[name], gradient, 1e-12)


@pytest.mark.parametrize("make", [RTRL, SnAp])
@pytest.mark.parametrize("name", ["lstm", "min_gru"])
def test_pieces_of_a_stream_and_a_resumed_one_are_bit_equal(make, name: str) -> None:
    x, target = draw_inputs(Case(name), steps=9), targets("mse", 9)
    new = lambda: make(predictor(Case(name)), "mse", "adam", 0.1, update="step", carry=True)  # noqa: E731
    whole, pieces, first, resumed = new(), new(), new(), new()
    whole.step(x, target)
    for low, high in ((0, 1), (1, 4), (4, 9)):
        pieces.step(x[low:high], target[low:high])
    first.step(x[:4], target[:4])
    resumed.load_state_dict(first.state_dict())
    resumed.step(x[4:], target[4:])
    for other in (pieces, resumed):
        for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(a, b)


def test_a_prediction_leaves_the_stream_where_it_is() -> None:
    case = Case("gru")
    x, target = draw_inputs(case, steps=6), targets("mse", 6)
    one, other = (RTRL(predictor(case), "mse", "sgd", 0.1, update="step", carry=True) for _ in range(2))
    one.step(x[:3], target[:3]), other.step(x[:3], target[:3])
    ahead = one.predict(x[3:])
    assert ahead.shape == (3, 2, 3)
    one.step(x[3:], target[3:]), other.step(x[3:], target[3:])
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), other.model.parameters(), strict=True))


def test_a_refusal_names_what_fits() -> None:
    with pytest.raises(CostError, match=r"GiB.*SnAp\(1\) keeps at least .* MiB, UORO"):
        RTRL(Predictor(rc.layer("lstm", 64, 512), 2), memory_limit=1 << 30)


def test_more_steps_than_one_without_the_compiled_step_are_refused() -> None:
    with pytest.raises(rc.OptionError, match="complex"):
        SnAp(predictor(Case("unitary_rnn")), n=2)


@pytest.mark.parametrize("name", ["gru", "lstm", "min_gru", "indrnn", "lru", "delay_rnn"])
@pytest.mark.parametrize("make", [RTRL, SnAp, partial(SnAp, n=2), EProp, RFLO])
def test_a_call_in_chunks_gives_the_gradient_and_influence_of_single_steps(make, name, monkeypatch):
    monkeypatch.setattr("recurra.engine.forward_mode.chunk.LONGEST", 4)  # 11 steps: two chunks and a rest
    model = Predictor(rc.layer(name, 3, 4).double(), 2)
    x, target = torch.randn(11, 2, 3).double(), torch.randn(11, 2, 2).double()
    chunked, stepwise = make(model, "mse", carry=True), make(model, "mse", carry=True)
    monkeypatch.setattr(stepwise, "_whole_call", lambda *_: None)
    for _ in range(2):  # the second call starts from the influence of the first
        found, expected = (learner.gradients(x, target) for learner in (chunked, stepwise))
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, rtol=1e-11, atol=1e-13)  # rounding of float64
        chunked._running = stepwise._running = True
    drops = make is SnAp or (isinstance(make, partial) and name == "delay_rnn")  # parts of matrices: step by step
    assert chunked.tracker.chunk is not None or drops
    for key in ("state", "kept"):
        torch.testing.assert_close(
            chunked.tracker.state_dict()[key], stepwise.tracker.state_dict()[key], rtol=1e-11, atol=1e-13
        )


@pytest.mark.parametrize("part", [torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)])
def test_a_chunk_shows_a_head_one_step_at_a_time(part):
    """Statistics of a batch, and draws, are those of single steps, whatever the chunk."""
    torch.manual_seed(0)
    layer = rc.layer("gru", 2, 5, dtype=torch.float64)
    model = Predictor(layer, torch.nn.Sequential(torch.nn.Linear(5, 3), part))
    x, target = torch.randn(6, 4, 2, dtype=torch.float64), torch.randn(6, 4, 3, dtype=torch.float64)
    chunked, stepwise = RTRL(model, "mse"), RTRL(model, "mse")
    stepwise._whole_call = lambda *_: None  # pyrefly: ignore
    found = []
    for learner in (chunked, stepwise):
        torch.manual_seed(1)
        found.append(learner.gradients(x, target))
    assert_close(*found)


class Constant(rc.Cell):
    """A state that nothing reaches."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.zeros_like(self.a(x, h))


class Spread(rc.Cell):
    """One number for each sequence, spread over the units: the graph reads the number of sequences."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.a(x, h)) + h.mean(-1, keepdim=True).expand_as(h)


class Weightless(rc.Cell):
    """Nothing to learn but the head."""

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(h + x.sum(-1, keepdim=True))


@pytest.mark.parametrize("cell", [Constant, Spread])
@pytest.mark.parametrize("kind", [RTRL, UORO])
def test_cells_that_do_little(cell: type[rc.Cell], kind: type) -> None:
    torch.manual_seed(0)
    model = Predictor(rc.Recurrent(cell, 3, 4), 3).double()
    x, target = torch.randn(5, 2, 3, dtype=torch.float64), targets("mse")
    found = kind(model, "mse").gradients(x, target)
    if kind is RTRL:
        for name, gradient in bptt_gradients(model, x, target, "mse").items():
            assert_close(found[name], gradient, 1e-12)


@pytest.mark.parametrize("kind", [RTRL, UORO])
def test_a_layer_without_weights(kind: type) -> None:
    model = Predictor(rc.Recurrent(Weightless, 3, 4), 2)
    assert model(torch.ones(5, 2, 3))[0].shape == (5, 2, 2)
    with pytest.raises(rc.InputError, match="model: got a layer without weights"):
        kind(model, "mse")


def test_a_chunk_of_a_large_network_has_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk.Chunk, "memory_limit", 1)  # one step takes more
    same_gradients(Case("gru"), "mse", num_layers=2)
