"""The one numeric helper: values and gradients of a function against those of an oracle, in float64."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import recurra as rc
from recurra.engine.reference import Sequences, scan

EXACT = 1e-12
Function = Callable[..., Tensor | Sequence[Tensor]]


def run(cell: rc.Cell, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
    """`(y, *final states)` of the plain loop; without a state the cell starts where it says it starts."""
    if not state:
        state = cell.initial_state(x.shape[1], x)
    scanned = scan(cell, Sequences(x, state, cell.draw_masks(*x.shape[:2], x)))
    return scanned.y, *scanned.state


def runs(cell: rc.Cell) -> Function:
    """The cell as a function of x and its initial states."""
    return lambda x, *state: run(cell, x, *state)


def compare(function: Function, oracle: Function, *inputs: Tensor, tolerance: float = EXACT) -> None:
    """Same values, and same gradients of one random sum of all values with respect to every input."""
    values, gradients = _values_and_gradients(function, inputs)
    expected_values, expected_gradients = _values_and_gradients(oracle, inputs)
    assert len(values) == len(expected_values)
    for value, expected in zip((*values, *gradients), (*expected_values, *expected_gradients), strict=True):
        assert_close(value, expected, tolerance)


def _values_and_gradients(function: Function, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    returned = function(*leaves)
    values = [returned] if isinstance(returned, Tensor) else list(returned)
    generator = torch.Generator().manual_seed(7)
    total = sum((v * torch.randn(v.shape, generator=generator, dtype=torch.float64)).sum() for v in values)
    gradients = torch.autograd.grad(total, leaves, materialize_grads=True)
    return [value.detach() for value in values], list(gradients)


def assert_close(value: Tensor, expected: Tensor, tolerance: float = EXACT) -> None:
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)


@torch.no_grad()
def put(target: rc.Cell, **weights: Tensor | float) -> rc.Cell:
    """Set parameters by dotted name, written with `__` for the dot: `put(cell, a__W=W)`; the rest stays."""
    parameters = dict(target.named_parameters())
    for name, value in weights.items():
        parameter = parameters[name.replace("__", ".")]
        parameter.copy_(torch.as_tensor(value, dtype=parameter.dtype))
    return target


@torch.no_grad()
def share(target: rc.Cell, source: rc.Cell) -> rc.Cell:
    """Give the target every parameter of the source that it has under the same name."""
    parameters = dict(target.named_parameters())
    for name, value in source.named_parameters():
        if name in parameters:
            parameters[name].copy_(value)
    return target


def gate(target: rc.Cell, name: str, value: float) -> rc.Cell:
    """Hold a gate at one value, whatever it sees: zero weights and the bias sig⁻¹(value)."""
    with torch.no_grad():
        for parameter in getattr(target, name).parameters():
            parameter.zero_()
        bias = 800.0 if value == 1 else -800.0 if value == 0 else math.log(value / (1 - value))
        getattr(target, name).b.fill_(bias)
        if hasattr(target, f"p_{name}"):
            getattr(target, f"p_{name}").zero_()
    return target
