"""Declared noise: a loop in plain torch that consumes the same draws gives the same values and gradients."""

from collections.abc import Callable, Iterator

import pytest
import torch
from engine.strange_cells import Noisy
from helpers import assert_close
from torch import Tensor
from torch.func import functional_call, grad, vmap

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.cpu import compiler
from recurra.engine.dispatch import Sequences, choose
from recurra.errors import InputError, OptionError
from recurra.inspect.mathml import cell_mathml

pytestmark = pytest.mark.filterwarnings("ignore:recurra found no C:recurra.engine.backend.EngineWarning")

STEPS, BATCH, UNITS = 7, 3, 5
F64 = torch.float64


@pytest.fixture(params=["reference", "compiled", "replayed"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "replayed":
        monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    with set_backend("reference" if request.param == "reference" else "auto"):
        yield request.param


def made(**options) -> rc.Recurrent:
    return rc.Recurrent(Noisy, 4, UNITS, dtype=F64, **options)


def runs_on(layer: rc.Recurrent, x: Tensor) -> str:
    cell = layer.cell_list[0]
    return choose(cell, Sequences(x, cell.initial_state(x.shape[1], x), cell.draw_masks(*x.shape[:2], x))).backend


def draws(steps: int, batch: int, units: int = UNITS) -> tuple[Tensor, Tensor]:
    """As the declarations say: n, then u, all steps at once."""
    return torch.randn(steps, batch, units, dtype=F64), torch.rand(steps, batch, 3, dtype=F64)


def one_step(w: dict[str, Tensor], x: Tensor, h: Tensor, n: Tensor, u: Tensor) -> Tensor:
    """The equations of `Noisy`, written again for one row."""
    a = torch.tanh(w["a.U"] @ x + w["a.W"] @ h + w["a.b"] + w["c.W"] @ u.sqrt() + w["c.b"] + 0.3 * n * h)
    return 0.5 * h + a * (1 + u[0]) / (1 + torch.exp(-(w["b.W"] @ a + w["b.b"])))


def weights(cell: rc.Cell) -> dict[str, Tensor]:
    named: dict[str, Tensor] = dict(cell.named_parameters())
    return named | {"c.W": next(p for n, p in named.items() if n.startswith("c.") and p.dim() == 2)}


def oracle(cell: rc.Cell, x: Tensor, noise: tuple[Tensor, Tensor], lengths=None, resets=None) -> Tensor:
    """Row by row, step by step; zeros past the end."""
    w, rows = weights(cell), []
    for b in range(x.shape[1]):
        h, outputs = x.new_zeros(UNITS), []
        for t in range(x.shape[0]):
            if lengths is not None and t >= lengths[b]:
                outputs.append(torch.zeros_like(h))
                continue
            h = torch.zeros_like(h) if resets is not None and resets[t, b] else h
            h = one_step(w, x[t, b], h, noise[0][t, b], noise[1][t, b])
            outputs.append(h)
        rows.append(torch.stack(outputs))
    return torch.stack(rows, 1)


def turned(x: Tensor, lengths: list[int]) -> Tensor:
    """Each row reversed within its length."""
    rows = [torch.cat([x[:n, b].flip(0), x[n:, b]]) for b, n in enumerate(lengths)]
    return torch.stack(rows, 1)


def compare(layer: rc.Recurrent, x: Tensor, run: Callable[[], Tensor], expected: Callable[[], Tensor]) -> None:
    """Values and all gradients of both functions from the same seed."""
    wanted, found = [], []
    for function, into in ((expected, wanted), (run, found)):
        torch.manual_seed(11)
        y = function()
        pull = torch.linspace(-1, 1, y.numel(), dtype=F64).view_as(y)
        into += [y.detach(), *torch.autograd.grad((y * pull).sum(), [x, *layer.parameters()])]
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other)


# ---------------------------------------------------------------------------------------------------- the engines


def test_a_plain_loop_with_the_same_draws(engine: str):
    layer, x = made(), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    assert runs_on(layer, x) == engine
    cell = layer.cell_list[0]
    compare(layer, x, lambda: layer(x)[0], lambda: oracle(cell, x, draws(STEPS, BATCH)))


def test_lengths_and_resets_change_no_draw(engine: str):
    layer, x = made(batch_first=True), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    lengths, resets = [7, 2, 5], torch.zeros(STEPS, BATCH, dtype=torch.bool)
    resets[3, 0] = resets[1, 1] = resets[4, 2] = True

    def run() -> Tensor:
        return layer(x.transpose(0, 1), lengths=lengths, resets=resets.t())[0].transpose(0, 1)

    compare(layer, x, run, lambda: oracle(layer.cell_list[0], x, draws(STEPS, BATCH), lengths, resets))


def test_layers_and_directions_draw_in_order(engine: str):
    layer = rc.Recurrent(Noisy, 4, UNITS, num_layers=2, bidirectional=True, dtype=F64)
    x, lengths = torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True), [4, 7, 1]

    def expected() -> Tensor:
        below = x
        for level in range(2):
            ahead, back = layer.cell_list[2 * level : 2 * level + 2]
            first, second = draws(STEPS, BATCH), draws(STEPS, BATCH)
            y = oracle(ahead, below, first, lengths)
            z = turned(oracle(back, turned(below, lengths), second, lengths), lengths)
            below = torch.cat([y, z], -1)
        return below

    compare(layer, x, lambda: layer(x, lengths=lengths)[0], expected)


def test_streaming_draws_step_by_step(engine: str):
    layer, x = made(), torch.randn(STEPS, BATCH, 4, dtype=F64)
    torch.manual_seed(5)
    noise = [draws(1, BATCH) for _ in range(STEPS)]
    wanted = oracle(layer.cell_list[0], x, (torch.cat([n for n, _ in noise]), torch.cat([u for _, u in noise])))
    torch.manual_seed(5)
    state = None
    with torch.no_grad():
        for x_t, y_t in zip(x, wanted, strict=True):
            y, state = layer.step(x_t, state)
            assert_close(y, y_t.detach())


def test_checkpoints_recompute_with_the_same_draws(engine: str):
    layer, x = made(checkpoint=True), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    compare(layer, x, lambda: layer(x)[0], lambda: oracle(layer.cell_list[0], x, draws(STEPS, BATCH)))


def test_second_derivatives(engine: str):
    layer, x = made(), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    cell, found = layer.cell_list[0], []
    for run in (lambda: layer(x)[0], lambda: oracle(cell, x, draws(STEPS, BATCH))):
        torch.manual_seed(3)
        wanted = [x, *layer.parameters()]
        first = torch.autograd.grad(run().square().sum(), wanted, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-10)  # sums of products of gradients, of size 1e3


def test_modifiers_beside_noise(engine: str):
    modifiers = [rc.Zoneout(0.3), rc.VariationalDropout(0.4)]
    layer, x = made(modifiers=modifiers), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    assert {"n", "u", "zoneout_h", "dropout_h"} < set(layer.cell_list[0].masks)

    def plain() -> Tensor:
        with set_backend("reference"):
            return layer(x)[0]

    compare(layer, x, lambda: layer(x)[0], plain)
    layer = made(modifiers=modifiers[1]).eval()  # a mask of ones; zoneout is the mean of both states there
    compare(layer, x, lambda: layer(x)[0], lambda: oracle(layer.cell_list[0], x, draws(STEPS, BATCH)))


def test_half_precision_stays_close(engine: str):
    layer, x = made().bfloat16(), torch.randn(STEPS, BATCH, 4).bfloat16()
    torch.manual_seed(9)
    y = layer(x)[0]
    torch.manual_seed(9)
    n = torch.randn(STEPS, BATCH, UNITS, dtype=torch.bfloat16).double()
    u = torch.rand(STEPS, BATCH, 3, dtype=torch.bfloat16).double()
    wanted = oracle(layer.double().cell_list[0], x.double(), (n, u))
    assert (y.double() - wanted).abs().max() < 0.05  # 8 bits, a few steps


# ---------------------------------------------------------------------------------------------------- what is drawn


class Draws(rc.Cell):
    """Puts the noise out."""

    def __init__(self, input_size: int, hidden_size: int, distribution: str = "uniform"):
        super().__init__(input_size, hidden_size)
        self.w = self.vector()
        self.noise("u", "h", distribution)

    def step(self, x: Tensor, h: Tensor, *, u: Tensor) -> Tensor:
        return u + self.w * h


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("distribution", "mean", "variance"), [("normal", 0.0, 1.0), ("uniform", 0.5, 1 / 12)])
def test_both_modes_draw_the_distribution(distribution: str, mean: float, variance: float, training: bool):
    layer = rc.Recurrent(Draws, 2, 50, distribution=distribution).train(training)
    y = layer(torch.zeros(40, 50, 2))[0].detach()
    error = (variance / y.numel()) ** 0.5
    assert abs(float(y.mean()) - mean) < 5 * error
    assert abs(float(y.var()) / variance - 1) < 5 * (2 / y.numel()) ** 0.5
    assert torch.unique(y).numel() > 0.9 * y.numel()  # every step, row and unit has its own
    if distribution == "uniform":
        assert y.min() >= 0
        assert y.max() < 1


def test_pieces_on_the_cpu_draw_the_uniform_numbers_of_the_whole():
    layer, x = rc.Recurrent(Draws, 2, 5), torch.zeros(STEPS, BATCH, 2)
    torch.manual_seed(1)
    whole = layer(x)[0]
    torch.manual_seed(1)
    assert torch.equal(torch.cat([layer(x[:3])[0], layer(x[3:])[0]]), whole)
    torch.manual_seed(1)
    assert torch.equal(torch.stack([layer.step(x_t)[0] for x_t in x]), whole)


def test_explain_leaves_the_generator_alone():
    layer, x = rc.Recurrent(Draws, 2, 5), torch.zeros(STEPS, BATCH, 2)
    before = torch.get_rng_state()
    rc.explain(layer, x)
    assert torch.equal(torch.get_rng_state(), before)


def test_noise_in_training_only():
    class TrainingOnly(Draws):
        def step(self, x: Tensor, h: Tensor, *, u: Tensor) -> Tensor:
            return float(self.training) * u + self.w * h

    layer, x = rc.Recurrent(TrainingOnly, 2, 5), torch.zeros(STEPS, BATCH, 2)
    with set_backend("auto"):
        assert layer(x)[0].any()
        assert not layer.eval()(x)[0].any()
        assert layer.train()(x)[0].any()


# ---------------------------------------------------------------------------------------------------- around torch


def test_functional_call_and_vmap():
    layer, x = made(), torch.randn(STEPS, BATCH, 4, dtype=F64)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, parameters, (x,))[0].square().sum()

    torch.manual_seed(2)
    found = grad(loss)(parameters, x)
    torch.manual_seed(2)
    wanted = torch.autograd.grad(oracle(layer.cell_list[0], x, draws(STEPS, BATCH)).square().sum(), layer.parameters())
    for one, other in zip(found.values(), wanted, strict=True):
        assert_close(one, other)
    torch.manual_seed(2)
    same = vmap(lambda x: layer(x[:, None])[0], in_dims=1, randomness="same")(x.detach())  # one draw for all rows
    torch.manual_seed(2)
    noise = tuple(n.expand(-1, BATCH, -1) for n in draws(STEPS, 1))
    assert_close(same[:, :, 0].transpose(0, 1), oracle(layer.cell_list[0], x, noise))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_draws_what_an_eager_call_draws(backend: str):
    torch.compiler.reset()
    layer, x = made(), torch.randn(STEPS, BATCH, 4, dtype=F64, requires_grad=True)
    compiled = torch.compile(lambda x: layer(x)[0], backend=backend, fullgraph=True)
    with set_backend("auto"):
        compare(layer, x, lambda: compiled(x), lambda: oracle(layer.cell_list[0], x, draws(STEPS, BATCH)))


# ---------------------------------------------------------------------------------------------------- other rooms


def test_the_dynamics_hold_the_noise_at_its_mean():
    layer = made()
    cell, h, x = layer.cell_list[0], torch.randn(UNITS, dtype=F64), torch.randn(4, dtype=F64)
    system = rc.DynamicalSystem.of(layer)
    n, u = torch.zeros(UNITS, dtype=F64), torch.full((3,), 0.5, dtype=F64)
    assert_close(system.step(h, x), one_step(weights(cell), x, h, n, u))
    data = torch.randn(6, 2, 4, dtype=F64)
    found = [rc.inspect.jacobian_spectrum(layer, data).cells[0].norm for _ in range(2)]
    assert torch.equal(*found)
    h = torch.zeros(UNITS, dtype=F64)
    for x_t in data[:-1, 0]:
        h = one_step(weights(cell), x_t, h, n, u)
    last = torch.autograd.functional.jacobian(lambda h: one_step(weights(cell), data[-1, 0], h, n, u), h)
    assert_close(found[0][-1], torch.linalg.matrix_norm(last, 2))


def test_online_learners_refuse_noise():
    layer = made()
    learner = rc.train.RTRL(rc.train.Predictor(layer, 2).double(), "mse")
    with pytest.raises(OptionError, match=r"a cell with noise \(n, u\)"):
        learner.gradients(torch.randn(STEPS, BATCH, 4, dtype=F64), torch.randn(STEPS, BATCH, 2, dtype=F64))


def test_equations_and_diagrams_name_the_noise():
    assert r"n_{t} &= \mathrm{normal}\left(0, 1\right)" in Noisy.equations()
    assert r"u_{t} &= \mathrm{uniform}\left(0, 1\right)" in Noisy.equations()
    assert "normal" in cell_mathml(Noisy(3, 4))
    assert "given" not in rc.diagram(Noisy(3, 4)).svg  # the name of a placeholder


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda cell: cell.noise("h", 3), "noise: got h, expected a name not used before"),
        (lambda cell: cell.noise("n", 3), "noise: got n, expected a name not used before"),
        (lambda cell: cell.noise("v", 3, "gumbel"), "distribution: got 'gumbel', expected 'normal' or 'uniform'"),
        (lambda cell: cell.noise("v", 2.5), "size: got 2.5, expected a whole number of at least 1"),
        (lambda cell: cell.noise("v", 0), "size: got 0, expected a whole number of at least 1"),
    ],
)
def test_bad_declarations(declare: Callable[[rc.Cell], None], message: str):
    with pytest.raises(InputError, match=message):
        declare(Noisy(4, 5))


def test_step_and_declarations_must_agree():
    class Undeclared(rc.Cell):
        def step(self, x: Tensor, h: Tensor, *, u: Tensor) -> Tensor:
            return h + u

    class Unread(Draws):
        def __init__(self, input_size: int, hidden_size: int):
            super().__init__(input_size, hidden_size)
            self.noise("v", 3)

    with pytest.raises(OptionError, match=r"Undeclared.step: got the keyword-only argument u, expected t, or a name"):
        rc.Recurrent(Undeclared, 3, 4)
    with pytest.raises(OptionError, match=r"noise: got 'v', expected a keyword-only argument of Unread.step"):
        rc.Recurrent(Unread, 3, 4)
