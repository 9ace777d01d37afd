"""First and second derivatives of every cell against finite differences: inputs, initial states and parameters."""

import numpy as np
import pytest
import torch
from cases import CASES, Case, draw_inputs, draw_states, every_case, smooth_case
from cells.transcriptions import TRANSCRIPTIONS
from helpers import assert_close, run
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

import recurra as rc
from recurra.cell import TIME


class Whole(nn.Module):
    """A cell over a whole sequence, as a module, so that its parameters can be arguments."""

    def __init__(self, cell: rc.Cell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        return run(self.cell, x, *state)


TOLERANCE = {"eps": 1e-6, "atol": 1e-5, "rtol": 1e-3}


def as_function(case: Case, steps: int, given_state: bool = True):
    """All outputs and final states in one vector, as a function of x, initial states and parameters in one vector."""
    tiny = {
        "input_size": 2,
        "hidden_size": 4 if {"heads", "block_size", "blocks", "rectified"} & set(case.options) else 2,
    }
    if case.input_size == case.hidden_size:
        tiny["input_size"] = tiny["hidden_size"]
    if {"static", "mass", "timed", "height"} & set(case.options):
        tiny["input_size"] = case.input_size
    if "height" in case.options:
        tiny["hidden_size"] = case.hidden_size
    cell = case.cell(**tiny)
    x = draw_inputs(case, steps, batch=2)[..., : tiny["input_size"]]
    state = draw_states(cell, 2) if given_state else ()
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad and not (name == "h_0" and state)]
    clock = state[-1:] if state and cell.carried[-1].name == TIME else ()  # a number of steps has no derivative
    state = state[: len(state) - len(clock)]
    arguments, module = [x, *state, *(p.detach() for _, p in named)], Whole(cell)

    def function(vector: Tensor) -> Tensor:
        parts = vector.split([value.numel() for value in arguments])
        shaped = [part.view(value.shape) for part, value in zip(parts, arguments, strict=True)]
        data, parameters = shaped[: 1 + len(state)], shaped[1 + len(state) :]
        weights = {f"cell.{name}": value for (name, _), value in zip(named, parameters, strict=True)}
        return torch.cat([value.flatten() for value in functional_call(module, weights, (*data, *clock))])

    return function, torch.cat([value.flatten() for value in arguments]).requires_grad_()


@pytest.mark.parametrize("case", [case for case in CASES if case.name != "unitary_rnn"], ids=str)
def test_first_derivatives_agree_with_the_transcription_to_rounding(case: Case):
    """Derivatives along a random direction of each argument, by the complex step; the unitary cell is not analytic."""
    cell, x = case.cell(), draw_inputs(case, steps=5, batch=1)
    tensors = {"x": x, **dict(zip((spec.name for spec in cell.carried), draw_states(cell, 1), strict=True))}
    weights = dict(cell.named_parameters())
    leaves = {name: value.requires_grad_() for name, value in (tensors | weights).items()}
    values = run(cell, *(leaves[name] for name in tensors))
    cotangents = [torch.randn_like(value) for value in values]
    gradients = torch.autograd.grad(values, list(leaves.values()), cotangents, materialize_grads=True)
    for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
        if name == TIME:  # a number of steps
            continue
        direction = torch.randn_like(leaf)
        expected = complex_step(case, cell, tensors, name, direction, cotangents)
        assert_close((gradient * direction).sum(), torch.tensor(expected, dtype=torch.float64))


def complex_step(case: Case, cell: rc.Cell, tensors: dict, name: str, direction: Tensor, cotangents: list) -> float:
    """The derivative of the transcription's results, weighted by cotangents, along a direction of one argument."""
    named = {**dict(cell.named_parameters()), **dict(cell.named_buffers()), **tensors}
    arrays = {key: value.detach().numpy() for key, value in named.items()}
    arrays[name] = arrays[name] + 1e-30j * direction.numpy()
    x, *state = (arrays[key][:, 0] if key == "x" else arrays[key][0] for key in tensors)
    outputs, finals = TRANSCRIPTIONS[case.name](arrays, x, *state, **case.options)
    results = [np.stack(outputs), *finals]
    return sum((r.imag * c.numpy().reshape(r.shape)).sum() for r, c in zip(results, cotangents, strict=True)) / 1e-30


@smooth_case
def test_first_derivatives(case: Case):
    function, vector = as_function(case, steps=3)
    assert gradcheck(function, vector, **TOLERANCE)


@smooth_case
def test_second_derivatives_in_random_directions(case: Case):
    function, vector = as_function(case, steps=2)
    assert gradgradcheck(function, vector, **TOLERANCE, fast_mode=True)


@pytest.mark.slow
@smooth_case
def test_second_derivatives(case: Case):
    function, vector = as_function(case, steps=2)
    assert gradgradcheck(function, vector, **TOLERANCE)


@pytest.mark.parametrize("name", ["unitary_rnn", "slstm", "scrn"])
def test_derivatives_from_a_start_that_is_a_parameter_or_a_branch_of_its_own(name: str):
    function, vector = as_function(Case(name), steps=3, given_state=False)
    assert gradcheck(function, vector, **TOLERANCE)
    assert gradgradcheck(function, vector, **TOLERANCE, fast_mode=True)


SHARES = {"elstm": 0.2, "conv_lstm": 0.1}  # a number for each of many steps; a kernel wider than the picture
WITHOUT_GRADIENT = {("alpha", "v"), ("lif", "q")}  # a potential that only the reset reads; steps of silence


@every_case
def test_every_argument_matters(case: Case):
    """Finite differences of a network whose rectifiers are all shut would agree with anything."""
    cell, x = case.cell(), draw_inputs(case)
    leaves = tuple(value.requires_grad_() for value in (x, *draw_states(cell, 2)))
    named = {name: p for name, p in cell.named_parameters() if p.requires_grad and name != "h_0"}
    total = sum((value * torch.randn_like(value)).sum() for value in run(cell, *leaves))
    names = ("x", *(spec.name for spec in cell.carried))
    without = {*WITHOUT_GRADIENT, (case.name, TIME)}
    leaves = [leaf for leaf, name in zip(leaves, names, strict=True) if (case.name, name) not in without]
    for gradient in torch.autograd.grad(total, (*leaves, *named.values())):
        assert gradient.abs().sum() > 0
    function, vector = as_function(case, steps=3)
    (gradient,) = torch.autograd.grad(function(vector).square().sum(), vector)
    assert (gradient != 0).double().mean() > SHARES.get(case.name, 0.7)
