"""Integers inside a step: exact as in torch, or left to the plain loop with the operation named."""

import re
from collections.abc import Callable

import pytest
import torch
from engine.compare import compare, sequences
from torch import Tensor, tanh

from recurra.cell import Cell
from recurra.engine.dispatch import choose

# Of a float row `a` of large and small numbers; results are integers or floats.
EXACT: dict[str, Callable[[Tensor], Tensor]] = {
    "cast and back": lambda a: a.long().to(a.dtype),
    "cast and arithmetic with floats": lambda a: a.int() + 0.5 * a,
    "bounded arithmetic": lambda a: (a.long().clamp(-1000, 1000) * 7 + 3 - (a > 0).long()).to(a.dtype),
    "remainder of any size": lambda a: (a.long() % 7).to(a.dtype),
    "fmod": lambda a: torch.fmod(a.int(), 5).to(a.dtype),
    "floor_divide": lambda a: (a.long().clamp(-100, 100) // 7).to(a.dtype),
    "div trunc": lambda a: torch.div(a.int().clamp(-100, 100), -7, rounding_mode="trunc").to(a.dtype),
    "counts": lambda a: (a > 0).sum(-1, keepdim=True) * torch.ones_like(a),
    "bool and int8": lambda a: ((a > 0).to(torch.int8) - (a < 1).to(torch.int8)).to(a.dtype),
    "powers": lambda a: ((a > 0).long() * 3 + 1).pow(4).to(a.dtype),
    "choice": lambda a: torch.where(a > 0, a.long(), a.long().abs()).to(a.dtype),
    "comparison": lambda a: (a.long() > 5).to(a.dtype) + (a.long() == 16777216),
    "with a constant": lambda a: (a.long().clamp(0, 9) * torch.arange(a.shape[1])).to(a.dtype),
    "maximum": lambda a: torch.maximum(a.int(), -a.int()).to(a.dtype),
    "sum": lambda a: a.int().clamp(-9, 9).sum(-1, keepdim=True) * torch.ones_like(a),
    "rsub": lambda a: (5 - a.long().clamp(max=4, min=-4)).to(a.dtype),
    "moved": lambda a: a.long().flip(-1)[:, 2:].sort(-1)[0].repeat(1, 2)[:, :7].to(a.dtype),
    "positions": lambda a: a.argmax(-1, keepdim=True) * 2 + torch.zeros_like(a),
    "bools multiplied": lambda a: ((a > 0) * (a < 5)).to(a.dtype),
    "bools added": lambda a: (a > 0).int() + (a < 5) + 0.5 * a,
}
LEFT: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "unbounded product": (lambda a: (a.long() * 3).to(a.dtype), r"aten\.mul\.Tensor of torch\.int64"),
    "unbounded sum": (lambda a: (a.long() + 1).to(a.dtype), r"aten\.add\.Tensor of torch\.int64"),
    "int16 that wraps": (lambda a: a.to(torch.int16).to(a.dtype), r"_to_copy\.default of torch\.int16"),
    "int8 that wraps": (lambda a: ((a > 0).to(torch.int8) * 99 + 99).to(a.dtype), r"aten\.add\.Tensor of torch\.int8"),
    "uint8 below zero": (lambda a: ((a > 0).to(torch.uint8) - 1).to(a.dtype), r"aten\.sub\.Tensor of torch\.uint8"),
    "power": (lambda a: (a.long().clamp(0, 100) ** 9).to(a.dtype), r"aten\.pow\.Tensor_Scalar of torch\.int64"),
    "a large number": (lambda a: (a.long() == 2**53 + 1).to(a.dtype), "integers that a row may not hold"),
    "bits": (lambda a: (a.long().clamp(0, 9) & 3).to(a.dtype), r"aten\.bitwise_and"),
}  # fmt: skip


class OfIntegers(Cell):
    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__(7, 7)
        self.function, self.w = function, self.vector(fill=0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.function(x) + self.w * tanh(h)


def large(cell: Cell, dtype: torch.dtype):
    """Integers and halves up to 2^30, all of them exact in float32."""
    given = sequences(cell, 3, 4, dtype)
    scale = torch.tensor([1.0, 2.0, 5.0, 40.0, 3000.0, 2.0**20, 2.0**27], dtype=dtype)
    with torch.no_grad():
        given.x.copy_((given.x * 4).round() / 2 * scale)
    return given


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", EXACT)
def test_integers_are_exact(name: str, dtype: torch.dtype):
    cell = OfIntegers(EXACT[name]).to(dtype)
    found = compare(cell, large(cell, dtype))
    assert (found.backend, found.values < 1e-7, found.gradients < 1e-6) == ("compiled", True, True)


@pytest.mark.filterwarnings("ignore:OfIntegers runs on the reference engine")
@pytest.mark.parametrize("name", LEFT)
def test_integers_that_rows_cannot_hold_run_on_the_plain_loop(name: str):
    function, words = LEFT[name]
    cell = OfIntegers(function)
    choice = choose(cell, large(cell, torch.float32))
    assert choice.backend == "reference"
    assert re.search(words, choice.why)


@pytest.mark.filterwarnings("ignore:Compared runs on the reference engine")
def test_a_weight_of_integers_is_compared_by_the_plain_loop():
    class Compared(Cell):
        def __init__(self) -> None:
            super().__init__(3, 3)
            self.register_buffer("table", torch.tensor([1, 2**24 + 1, 3]))
            self.w = self.vector(fill=0.5)

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return (x.long() == self.table) + self.w * h

    choice = choose(Compared(), sequences(Compared(), 2, 2, torch.float32))
    assert (choice.backend, "integers that a row may not hold" in choice.why) == ("reference", True)
