"""Dropout inside a step: masks of every step, drawn before the call, the same on every engine, with exact gradients."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close
from torch import Tensor, nn
from torch.nn.functional import dropout as drop_some

import recurra as rc
from recurra.errors import OptionError

T, B, D, H = 9, 4, 3, 6


def kept(size: int, rate: float) -> Tensor:
    """What torch draws for all steps: 1 with probability 1 - rate."""
    return torch.full((T, B, size), 1 - rate, dtype=torch.float64).bernoulli()


class Dropping(rc.Cell):
    """A leaky unit whose increment goes through dropout in a way that subclasses say."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.drop = self.affine("x", "h"), nn.Dropout(0.4)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.5 * h + self.dropped(torch.tanh(self.a(x, h)))

    def dropped(self, z: Tensor) -> Tensor:
        return self.drop(z)


class Twice(Dropping):
    def dropped(self, z):
        return F.dropout(self.drop(z), 0.2, self.training)


class InPlace(Dropping):
    def dropped(self, z):
        z = z + 1
        F.dropout(z, 0.3, self.training, inplace=True)
        return z


class EvenInEvaluation(Dropping):
    def dropped(self, z):
        return drop_some(z, 0.25)


class All(Dropping):
    def dropped(self, z):
        return F.dropout(z, 1.0, self.training)


class Alpha(Dropping):
    def dropped(self, z):
        return F.alpha_dropout(z, 0.3, self.training)


class Heads(Dropping):
    def dropped(self, z):
        return F.dropout(z.view(-1, 2, 3), 0.3, self.training).sum(1).repeat(1, 2)


class Channels(Dropping):
    def dropped(self, z):
        return F.dropout1d(z.view(-1, 2, 3), 0.3, self.training).flatten(1)


class OfTorch(Dropping):
    def dropped(self, z):
        return torch.dropout(z, 0.3, train=self.training)


def alpha_dropped(z: Tensor, keep: Tensor) -> Tensor:
    """Klambauer et al. 2017, section 2: dropped units are at -λα; then an affine map restores mean and variance."""
    low, rate = -1.0507009873554805 * 1.6732632423543772, 0.3
    a = ((1 - rate) + low**2 * rate * (1 - rate)) ** -0.5
    return a * (z * keep + low * (1 - keep)) - a * rate * low


#: what is drawn for all steps, in order, and what a step does with its part of it
Oracle = tuple[Callable[[], list[Tensor]], Callable[..., Tensor]]
ORACLES: dict[type[Dropping], Oracle] = {
    Dropping: (lambda: [kept(H, 0.4)], lambda z, m: z * m / 0.6),
    Twice: (lambda: [kept(H, 0.4), kept(H, 0.2)], lambda z, m, n: z * m / 0.6 * n / 0.8),
    InPlace: (lambda: [kept(H, 0.3)], lambda z, m: (z + 1) * m / 0.7),
    EvenInEvaluation: (lambda: [kept(H, 0.25)], lambda z, m: z * m / 0.75),
    All: (lambda: [torch.zeros(T, B, H)], lambda z, m: z * 0),
    Alpha: (lambda: [kept(H, 0.3)], alpha_dropped),
    Heads: (lambda: [kept(H, 0.3)], lambda z, m: (z * m / 0.7).view(B, 2, 3).sum(1).repeat(1, 2)),
    Channels: (lambda: [kept(2, 0.3)], lambda z, m: z * m.repeat_interleave(3, 1) / 0.7),
    OfTorch: (lambda: [kept(H, 0.3)], lambda z, m: z * m / 0.7),
}


def by_hand(cell: Dropping, x: Tensor) -> Tensor:
    draw, apply = ORACLES[type(cell)]
    masks, h, outputs = draw(), x.new_zeros(B, H), []
    for t in range(T):
        z = torch.tanh(h @ cell.a.W.mT + x[t] @ cell.a.U.mT + cell.a.b)
        h = 0.5 * h + apply(z, *(mask[t] for mask in masks))
        outputs.append(h)
    return torch.stack(outputs)


def with_gradients(run: Callable[[Tensor], Tensor], layer: rc.Recurrent, x: Tensor) -> list[Tensor]:
    torch.manual_seed(5)
    leaf = x.clone().requires_grad_()
    y = run(leaf)
    weight = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
    return [y.detach(), *torch.autograd.grad((weight * y).sum(), [leaf, *layer.parameters()], materialize_grads=True)]


def made(cell: type[rc.Cell], **options) -> tuple[rc.Recurrent, Tensor]:
    torch.manual_seed(1)
    return rc.Recurrent(cell, D, H, dtype=torch.float64, **options), torch.randn(T, B, D, dtype=torch.float64)


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("kind", ORACLES)
def test_values_and_gradients_are_those_of_masks_drawn_ahead(kind, engine):
    layer, x = made(kind)
    expected = with_gradients(lambda v: by_hand(layer.cell_list[0], v), layer, x)
    with rc.set_backend(engine), warnings.catch_warnings():
        warnings.simplefilter("error", rc.EngineWarning)
        found = with_gradients(lambda v: layer(v)[0], layer, x)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, 1e-12)
    if engine == "auto":
        assert "backend: compiled" in rc.explain(layer, x)


@pytest.mark.parametrize("kind", ORACLES)
def test_in_evaluation_dropout_is_the_identity(kind):
    layer, x = made(kind)
    layer.eval()
    is_random = kind is EvenInEvaluation
    with torch.no_grad():
        assert torch.equal(layer(x)[0], layer(x)[0]) is not is_random
        layer.train()
        assert torch.equal(layer(x)[0], layer(x)[0]) is (kind is All)
        layer.eval()
        assert torch.equal(layer(x)[0], layer(x)[0]) is not is_random


def test_the_rate_may_change_between_calls():
    layer, x = made(Dropping)
    for rate in (0.4, 0.0, 0.9, 1.0):
        layer.cell_list[0].drop.p = rate
        torch.manual_seed(5)
        y = layer(x)[0]
        torch.manual_seed(5)
        mask = torch.full((T, B, H), 1 - rate, dtype=torch.float64).bernoulli() / max(1 - rate, 1e-9)
        zero = layer.cell_list[0].a(x[0], x.new_zeros(B, H)).tanh() * mask[0]
        assert_close(y[0], zero)


OPTIONS = {
    "stacked": {"num_layers": 2, "dropout": 0.1},
    "both directions": {"bidirectional": True},
    "checkpoint": {"checkpoint": True},
    "modified": {"modifiers": rc.Zoneout(0.2)},
}
CALLS = {"ragged": {"lengths": torch.tensor([9, 1, 4, 7])}, "resets": {"resets": torch.rand(T, B) < 0.3}}


@pytest.mark.parametrize("kind", [*OPTIONS, *CALLS])
def test_every_way_to_run_a_layer_agrees_with_the_plain_loop(kind):
    layer, x = made(Twice, **OPTIONS.get(kind, {}))
    given = CALLS.get(kind, {})
    found = with_gradients(lambda v: layer(v, **given)[0], layer, x)
    with rc.set_backend("reference"):
        expected = with_gradients(lambda v: layer(v, **given)[0], layer, x)
    for ours, theirs in zip(found, expected, strict=True):
        assert_close(ours, theirs, 1e-11)


def test_traces_and_single_steps():
    layer, x = made(Twice)
    torch.manual_seed(5)
    y, _, trace = layer(x, return_trace=True)
    torch.manual_seed(5)
    assert_close(y, layer(x)[0])
    assert_close(trace["h"], y)
    one = y.new_zeros(1, B, H)
    torch.manual_seed(5)
    found = layer.step(x[0], one)[0]
    with rc.set_backend("reference"):
        torch.manual_seed(5)
        assert_close(found, layer.step(x[0], one)[0])


def test_under_torch_compile():
    """Eager draws the same numbers there; and a mode is part of the guards."""
    layer, x = made(Dropping)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.manual_seed(5)
    y = compiled(x)[0]
    torch.manual_seed(5)
    assert_close(y, layer(x)[0])
    layer.eval()
    assert torch.equal(compiled(x)[0], compiled(x)[0])


class OfAWeight(Dropping):
    def step(self, x, h):
        return torch.tanh(F.linear(h, F.dropout(self.a.W, 0.5, self.training)) + x @ self.a.U.mT)


@pytest.mark.filterwarnings("ignore::recurra.engine.backend.EngineWarning")
@pytest.mark.parametrize("options", [{}, {"checkpoint": True}])
def test_what_has_no_mask_is_drawn_by_torch_on_the_plain_loop(options):
    layer, x = made(OfAWeight, **options)
    x.requires_grad_()
    torch.manual_seed(5)
    y = layer(x)[0]
    assert "draws random numbers" in rc.explain(layer, x)
    cell, (found,) = layer.cell_list[0], torch.autograd.grad(y.sum(), [x])
    torch.manual_seed(5)
    h, outputs = x.new_zeros(B, H), []
    for x_t in x:
        h = cell.step(x_t, h)
        outputs.append(h)
    assert_close(y, torch.stack(outputs))
    assert_close(found, torch.autograd.grad(torch.stack(outputs).sum(), [x])[0])


def test_learners_that_compute_a_step_twice_refuse_it():
    layer, _ = made(Dropping)
    with pytest.raises(OptionError, match="dropout"):
        rc.train.RTRL(layer)
    rc.train.RTRL(layer.eval())


def test_equations_name_the_mask():
    assert r"\odot \mathrm{dropout}_{2,t}" in Twice.equations()
    assert math.isclose(float(kept(100, 0.3).mean()), 0.7, abs_tol=0.1)
