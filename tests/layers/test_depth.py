"""Depth: plain and residual stacks, and Graves's deep network, against loops written out by hand."""

import numpy as np
import pytest
import torch
from cases import Case, draw_inputs, randomise
from helpers import assert_close
from torch_twins import copy_weights

import recurra as rc

STEPS, BATCH = 5, 3


def sigmoid(a: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-a))


def graves(x: np.ndarray, w: dict[str, np.ndarray], layers: int) -> np.ndarray:
    """h^n = H(U^n x + S^n h^{n-1} + W^n h^n + b^n), y = b_y + Σ V^n h^n; H is the LSTM with peepholes."""
    steps, batch, inputs = x.shape
    size = len(w["cells.0.i.b"])
    h, c = np.zeros((layers, batch, size)), np.zeros((layers, batch, size))
    V = np.split(w["V"], layers, axis=1)
    outputs = []
    for t in range(steps):
        for n in range(layers):

            def net(gate, n=n, t=t):
                both = w[f"cells.{n}.{gate}.U"]
                U, S = both[:, :inputs], both[:, inputs:]
                below = h[n - 1] @ S.T if n else 0.0
                return x[t] @ U.T + below + h[n] @ w[f"cells.{n}.{gate}.W"].T + w[f"cells.{n}.{gate}.b"]

            i = sigmoid(net("i") + w[f"cells.{n}.p_i"] * c[n])
            f = sigmoid(net("f") + w[f"cells.{n}.p_f"] * c[n])
            memory = f * c[n] + i * np.tanh(net("g"))
            o = sigmoid(net("o") + w[f"cells.{n}.p_o"] * memory)
            h[n], c[n] = o * np.tanh(memory), memory
        outputs.append(sum(h[n] @ V[n].T for n in range(layers)) + w["b"])
    return np.stack(outputs)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_graves_feeds_the_input_to_every_layer_and_every_layer_to_the_output(layers):
    case = Case("vanilla_lstm")
    layer = case.layer(num_layers=layers, depth="graves")
    readout = randomise(rc.Readout(layer, 2).double())
    x = draw_inputs(case, STEPS, BATCH)
    weights = {n: p.detach().numpy() for n, p in (*layer.named_parameters(), *readout.named_parameters())}
    assert layer.output_size == 4 * layers
    assert_close(readout(layer(x)[0]), torch.from_numpy(graves(x.numpy(), weights, layers)))


def test_graves_without_its_skips_is_torchs_stack():
    deep = Case("lstm").layer(num_layers=3, depth="graves")
    theirs = torch.nn.LSTM(3, 4, 3, dtype=torch.float64)
    plain = rc.LSTM(3, 4, 3, dtype=torch.float64)
    copy_weights("LSTM", plain, theirs)
    with torch.no_grad():
        for n, (cell, other) in enumerate(zip(deep.cells, plain.cells, strict=True)):
            for gate in "ifgo":
                source, target = getattr(other, gate), getattr(cell, gate)
                target.W.copy_(source.W)
                target.b.copy_(source.b)
                target.U.copy_(torch.cat([torch.zeros(4, 3), source.U], 1) if n else source.U)
    x = draw_inputs(Case("lstm"), STEPS, BATCH)
    y, (h, c) = deep(x)
    expected, (h_n, c_n) = theirs(x)
    assert_close(y[..., 8:], expected)
    assert_close(torch.stack([h, c]), torch.stack([h_n, c_n]))


@pytest.mark.parametrize("how", [False, True, "separate"])
@pytest.mark.parametrize("depth", ["residual", "graves"])
@pytest.mark.parametrize("name", ["gru", "scrn"])
def test_depth_is_single_layers_connected_by_hand(name, depth, how):
    layer = Case(name).layer(num_layers=3, depth=depth, bidirectional=how)
    x = draw_inputs(Case(name), STEPS, BATCH)
    directions = 2 if how else 1

    def run_cell(number: int, direction: int, below: torch.Tensor) -> torch.Tensor:
        cell = layer.cells[number * directions + direction]
        one = rc.layer(name, below.shape[-1], 4, dtype=torch.float64)
        one.cells[0].load_state_dict(cell.state_dict())
        return one(below.flip(0))[0].flip(0) if direction else one(below)[0]

    def stack(which: tuple[int, ...]) -> torch.Tensor:
        outputs: list[torch.Tensor] = []
        for number in range(3):
            below = outputs[-1] if outputs else x
            seen = torch.cat([x, below], -1) if number and depth == "graves" else below
            y = torch.cat([run_cell(number, d, seen) for d in which], -1)
            outputs.append(y + below if number and depth == "residual" else y)
        return torch.cat(outputs, -1) if depth == "graves" else outputs[-1]

    expected = torch.cat([stack((0,)), stack((1,))], -1) if how == "separate" else stack(tuple(range(directions)))
    y, _ = layer(x)
    assert_close(y, expected)
    assert y.shape[-1] == layer.output_size


def test_a_residual_stack_of_silent_layers_passes_the_first_layer_on():
    layer = Case("rnn").layer(num_layers=3, depth="residual")
    x = draw_inputs(Case("rnn"), STEPS, BATCH)
    with torch.no_grad():
        for cell in layer.cell_list[1:]:
            for parameter in cell.parameters():
                parameter.zero_()
    first = Case("rnn").layer()
    first.cells[0].load_state_dict(layer.cells[0].state_dict())
    assert_close(layer(x)[0], first(x)[0])


def test_dropout_in_a_deep_graves_network_reaches_the_layers_above_but_not_the_output():
    layer = Case("rnn").layer(num_layers=2, depth="graves", dropout=1.0)
    x = draw_inputs(Case("rnn"), STEPS, BATCH)
    y = layer(x)[0]
    first = Case("rnn").layer()
    first.cells[0].load_state_dict(layer.cells[0].state_dict())
    assert_close(y[..., :4], first(x)[0])
    assert not torch.allclose(layer.eval()(x)[0][..., 4:], y[..., 4:])
