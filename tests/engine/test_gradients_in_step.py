"""What a step says about its own gradients holds on every engine: against a loop over the step in plain torch."""

import itertools
import re
import warnings
from collections.abc import Callable

import pytest
import torch
from engine.strange_cells import LeakySpiking, SurrogateSpike
from torch import Tensor, nn, sigmoid, tanh
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import recurra as rc
from recurra.engine import backend
from recurra.engine.dispatch import Sequences, choose
from recurra.engine.trace import output_and_states
from recurra.engine.traced_step import bind_step
from recurra.errors import TraceError

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 2, 4


class Plain(rc.Cell):
    """An affine to be used in a step."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")


# ---------------------------------------------------------------------------------------------------- compiled


class Sign(Function):
    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        return torch.sign(z)

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return g


class Hard(Function):
    """Straight-through inside [-1, 1], from a value computed in forward."""

    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        ctx.inside = z.abs() < 1
        return (z >= 0).to(z.dtype)

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return torch.where(ctx.inside, g, torch.zeros_like(g))


class Steep(Function):
    """Saves its output, takes a number."""

    @staticmethod
    def forward(ctx, z, slope):  # pyrefly: ignore
        y = torch.sigmoid(slope * z)
        ctx.save_for_backward(y)
        ctx.slope = slope
        return y

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        (y,) = ctx.saved_tensors
        return g * y * ctx.slope, None


class Reverse(Function):
    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        return z.view_as(z)

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return -0.3 * g


class Gated(Function):
    """Two arguments, one computed from the other, each with its own slope."""

    @staticmethod
    def forward(ctx, a, b):  # pyrefly: ignore
        ctx.save_for_backward(a, b)
        return torch.sign(a) * b

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        a, b = ctx.saved_tensors
        return (g * b).masked_fill(a > 1, 0.0), -g / (1 + a * a)


class StraightThrough(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.5 * h + Sign.apply(self.a(x, h))


class HardGate(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        return tanh(z) * Hard.apply(z - 0.1) + 0.3 * h


class SavesOutput(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return Steep.apply(self.a(x, h), 3.0) - 0.5 * h


class Reverses(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(Reverse.apply(self.a(x, h)))


class TwoArguments(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        return tanh(Gated.apply(z, tanh(z) + h))


class BinaryWeights(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(nn.functional.linear(h, Sign.apply(self.a.W)) * 0.3 + x @ self.a.U.T)


class NoGradGate(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        with torch.no_grad():
            gate = sigmoid(self.a(x, h)) * 2
        return gate * tanh(self.a(x, h)) + 0.1 * gate


class SetGradEnabled(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        with torch.set_grad_enabled(False):
            gate = sigmoid(z)
        return tanh(z) * gate


class InferenceMode(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        with torch.inference_mode():
            shift = sigmoid(z)
        return tanh(z) + shift


class Detach(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        return tanh(z) * z.detach() + 0.2 * h.data


class DetachInPlace(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        other = z * 0.5
        other.detach_()
        return tanh(z + other)


class DetachedSlices(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        both = torch.zeros(x.shape[0], self.hidden_size, dtype=x.dtype)
        both[:, :2] = z[:, :2].detach()
        both[:, 2:] = z[:, 2:]
        return tanh(both + 0.1 * z)


# ---------------------------------------------------------------------------------------------------- plain loop


class Clamped(Function):
    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        return z.clone()

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return g.clamp(-0.05, 0.05)


class Pair(Function):
    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        return torch.sign(z), 2 * z

    @staticmethod
    def backward(ctx, g, k):  # pyrefly: ignore
        return g + 3 * k


class Once(Function):
    @staticmethod
    def forward(ctx, z):  # pyrefly: ignore
        return torch.sign(z)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):  # pyrefly: ignore
        return 2 * g


class ClampsGradient(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return tanh(Clamped.apply(self.a(x, h)))


class TwoOutputs(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        one, two = Pair.apply(self.a(x, h))
        return tanh(one + 0.3 * two)


class OnceDifferentiable(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.5 * h + Once.apply(self.a(x, h))


class Hook(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        if torch.is_tensor(z):
            z.register_hook(lambda g: g.clamp(-0.01, 0.01))
        return tanh(z)


class OwnGradient(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        (slope,) = torch.autograd.grad((tanh(z) ** 2).sum(), z, create_graph=True)
        return tanh(z) - 0.1 * slope


class LeafGradient(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        with torch.enable_grad():
            leaf = z.detach().requires_grad_()
            (slope,) = torch.autograd.grad((tanh(leaf) ** 2).sum(), leaf)
        return tanh(z) - 0.1 * slope


class FunctionalGradient(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        return tanh(z) - 0.1 * torch.func.grad(lambda v: (tanh(v) ** 2).sum())(z)


class WritesToData(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h) * 1.0
        z.data.clamp_(-0.1, 0.1)
        return z * h + z


class WritesWithoutGrad(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h) * 1.0
        with torch.no_grad():
            z.clamp_(-0.1, 0.1)
        return z + 0.1 * tanh(h)


COMPILED = [
    StraightThrough, HardGate, SavesOutput, Reverses, TwoArguments, BinaryWeights, NoGradGate, SetGradEnabled,
    InferenceMode, Detach, DetachInPlace, DetachedSlices, OnceDifferentiable, LeakySpiking,
]  # fmt: skip
TRACED = [ClampsGradient, TwoOutputs]  # graphs exist, for modifiers and traces; the compiled engine does not take them
REFUSED = [Hook, OwnGradient, LeafGradient, FunctionalGradient, WritesToData, WritesWithoutGrad]
OPERATION = {
    ClampsGradient: "Clamped", TwoOutputs: "Pair", Hook: "register_hook",
    OwnGradient: "torch.autograd.grad", LeafGradient: "requires_grad_", FunctionalGradient: "torch.func.grad",
    WritesToData: "writes into", WritesWithoutGrad: "writes into",
}  # fmt: skip


@pytest.fixture(autouse=True)
def every_warning_is_new():
    backend._warned.clear()


def problem(kind: type[rc.Cell], **options) -> tuple[rc.Recurrent, Tensor]:
    layer = rc.Recurrent(kind, INPUT, HIDDEN, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.7)
    return layer, torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64, requires_grad=True)


def by_hand(layer: rc.Recurrent, x: Tensor, mix: Callable = lambda old, new: new) -> Tensor:
    """The outputs of a loop over the cell's own `step`; `mix` makes a state from the old and the new one."""
    cell, outputs = layer.cells[0], []
    states = [torch.zeros(BATCH, state.size, dtype=x.dtype) for state in cell.carried]
    for x_t in x:
        _, *new = output_and_states(cell, cell.step(x_t, *states))
        states = [mix(a, b) for a, b in zip(states, new, strict=True)]
        outputs.append(states[0])
    return torch.stack(outputs)


def gradients(y: Tensor, layer: rc.Recurrent, x: Tensor, **options) -> list[Tensor]:
    weights = torch.linspace(-2, 3, y.numel(), dtype=y.dtype).view_as(y).sin()
    wanted = [x, *layer.parameters()]
    return list(torch.autograd.grad((y * weights).sum(), wanted, retain_graph=True, materialize_grads=True, **options))


def assert_equal(y: Tensor, expected: Tensor, layer: rc.Recurrent, x: Tensor) -> None:
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-13)
    for ours, theirs in zip(gradients(y, layer, x), gradients(expected, layer, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def chosen(layer: rc.Recurrent, x: Tensor) -> str:
    cell = layer.cells[0]
    return choose(cell, Sequences(x, cell.initial_state(BATCH, x))).backend


@pytest.mark.parametrize("kind", COMPILED)
def test_a_step_with_its_own_gradients_compiles(kind: type[rc.Cell]):
    layer, x = problem(kind)
    assert chosen(layer, x) == "compiled"
    assert_equal(layer(x)[0], by_hand(layer, x), layer, x)


@pytest.mark.parametrize("kind", [*TRACED, *REFUSED])
def test_what_does_not_compile_runs_in_the_plain_loop_and_says_where(kind: type[rc.Cell]):
    layer, x = problem(kind)
    said = rf"{kind.__name__} runs on the reference engine.*{re.escape(OPERATION[kind])}.*{re.escape(__file__)}:\d+"
    with pytest.warns(rc.EngineWarning, match=said) as warned:
        y, _ = (layer(x)[0], layer(x))
    assert len(warned) == 1
    assert_equal(y, by_hand(layer, x), layer, x)
    assert f"{__file__}:" in rc.explain(layer, x)


@pytest.mark.parametrize("kind", [*COMPILED, *TRACED, *REFUSED])
def test_the_reference_engine_has_the_same_gradients(kind: type[rc.Cell]):
    layer, x = problem(kind)
    with rc.set_backend("reference"):
        assert_equal(layer(x)[0], by_hand(layer, x), layer, x)


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("kind", [*COMPILED, *TRACED])
@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
def test_a_trace_has_the_same_gradients(kind: type[rc.Cell], engine: str):
    layer, x = problem(kind)
    with rc.set_backend(engine):
        y, _, trace = layer(x, return_trace=True)
    assert_equal(y, by_hand(layer, x), layer, x)
    assert_equal(trace[layer.cells[0].states[0]], by_hand(layer, x), layer, x)


@pytest.mark.parametrize("engine", ["auto", "reference"])
@pytest.mark.parametrize("kind", [*COMPILED, *TRACED])
@pytest.mark.filterwarnings("ignore::recurra.EngineWarning")
def test_a_modifier_keeps_the_gradients(kind: type[rc.Cell], engine: str):
    layer, x = problem(kind, modifiers=rc.Zoneout(0.3))
    layer.eval()
    with rc.set_backend(engine):
        y = layer(x)[0]
    assert_equal(y, by_hand(layer, x, lambda old, new: old + 0.7 * (new - old)), layer, x)


@pytest.mark.parametrize("kind", REFUSED)
def test_a_modifier_refuses_a_step_that_has_no_graph(kind: type[rc.Cell]):
    with pytest.raises(TraceError, match=re.escape(OPERATION[kind])):
        problem(kind, modifiers=rc.Zoneout(0.3))


@pytest.mark.parametrize("kind", [SavesOutput, TwoArguments, LeakySpiking, HardGate, Detach])
def test_second_derivatives_follow_backward(kind: type[rc.Cell]):
    layer, x = problem(kind)
    found = []
    for y in (layer(x)[0], by_hand(layer, x)):
        first = gradients(y, layer, x, create_graph=True)
        total = sum((g * g).sum() for g in first if g.requires_grad)
        found.append(torch.autograd.grad(total, [x, *layer.parameters()], materialize_grads=True))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_jacobians_of_the_traced_step_follow_backward():
    layer, x = problem(LeakySpiking)
    cell, step = layer.cells[0], bind_step(layer.cells[0])
    given, s, v = x[0].detach(), *(torch.randn(BATCH, HIDDEN, dtype=torch.float64) for _ in range(2))

    def spikes(v: Tensor, s: Tensor, given: Tensor) -> Tensor:
        return step(given[None], (s[None], v[None]), {})[0][0][0]

    found = torch.func.vmap(torch.func.jacrev(spikes))(v, s, given)
    for row in range(BATCH):
        one = [given[row : row + 1], s[row : row + 1]]
        wanted = torch.autograd.functional.jacobian(lambda u, one=one: cell.step(*one, u[None])[0][0], v[row])
        torch.testing.assert_close(found[row], wanted)


def test_the_gradient_of_a_spike_is_its_surrogate():
    v = torch.linspace(-1, 1, 9, dtype=torch.float64, requires_grad=True)
    SurrogateSpike.apply(v).sum().backward()
    torch.testing.assert_close(v.grad, 1 / (1 + 5 * v.detach().abs()) ** 2)


def test_equations_name_the_function():
    assert r"s_{t} &= \mathrm{SurrogateSpike}\left(v_{t} - 0.3\right)" in LeakySpiking.equations()


def test_no_warning_comes_for_what_compiles():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, _ in itertools.product([StraightThrough, NoGradGate], range(2)):
            layer, x = problem(kind)
            layer(x)


class ReadsAnAverage(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        with torch.inference_mode():  # torch hands `item` to a mode as it is, not as what it is made of
            scale = sigmoid(h).mean().item()
        return tanh(self.a(x, h)) * scale


def test_a_trace_of_what_no_graph_holds_is_refused():
    layer = rc.Recurrent(ReadsAnAverage, INPUT, HIDDEN)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(TraceError, match=r"value of a tensor .*py:"):
            layer(torch.randn(STEPS, BATCH, INPUT), return_trace=True)


# ---------------------------------------------------------------------------------------------------- in place


class IntoEmpty(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        out = torch.empty_like(h)
        out[:, ::2] = tanh(self.a(x, h))[:, ::2]
        out[:, 1::2] = 0.5 * h[:, 1::2]
        return out


class IntoNoGradient(Plain):
    """What no_grad computed gets a gradient by what is written into it."""

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        with torch.no_grad():
            out = 0.5 * h
        out[:, :2] = tanh(self.a(x, h))[:, :2]
        return out + 0.1 * h


class IntoRows(Plain):
    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z = self.a(x, h)
        z += h
        z[:, :2] = 0.0
        return tanh(z)


@pytest.mark.parametrize("kind", [IntoEmpty, IntoNoGradient, IntoRows])
def test_what_is_written_into_a_value_has_its_gradient(kind: type[rc.Cell]):
    torch.manual_seed(0)
    layer = rc.Recurrent(kind, INPUT, HIDDEN, dtype=torch.float64)
    x = torch.randn(STEPS, BATCH, INPUT, dtype=torch.float64, requires_grad=True)

    def derivatives(y: Tensor) -> list[Tensor]:
        leaves = [x, *layer.parameters()]
        first = torch.autograd.grad((y**2).sum(), leaves, create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), leaves)  # pyrefly: ignore
        return [y, *first, *second]

    h, rows = x.new_zeros(BATCH, HIDDEN), []
    for x_t in x.unbind(0):
        h = layer.cells[0].step(x_t, h)
        rows.append(h)
    expected = derivatives(torch.stack(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.EngineWarning)
        torch.testing.assert_close(derivatives(layer(x)[0]), expected)
        with rc.set_backend("reference"):
            torch.testing.assert_close(derivatives(layer(x)[0]), expected)
        if kind is not IntoNoGradient:
            torch.testing.assert_close(derivatives(layer(x, return_trace=True)[0]), expected)
