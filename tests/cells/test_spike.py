"""`spike`: exact zeros and ones forward, the papers' surrogates backward, on every engine and under every transform."""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import assert_close
from interop.runtime import flat, near, run
from torch import Tensor
from torch.func import grad, hessian, jvp, vmap

import recurra as rc
from recurra.cells import spike
from recurra.engine.backend import set_backend
from recurra.engine.cpu import compiler
from recurra.errors import InputError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore:recurra found no C:recurra.engine.backend.EngineWarning")

F64 = torch.float64
SURROGATES = {  # name → its derivative at v for a slope, from the papers
    "fast_sigmoid": lambda v, k: 1 / (1 + k * np.abs(v)) ** 2,  # Zenke & Ganguli 2018
    "atan": lambda v, k: (k / 2) / (1 + (math.pi / 2 * k * v) ** 2),  # Fang et al. 2021
    "arctan": lambda v, k: (k / 2) / (1 + (math.pi / 2 * k * v) ** 2),
    "triangle": lambda v, k: np.maximum(0.0, 1 - k * np.abs(v)),  # Bellec et al. 2018
}
DEFAULT_SLOPES = {"fast_sigmoid": 25.0, "atan": 2.0, "arctan": 2.0, "triangle": 1.0}


# ---------------------------------------------------------------------------------------------------- the function


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_values_are_exactly_zero_and_one(dtype: torch.dtype):
    v = torch.tensor([-math.inf, -1.0, -1e-7, -0.0, 0.0, 1e-7, 1.0, math.inf, math.nan], dtype=dtype)
    s = spike(v)
    assert s.dtype is dtype
    assert s.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("slope", [None, 0.5, 10])
@pytest.mark.parametrize("name", SURROGATES)
def test_the_derivative_is_the_papers(name: str, slope: float | None):
    v = torch.tensor([-1e30, -2.0, -1.0, -0.3, -0.0, 0.0, 1e-9, 0.1, 1.0, 3.0, 1e30], dtype=F64, requires_grad=True)
    g = torch.linspace(-1, 2, len(v), dtype=F64)
    (found,) = torch.autograd.grad(spike(v, name, slope, scale=0.3), v, g)
    wanted = 0.3 * g.numpy() * SURROGATES[name](v.detach().numpy(), slope or DEFAULT_SLOPES[name])
    assert_close(found, torch.from_numpy(wanted))


@pytest.mark.parametrize("name", SURROGATES)
def test_the_derivative_is_differentiable(name: str):
    v = torch.tensor([-1.3, -0.6, -0.02, 0.04, 0.7, 2.0], dtype=F64, requires_grad=True)  # not at a kink
    torch.autograd.gradcheck(
        lambda v: torch.autograd.grad(spike(v, name).sum(), v, create_graph=True)[0], v, eps=1e-7, atol=1e-5
    )


@pytest.mark.parametrize("name", SURROGATES)
def test_transforms(name: str):
    v, tangent = torch.randn(3, 4, dtype=F64), torch.randn(3, 4, dtype=F64)
    derivative = torch.from_numpy(SURROGATES[name](v.numpy(), DEFAULT_SLOPES[name]))
    value, moved, *_ = jvp(lambda v: spike(v, name), (v,), (tangent,))
    assert_close(value, (v > 0).double())
    assert_close(moved, derivative * tangent)
    assert_close(vmap(lambda v: spike(v, name))(v), (v > 0).double())
    assert_close(vmap(grad(lambda v: (spike(v, name) * v).sum()))(v), derivative * v + (v > 0).double())
    with torch.autograd.forward_ad.dual_level():
        dual = spike(torch.autograd.forward_ad.make_dual(v, tangent), name)
        assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, derivative * tangent)
    second = hessian(lambda v: spike(v, name, 0.5).sum())(v[0])  # forward over reverse
    (first,) = torch.autograd.grad(spike(w := v[0].clone().requires_grad_(), name, 0.5).sum(), w, create_graph=True)
    assert_close(second.diagonal(), torch.autograd.grad(first.sum(), w)[0])


@pytest.mark.parametrize("name", SURROGATES)
def test_the_operation_follows_torchs_rules(name: str):
    name = "atan" if name == "arctan" else name
    torch.library.opcheck(torch.ops.recurra.spike, (torch.randn(3, 4, requires_grad=True), name, 2.0, 1.0))


def test_compiled_by_torch():
    torch.compiler.reset()
    v = torch.randn(3, 4, dtype=F64, requires_grad=True)
    compiled = torch.compile(lambda v: spike(2 * v, "atan"), backend="aot_eager", fullgraph=True)
    g = torch.randn(3, 4, dtype=F64)
    assert torch.equal(compiled(v), spike(2 * v, "atan"))
    assert_close(torch.autograd.grad(compiled(v), v, g)[0], torch.autograd.grad(spike(2 * v, "atan"), v, g)[0])


def test_bad_arguments():
    v = torch.zeros(2)
    with pytest.raises(
        UnknownNameError, match=r"surrogate: got 'tringle', expected one of .*; did you mean 'triangle'"
    ):
        spike(v, "tringle")
    for argument in ({"slope": 0.0}, {"slope": -1}, {"slope": math.nan}, {"slope": True}, {"scale": math.inf}):
        (name,) = argument
        with pytest.raises(InputError, match=f"{name}: got .*, expected a positive number"):
            spike(v, **argument)


# ---------------------------------------------------------------------------------------------------- in a step


class LIF(rc.Cell):
    """Leaky integrate-and-fire neurons with recurrent synapses, reset by subtraction."""

    states = ("s", "v")

    def __init__(self, input_size: int, hidden_size: int, surrogate: str = "fast_sigmoid", slope: float | None = None):
        super().__init__(input_size, hidden_size)
        self.a, self.surrogate, self.slope = self.affine("x", "s"), surrogate, slope

    def step(self, x: Tensor, s: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.9 * v + self.a(x, s) - s
        s = spike(v - 1.0, self.surrogate, self.slope)
        return s, v


class HandWritten(torch.autograd.Function):
    """A spike as snntorch and others write it."""

    @staticmethod
    def forward(ctx, v, derivative):  # pyrefly: ignore
        ctx.save_for_backward(v)
        ctx.derivative = derivative
        return (v > 0).double()

    @staticmethod
    def backward(ctx, g):  # pyrefly: ignore
        return g * torch.from_numpy(ctx.derivative(ctx.saved_tensors[0].numpy())), None


@pytest.fixture(params=["reference", "compiled", "replayed"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "replayed":
        monkeypatch.setattr(compiler, "find_compiler", lambda: None)
    with set_backend("reference" if request.param == "reference" else "auto"):
        yield request.param


def spiking(layer: rc.Recurrent) -> rc.Recurrent:
    """With weights that make about a third of the neurons fire."""
    torch.nn.init.normal_(layer.cell_list[0].a.U, std=1.0)
    return layer


def plain_loop(layer: rc.Recurrent, x: Tensor, lengths: list[int], derivative) -> tuple[Tensor, Tensor]:
    a, rows, last = layer.cell_list[0].a, [], []
    for b, length in enumerate(lengths):
        s = v = x.new_zeros(layer.hidden_size)
        out = []
        for x_t in x[:length, b]:
            v = 0.9 * v + a.U @ x_t + a.W @ s + a.b - s
            s = HandWritten.apply(v - 1.0, derivative)
            out.append(s)
        rows.append(torch.cat([torch.stack(out), x.new_zeros(x.shape[0] - length, layer.hidden_size)]))
        last.append(v)
    return torch.stack(rows, 1), torch.stack(last)


@pytest.mark.parametrize("name", SURROGATES)
def test_a_spiking_layer_is_a_plain_loop(engine: str, name: str):
    layer = spiking(rc.Recurrent(LIF, 4, 9, surrogate=name, slope=3.0, dtype=F64))
    x, lengths = torch.randn(11, 3, 4, dtype=F64, requires_grad=True), [11, 6, 1]
    assert f"backend: {engine}" in rc.explain(layer, x)
    y, (_, v) = layer(x, lengths=lengths)
    wanted, last = plain_loop(layer, x, lengths, lambda v: SURROGATES[name](v, 3.0))
    assert torch.equal(y, wanted)  # no spike moved
    assert 0.05 < float(y.detach().mean()) < 0.5
    assert_close(v[0], last)
    g, everything = torch.randn_like(y), [x, *layer.parameters()]
    found = torch.autograd.grad((y * g).sum() + v.sin().sum(), everything)
    expected = torch.autograd.grad((wanted * g).sum() + last.sin().sum(), everything)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-11)  # sums of gradients of size 1e2


def test_second_derivatives_of_a_spiking_layer(engine: str):
    layer = spiking(rc.Recurrent(LIF, 4, 6, surrogate="atan", dtype=F64))
    x, found = torch.randn(5, 2, 4, dtype=F64, requires_grad=True), []
    for choice in (engine, "reference"):
        with set_backend("reference" if choice == "reference" else "auto"):
            first = torch.autograd.grad(layer(x)[0].sum(), [x, *layer.parameters()], create_graph=True)
            found.append(torch.autograd.grad(sum(g.square().sum() for g in first), [x, *layer.parameters()]))
    for one, other in zip(*found, strict=True):
        assert_close(one, other, 1e-10)


def test_streaming_and_export(tmp_path: Path):
    layer, x = spiking(rc.Recurrent(LIF, 4, 9)), torch.randn(8, 3, 4)
    with torch.no_grad(), set_backend("auto"):
        y, state = layer(x)
        streamed, carried = [], None
        for x_t in x:
            y_t, carried = layer.step(x_t, carried)
            streamed.append(y_t)
        assert torch.equal(torch.stack(streamed), y)
        near(run(layer.export(tmp_path / "lif.onnx"), x=x), [y, *flat(state)], 2e-6)


def test_equations_and_diagram():
    assert r"s_{t} &= \Theta\left(v_{t} - 1\right)" in LIF.equations()
    assert ">spike<" in rc.diagram(LIF(3, 4)).svg
