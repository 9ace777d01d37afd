"""Somebody else's answers: torch.nn, Keras and torchrecurrent, where their equations are the same; and where not."""

import os
import re
from pathlib import Path

import pytest
import torch
import torchrecurrent
from cases import Case, draw_inputs, draw_states
from helpers import assert_close, compare, put, run, runs
from torch import Tensor, nn

import recurra as rc

SIZES = (3, 4)
X = draw_inputs(Case("rnn"), steps=6)  # (T, B, D)


def fill(module: nn.Module) -> nn.Module:
    """Random parameters of either sign, so that no zero hides a term."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.uniform_(-0.9, 0.9)
    return module.double()


def rows(module: nn.Module, *names: str, suffix: str = "_l0", flip: str = "") -> dict[str, Tensor]:
    """U, W and b (both biases added) of each named gate, in the order torch stacks them; `flip` negates one."""
    parts = {
        "U": getattr(module, f"weight_ih{suffix}"),
        "W": getattr(module, f"weight_hh{suffix}"),
        "b": getattr(module, f"bias_ih{suffix}") + getattr(module, f"bias_hh{suffix}"),
    }
    split = {leaf: dict(zip(names, value.chunk(len(names)), strict=True)) for leaf, value in parts.items()}
    return {f"{n}__{leaf}": -split[leaf][n] if n == flip else split[leaf][n] for n in names for leaf in split}


# ---------------------------------------------------------------------------------------------------- torch.nn


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_rnn_is_torchs(nonlinearity: str):
    oracle = fill(nn.RNN(*SIZES, nonlinearity=nonlinearity))
    cell = put(Case("rnn", {"nonlinearity": nonlinearity}).cell(), **rows(oracle, "a"))

    def torchs(x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        y, h = oracle(x, h[None])
        return y, h[0]

    compare(runs(cell), torchs, X, *draw_states(cell, 2))


def test_lstm_is_torchs():
    oracle = fill(nn.LSTM(*SIZES))
    cell = put(Case("lstm").cell(), **rows(oracle, *"ifgo"))

    def torchs(x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y, (h, c) = oracle(x, (h[None], c[None]))
        return y, h[0], c[0]

    compare(runs(cell), torchs, X, *draw_states(cell, 2))


def test_projection_lstm_without_peepholes_is_torchs():
    oracle = fill(nn.LSTM(*SIZES, proj_size=2))
    cell = put(Case("projection_lstm", {"proj_size": 2, "peepholes": False}).cell(), **rows(oracle, *"ifgo"))
    put(cell, R__W=oracle.weight_hr_l0)

    def torchs(x: Tensor, r: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        y, (r, c) = oracle(x, (r[None], c[None]))
        return y, r[0], c[0]

    compare(runs(cell), torchs, X, *draw_states(cell, 2))


def test_gru_with_the_reset_after_the_product_is_torchs_with_z_negated():
    oracle = fill(nn.GRU(*SIZES))
    gates = rows(oracle, *"rzn", flip="z")
    cell = Case("gru", {"reset_after": True}).cell()
    put(cell, **{name: value for name, value in gates.items() if name[0] in "rz"}, c__U=gates["n__U"])
    put(cell, c__b=oracle.bias_ih_l0[8:], m__W=oracle.weight_hh_l0[8:], m__b=oracle.bias_hh_l0[8:])

    def torchs(x: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        y, h = oracle(x, h[None])
        return y, h[0]

    compare(runs(cell), torchs, X, *draw_states(cell, 2))


def test_torchs_gru_is_not_the_surveys():
    oracle = fill(nn.GRU(*SIZES))
    gates = rows(oracle, *"rzn", flip="z")
    survey = put(Case("gru").cell(), **{name.replace("n__", "c__"): value for name, value in gates.items()})
    assert (run(survey, X)[0] - oracle(X)[0]).abs().max() > 1e-2


def test_the_orthogonal_matrix_is_the_one_of_torchs_parametrisation():
    linear = nn.Linear(4, 4, bias=False, dtype=torch.float64)
    nn.utils.parametrizations.orthogonal(linear, orthogonal_map="matrix_exp", use_trivialization=False)
    cell = Case("orthogonal_rnn").cell()
    lower = torch.rand(4, 4, dtype=torch.float64).tril(-1)
    with torch.no_grad():
        linear.parametrizations.weight.original.copy_(lower)
    put(cell, a__W_raw=lower)
    assert_close(cell.a.W, linear.weight)


# ---------------------------------------------------------------------------------------------------- Keras


@pytest.fixture(scope="module")
def keras():
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    assert keras.backend.backend() == "torch"
    keras.config.set_floatx("float64")
    yield keras
    keras.config.set_floatx("float32")


def keras_run(layer, weights: list[Tensor]) -> Tensor:
    """Batches come first in Keras, matrices multiply rows from the right."""
    layer.build((2, 6, 3))
    layer.set_weights([weight.detach().numpy() for weight in weights])
    return torch.as_tensor(layer(X.transpose(0, 1).numpy())).detach().cpu().transpose(0, 1)


def side_by_side(cell: rc.Cell, gates: str, leaf: str, flip: str = "") -> Tensor:
    """One leaf of several gates as Keras packs it: (inputs, gates · units)."""
    parts = [getattr(getattr(cell, gate), leaf) * (-1 if gate == flip else 1) for gate in gates]
    return torch.cat(parts).T if leaf != "b" else torch.cat(parts)


def test_gru_is_keras_with_the_reset_before_the_product_and_z_negated(keras):
    cell = Case("gru").cell()
    layer = keras.layers.GRU(4, reset_after=False, return_sequences=True)
    expected = keras_run(layer, [side_by_side(cell, "zrc", leaf, flip="z") for leaf in ("U", "W", "b")])
    assert_close(run(cell, X)[0], expected, 1e-6)  # Keras rounds to single precision inside


def test_gru_is_keras_with_the_reset_after_the_product(keras):
    cell = Case("gru", {"reset_after": True}).cell()
    layer = keras.layers.GRU(4, reset_after=True, return_sequences=True)
    recurrent = torch.cat([-cell.z.W, cell.r.W, cell.m.W]).T
    zero = torch.zeros(4, dtype=torch.float64)
    biases = torch.stack([side_by_side(cell, "zrc", "b", flip="z"), torch.cat([zero, zero, cell.m.b])])
    expected = keras_run(layer, [side_by_side(cell, "zrc", "U", flip="z"), recurrent, biases])
    assert_close(run(cell, X)[0], expected, 1e-6)


def test_lstm_is_keras(keras):
    cell = Case("lstm").cell()
    layer = keras.layers.LSTM(4, return_sequences=True)
    expected = keras_run(layer, [side_by_side(cell, "ifgo", leaf) for leaf in ("U", "W", "b")])
    assert_close(run(cell, X)[0], expected, 1e-6)


def test_the_documentation_loads_the_weights_of_keras(keras):
    text = (Path(__file__).parents[2] / "docs" / "howto" / "migrate.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(def from_keras_lstm.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict = {"torch": torch, "rc": rc}
    exec(block, names)
    oracle = keras.layers.LSTM(4, return_sequences=True)
    weights = [torch.rand(size) for size in ((3, 16), (4, 16), (16,))]
    expected = keras_run(oracle, weights)
    found = names["from_keras_lstm"](*(weight.numpy() for weight in weights))
    assert_close(found.double()(X.transpose(0, 1))[0].transpose(0, 1), expected, 1e-6)


def test_lstm_starts_with_keras_forget_bias(keras):
    layer = keras.layers.LSTM(4)
    layer.build((2, 6, 3))
    cell = rc.registry()["lstm"](*SIZES)
    ours = torch.cat([cell.i.b, cell.f.b, cell.g.b, cell.o.b])
    bias = layer.weights[2].value.detach().cpu()
    assert torch.equal(ours.detach().double(), bias.double())


# ---------------------------------------------------------------------------------------------------- torchrecurrent


def theirs(oracle: nn.Module, pair: bool = False):
    """A torchrecurrent cell, run over the sequence; `pair` where it carries two states."""

    def function(x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        rows = []
        for x_t in x:
            new = oracle(x_t, state if pair else state[0])
            state = new if pair else (new,)
            rows.append(state[0])
        return torch.stack(rows), *state

    return function


@pytest.mark.parametrize(
    ("name", "oracle_name", "gates"),
    [
        ("original_lstm", "OriginalLSTM", "igo"),
        ("vanilla_lstm", "PeepholeLSTM", "ifgo"),
        ("mgu", "MGU", "fc"),
        ("ugrnn", "UGRNN", "cg"),
        ("janet", "JANET", "fc"),
        ("mut3", "MUT3", "zrc"),
    ],
)
def test_torchrecurrent_agrees(name: str, oracle_name: str, gates: str):
    oracle = fill(getattr(torchrecurrent, f"{oracle_name}Cell")(*SIZES))
    cell = put(Case(name).cell(), **rows(oracle, *gates, suffix=""))
    if name == "vanilla_lstm":
        put(cell, **dict(zip(("p_i", "p_f", "p_o"), oracle.weight_ph.chunk(3), strict=True)))
    state = draw_states(cell, 2)
    if name == "janet":  # theirs carries the memory twice, and learns β
        torch.nn.init.constant_(oracle.beta, 1.0)
        compare(runs(cell), lambda x, h: theirs(oracle, pair=True)(x, h, h)[:2], X, *state)
    else:
        compare(runs(cell), theirs(oracle, pair=len(state) == 2), X, *state)


def test_indrnn_is_torchrecurrents():
    oracle = fill(torchrecurrent.IndRNNCell(*SIZES, nonlinearity="relu"))
    cell = put(Case("indrnn").cell(), u=oracle.vector_u, a__U=oracle.weight_ih, a__b=oracle.bias_ih + oracle.bias_hh)
    compare(runs(cell), theirs(oracle), X, *draw_states(cell, 2))


def test_antisymmetric_rnn_is_torchrecurrents():
    oracle = fill(torchrecurrent.AntisymmetricRNNCell(*SIZES, epsilon=0.1, gamma=0.1))
    cell = put(Case("antisymmetric_rnn").cell(), a__U=oracle.weight_ih, a__W_raw=oracle.weight_hh)
    put(cell, a__b=oracle.bias_ih + oracle.bias_hh)
    compare(runs(cell), theirs(oracle), X, *draw_states(cell, 2))


def test_mut1_is_torchrecurrents_where_its_third_bias_is_zero():
    oracle = fill(torchrecurrent.MUT1Cell(*SIZES))
    with torch.no_grad():
        oracle.bias_ih[8:] = 0  # theirs adds it to the bare x
    U, W = oracle.weight_ih.chunk(3), oracle.weight_hh.chunk(2)
    b, recurrent = oracle.bias_ih.chunk(3), oracle.bias_hh.chunk(2)
    cell = put(Case("mut1").cell(), z__U=U[0], z__b=b[0], r__U=U[1], r__W=W[0], r__b=b[1] + recurrent[0], E__U=U[2])
    put(cell, c__W=W[1], c__b=recurrent[1])
    compare(runs(cell), theirs(oracle), X, *draw_states(cell, 2))


def test_torchrecurrents_mut2_is_the_surveys_gru():
    oracle = fill(torchrecurrent.MUT2Cell(*SIZES))
    cell = put(Case("gru").cell(), **rows(oracle, *"zrc", suffix=""))
    compare(runs(cell), theirs(oracle), X, *draw_states(cell, 2))


def test_torchrecurrents_lem_feeds_the_old_memory_to_the_output():
    """Ours is the paper's and its authors' code: y reads the new z. Theirs agrees only where z does not change."""
    oracle = fill(torchrecurrent.LEMCell(*SIZES))
    U, b = oracle.weight_ih.chunk(4), oracle.bias_ih.chunk(4)
    W, recurrent = oracle.weight_hh.chunk(3), oracle.bias_hh.chunk(3)
    cell = Case("lem").cell()
    for k, name in enumerate(("slow", "fast", "u")):
        put(cell, **{f"{name}__U": U[k], f"{name}__W": W[k], f"{name}__b": b[k] + recurrent[k]})
    put(cell, v__U=U[3], v__W=oracle.weight_ch, v__b=b[3] + oracle.bias_ch)
    y, z = draw_states(cell, 2)
    assert (run(cell, X, y, z)[0] - theirs(oracle, pair=True)(X, y, z)[0]).abs().max() > 1e-2
    still = put(cell, fast__U=0, fast__W=0, fast__b=-800.0)
    with torch.no_grad():
        oracle.weight_ih[4:8], oracle.weight_hh[4:8], oracle.bias_hh[4:8] = 0, 0, 0
        oracle.bias_ih[4:8] = -800.0
    compare(runs(still), theirs(oracle, pair=True), X, y, z)
