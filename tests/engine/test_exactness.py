"""A number that a fused loop computes again equals itself: comparisons with extremes of a row are those of torch."""

from collections.abc import Callable

import pytest
import torch
from engine.compare import compare, sequences
from torch import Tensor, tanh

import recurra as rc
from recurra.engine import reference
from recurra.engine.backend import set_backend
from recurra.engine.dispatch import scan


def largest(z: Tensor) -> Tensor:
    return (z == z.amax(-1, keepdim=True)) * z + z.amin(-1, keepdim=True)


def winners(z: Tensor) -> Tensor:
    return torch.where(z >= z.topk(3, 1).values[:, -1:], z, torch.zeros_like(z))


def winners_of_four(z: Tensor) -> Tensor:
    return z * (z >= z[:, 1:5].topk(2, 1).values[:, 1:])


def beside_a_unit(z: Tensor) -> Tensor:
    return (z >= z[:, 1:2]) * z + (z * z + z - (z * z + z)[:, 2:3] == 0) * z


def kinks_beside_a_unit(z: Tensor) -> Tensor:
    return torch.maximum(z, z[:, :1]) + torch.clamp(z, max=z[:, 1:2]) + torch.relu(z - z[:, 2:3])


def above_the_third(z: Tensor) -> Tensor:
    return z * (z > z.sort(1).values[:, 2:3])


def joined(z: Tensor) -> Tensor:
    both = torch.cat([z, z], 1)
    return z * both.max(1, keepdim=True).values + both.min(1, keepdim=True).values


def of_groups(z: Tensor) -> Tensor:
    groups = z.unflatten(1, (2, 3))
    return ((groups == groups.amax(2, keepdim=True)) * groups).flatten(1)


def through_zero(z: Tensor) -> Tensor:
    return (z - z.amax(1, keepdim=True) == 0) * z


class Compares(rc.Cell):
    """Numbers with several roundings, of which one compiler fuses some and another none."""

    def __init__(self, input_size: int, hidden_size: int, functions: list[Callable[[Tensor], Tensor]]):
        super().__init__(input_size, hidden_size)
        self.a, self.p, self.functions = self.affine("x", "h"), self.vector(fill=0.3), functions

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        v = self.a(x, h)
        numbers = [v, self.p * h + v, v * h + x[:, :1] * v]
        return tanh(0.3 * h + sum(function(z) for function in self.functions for z in numbers))


def check(functions: list[Callable[[Tensor], Tensor]], steps: int, batch: int) -> None:
    torch.manual_seed(1)
    cell = Compares(3, 6, functions).double()
    given = sequences(cell, steps, batch, torch.float64)
    with set_backend("compiled"):
        found = compare(cell, given)
        with torch.no_grad():
            y = scan(cell, given).y
    assert found.backend == "compiled"
    assert found.values < 1e-12
    assert found.gradients < 1e-10
    torch.testing.assert_close(y, reference.scan(cell, given).y, rtol=1e-12, atol=1e-12)


def test_the_largest_and_the_least_of_a_row_are_found():
    check([joined], 4, 40)


MORE = [
    [largest, of_groups],
    [winners, above_the_third, kinks_beside_a_unit],
    [through_zero, winners_of_four],
    [beside_a_unit],
]


@pytest.mark.slow
@pytest.mark.parametrize("functions", MORE, ids=lambda functions: functions[0].__name__)
@pytest.mark.parametrize(("steps", "batch"), [(4, 40), (30, 1)])
def test_comparisons_with_extremes(functions: list[Callable[[Tensor], Tensor]], steps: int, batch: int):
    check(functions, steps, batch)
