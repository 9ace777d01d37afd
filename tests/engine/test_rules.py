"""Functions of torch between a product and a state, on ordinary numbers: value and gradient as on the plain loop."""

import pytest
import torch
import torch.nn.functional as F
from engine.compare import compare, sequences
from torch import Tensor

from recurra.cell import Cell

FUNCTIONS = [
    torch.sigmoid,
    torch.tanh,
    torch.relu,
    torch.exp,
    torch.expm1,
    torch.sin,
    torch.cos,
    torch.erf,
    torch.abs,
    torch.sign,
    torch.floor,
    torch.neg,
    torch.reciprocal,
    F.softplus,
    F.silu,
    F.gelu,
    F.elu,
    F.leaky_relu,
    F.logsigmoid,
    F.hardtanh,
    torch.square,
    F.selu,
    F.relu6,
    lambda v: torch.log(v * v + 0.1),
    lambda v: torch.log1p(v * v),
    lambda v: torch.sqrt(v * v + 0.1),
    lambda v: torch.rsqrt(v * v + 0.1),
    lambda v: (v * v + 0.1) ** 1.3,
    lambda v: v**3,
    lambda v: torch.maximum(v, -v + 0.1),
    lambda v: torch.minimum(v, 0.3 * v),
    lambda v: torch.where((v > 0.1) & ~(v >= 1.0) | (v < -1.5), v, 2 * v),
    lambda v: torch.remainder(v, 0.7),
    lambda v: 3.0 - v / 2,
    lambda v: torch.clamp(v, max=0.4),
]


class Applies(Cell):
    """One function between a product and the state."""

    def __init__(self, function, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.function, self.a = function, self.affine("x")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return 0.1 * h + self.function(self.a(x))


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_every_function_in_a_cell(number: int, dtype: torch.dtype):
    cell = Applies(FUNCTIONS[number], 6, 21).to(dtype)
    found = compare(cell, sequences(cell, 3, 9, dtype))
    assert found.backend == "compiled"
    limit = 1e-11 if dtype == torch.float64 else 2e-6
    assert found.values < limit
    assert found.gradients < limit


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, torch.exp, torch.expm1])
def test_single_precision_functions_over_their_whole_range(function):
    class Only(Cell):
        def __init__(self) -> None:
            super().__init__(5, 5)
            self.w = self.vector()

        def step(self, x: Tensor, h: Tensor) -> Tensor:
            return function(x) + 0.0 * (self.w + h)

    cell = Only()
    x = torch.cat([torch.linspace(-120, 120, 2001), torch.logspace(-30, 1, 2000), -torch.logspace(-30, 1, 2000)])
    x = x[: len(x) // 5 * 5].view(1, -1, 5)
    with torch.no_grad():
        given = sequences(cell, 1, x.shape[1], torch.float32)
        given = type(given)(x, tuple(torch.zeros_like(s) for s in given.state), {})
        from recurra.engine.dispatch import scan

        found, exact = scan(cell, given).y, function(x.double())
    finite = exact.float().isfinite()
    error = (found.double() - exact).abs()[finite]
    assert torch.equal(found.isinf(), ~finite)
    assert (error <= 4 * 2**-23 * exact.abs()[finite] + 2e-38).all()  # denormal numbers may become zero
    if function is torch.tanh:
        assert (found[x.abs() > 20].abs() == 1).all()
