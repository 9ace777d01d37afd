"""First and second derivatives of every cell against finite differences: inputs, initial states and parameters."""

import pytest
import torch
from cases import Case, draw_inputs, draw_states, every_case
from helpers import run
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

import recurra as rc


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
    tiny = {"input_size": 2, "hidden_size": 4 if {"heads", "block_size"} & set(case.options) else 2}
    if case.input_size == case.hidden_size:
        tiny["input_size"] = tiny["hidden_size"]
    cell = case.cell(**tiny)
    x = draw_inputs(case, steps, batch=2)[..., : tiny["input_size"]]
    state = draw_states(cell, 2) if given_state else ()
    named = [(name, p) for name, p in cell.named_parameters() if p.requires_grad and not (name == "h_0" and state)]
    arguments, module = [x, *state, *(p.detach() for _, p in named)], Whole(cell)

    def function(vector: Tensor) -> Tensor:
        parts = vector.split([value.numel() for value in arguments])
        shaped = [part.view(value.shape) for part, value in zip(parts, arguments, strict=True)]
        data, parameters = shaped[: 1 + len(state)], shaped[1 + len(state) :]
        weights = {f"cell.{name}": value for (name, _), value in zip(named, parameters, strict=True)}
        return torch.cat([value.flatten() for value in functional_call(module, weights, tuple(data))])

    return function, torch.cat([value.flatten() for value in arguments]).requires_grad_()


@every_case
def test_first_derivatives(case: Case):
    function, vector = as_function(case, steps=3)
    assert gradcheck(function, vector, **TOLERANCE)


@every_case
def test_second_derivatives_in_random_directions(case: Case):
    function, vector = as_function(case, steps=2)
    assert gradgradcheck(function, vector, **TOLERANCE, fast_mode=True)


@pytest.mark.slow
@every_case
def test_second_derivatives(case: Case):
    function, vector = as_function(case, steps=2)
    assert gradgradcheck(function, vector, **TOLERANCE)


@pytest.mark.parametrize("name", ["unitary_rnn", "slstm", "scrn"])
def test_derivatives_from_a_start_that_is_a_parameter_or_a_branch_of_its_own(name: str):
    function, vector = as_function(Case(name), steps=3, given_state=False)
    assert gradcheck(function, vector, **TOLERANCE)
    assert gradgradcheck(function, vector, **TOLERANCE, fast_mode=True)


@every_case
def test_every_argument_matters(case: Case):
    """Finite differences of a network whose rectifiers are all shut would agree with anything."""
    cell, x = case.cell(), draw_inputs(case)
    leaves = tuple(value.requires_grad_() for value in (x, *draw_states(cell, 2)))
    named = {name: p for name, p in cell.named_parameters() if p.requires_grad and name != "h_0"}
    total = sum((value * torch.randn_like(value)).sum() for value in run(cell, *leaves))
    for gradient in torch.autograd.grad(total, (*leaves, *named.values())):
        assert gradient.abs().sum() > 0
    function, vector = as_function(case, steps=3)
    (gradient,) = torch.autograd.grad(function(vector).square().sum(), vector)
    assert (gradient != 0).double().mean() > 0.7
