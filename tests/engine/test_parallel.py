"""Layers that ask for a scan over time: the values of the plain loop, whatever surrounds the sequences."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torch import Tensor

import recurra as rc
from recurra.engine.cpu import compiler
from recurra.engine.plan.input_projection import split_gates
from recurra.engine.plan.planner import plan
from recurra.engine.traced_step import trace_in_clean_context

needs_compiler = pytest.mark.skipif(compiler.find_compiler() is None, reason="needs a C++ compiler")
SCANS = ("min_gru", "min_lstm", "sru", "qrnn", "hgrn", "rg_lru", "gateloop", "lru", "s5", "s4d", "t_gru", "focused_rnn")
SURROUNDINGS: dict[str, dict[str, Any]] = {
    "dense": {},
    "ragged": {"lengths": torch.tensor([40, 7, 23])},
    "resets": {"resets": torch.rand(40, 3, generator=torch.Generator().manual_seed(1)) < 0.1},
}


def layer_of(name: str, **options: Any) -> rc.Recurrent:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return rc.layer(name, 5, 6, dtype=torch.float64, parallel="scan", **options)


def values_and_gradients(layer: rc.Recurrent, **call: Any) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x, sheets = draw(40, 3, 5), len(layer.cell_list)
    shapes = [spec.shape(3) for spec in layer.cell_list[0].carried]
    states = tuple(draw(sheets, *shape) for shape in shapes)
    y, final = layer(x, states if len(states) > 1 else states[0], **call)
    finals = final if isinstance(final, tuple) else (final,)
    loss = y.sin().sum() + sum(f.square().sum() for f in finals)
    wanted = [x, *states, *layer.parameters()]
    return [y.detach(), *(f.detach() for f in finals), *torch.autograd.grad(loss, wanted, materialize_grads=True)]


def assert_same(layer: rc.Recurrent, **call: Any) -> None:
    found = values_and_gradients(layer, **call)
    with rc.set_backend("reference"):
        expected = values_and_gradients(layer, **call)
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-11)


@needs_compiler
@pytest.mark.parametrize("name", SCANS)
def test_a_scan_has_the_values_of_the_plain_loop(name: str):
    layer = layer_of(name)
    assert "for all steps before the loop" in rc.explain(layer, torch.zeros(40, 3, 5, dtype=torch.float64))
    assert_same(layer)


@needs_compiler
def test_a_matrix_that_x_is_spread_over_is_made_in_the_loop():
    layer = rc.layer("gla", 5, 16, heads=2, dtype=torch.float64, parallel="scan")
    step = trace_in_clean_context(layer.cell_list[0])
    split = split_gates(plan(layer.cell_list[0], step, train=False, needs_x=False).forward)
    assert split.mixes_units
    assert all(out.node.width <= 16 for out in split.ahead.outs)
    x = torch.randn(40, 3, 5, dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()])
    with rc.set_backend("reference"):
        expected = torch.autograd.grad(layer(x)[0].square().sum(), [x, *layer.parameters()])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@needs_compiler
@pytest.mark.parametrize("around", ["ragged", "resets"])
@pytest.mark.parametrize("name", ["min_gru", "lru"])
def test_lengths_and_resets(name: str, around: str):
    assert_same(layer_of(name), **SURROUNDINGS[around])


@needs_compiler
def test_directions_layers_and_modifiers():
    assert_same(layer_of("sru", num_layers=2, bidirectional=True), **SURROUNDINGS["ragged"])
    torch.manual_seed(3)
    layer = layer_of("min_gru", modifiers=rc.Zoneout(0.5))
    assert layer.cell_list[0].masks
    results = []
    for backend in ("auto", "reference"):
        torch.manual_seed(0)
        with rc.set_backend(backend):
            results.append(values_and_gradients(layer))
    for value, wanted in zip(*results, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-11)


@needs_compiler
def test_second_derivatives():
    layer, x = layer_of("rg_lru"), torch.randn(6, 2, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda v: layer(v)[0], x)


@needs_compiler
def test_traces_and_streams():
    layer, x = layer_of("sru"), torch.randn(9, 2, 5, dtype=torch.float64)
    y, state, trace = layer(x, return_trace=True)
    torch.testing.assert_close(trace["c"][-1], state[0])
    first, state = layer(x[:4])
    second, _ = layer(x[4:], state)
    torch.testing.assert_close(torch.cat([first, second]), y)


class GateOfSeveralStages(rc.Cell):
    """A gate through two layers, a sum over units, and a readout: each needs whole rows of the one before."""

    states = ("c",)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.p, self.q, self.g, self.r = self.affine("x"), self.affine(hidden_size), self.affine("x"), self.affine("c")

    def step(self, x: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f = torch.sigmoid(self.q(torch.tanh(self.p(x))))
        c = f * c + torch.softmax(self.g(x), -1)
        return torch.tanh(self.r(c)), c


@needs_compiler
@pytest.mark.parametrize("threads", [1, 3])
def test_gates_of_several_stages_and_a_readout(threads: int):
    torch.manual_seed(0)
    layer, before = (
        rc.Recurrent(GateOfSeveralStages, 5, 40, dtype=torch.float64, parallel="scan"),
        torch.get_num_threads(),
    )
    text = rc.explain(layer, torch.zeros(40, 3, 5, dtype=torch.float64))
    assert "for all steps before the loop" in text
    assert "for all steps after the loop" in text
    torch.set_num_threads(threads)
    try:
        assert_same(layer)
        assert_same(layer, **SURROUNDINGS["ragged"])
    finally:
        torch.set_num_threads(before)


@needs_compiler
def test_a_loss_of_the_final_state_alone():
    """The cotangent of the output, with which the loop backward begins, is missing."""
    layer, x = layer_of("lru"), torch.randn(20, 2, 5, dtype=torch.float64, requires_grad=True)

    def gradients() -> list[Tensor]:
        return list(torch.autograd.grad(layer(x)[1][0].sum(), [x, layer.cell_list[0].nu, layer.cell_list[0].b_re.U]))

    found = gradients()
    with rc.set_backend("reference"):
        expected = gradients()
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-11, atol=1e-11)


class Decay(rc.Cell):
    """`h' = a ⊙ h + W x` with given decays."""

    def __init__(self, input_size: int, hidden_size: int, decays: tuple[float, ...]):
        super().__init__(input_size, hidden_size)
        self.W = self.affine("x")
        self.register_buffer("a", torch.tensor(decays))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.a * h + torch.tanh(self.W(x))


@needs_compiler
def test_a_million_steps_of_any_decay_are_as_accurate_as_the_loop():
    """In single precision against double; a decay above one for as long as its numbers last."""
    decays = (0.0, 1.0, -1.0, 0.5, -0.999, 0.999999, 1.00001, -1.00001)
    torch.manual_seed(0)
    layer, x = rc.Recurrent(Decay, 8, 8, parallel="scan", decays=decays), torch.randn(1 << 20, 1, 8)
    with torch.no_grad():
        found = layer(x)[0][:, 0]
        cell = layer.cell_list[0]
        b = torch.tanh(torch.nn.functional.linear(x, cell.W.U, cell.W.b))[:, 0]
    assert torch.isfinite(found).all()
    for unit, a in enumerate(cell.a.tolist()):  # the decay as it is in single precision
        given = b[:, unit].numpy()
        exact = lfilter([1.0], [1.0, -a], given.astype(np.float64))
        loop = lfilter(np.float32([1.0]), np.float32([1.0, -a]), given)
        assert loop.dtype == np.float32
        wrong, expected = (np.abs(h - exact) / (np.abs(exact) + 1) for h in (found[:, unit].numpy(), loop))
        assert wrong.max() <= 2 * expected.max() + 1e-5, (a, wrong.max(), expected.max())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gru", "h of GRU is not: h is multiplied by the matrix r.W, in r"),
        ("indrnn", "h of IndRNN is not: h enters relu"),
        ("scrn", "h of SCRN is not: h is multiplied by the matrix net.W"),
        ("unitary_rnn", "the compiled engine does not take aten.complex"),
    ],
)
def test_the_state_and_the_term_that_forbid_a_scan_are_named(name: str, words: str):
    with pytest.raises(rc.OptionError, match=r"parallel: got 'scan'") as caught:
        rc.layer(name, 3, 4, parallel="scan")
    assert words in str(caught.value)


def test_other_words_are_refused():
    with pytest.raises(rc.InputError, match="parallel"):
        rc.layer("min_gru", 3, 4, parallel="picard")
    assert "parallel='scan'" in repr(rc.layer("min_gru", 3, 4, parallel="scan"))
