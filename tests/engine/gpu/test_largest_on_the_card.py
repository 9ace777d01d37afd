"""The largest number of a row on a CUDA device."""

import pytest
import torch
from engine.gpu.accuracy import drawn, error, in_float64, inferred, results
from torch import Tensor, tanh

from recurra.cell import Cell
from recurra.engine.backend import EngineWarning
from recurra.engine.dispatch import choose
from recurra.engine.gpu import select

pytestmark = pytest.mark.gpu


class Most(Cell):
    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a = self.affine("x", "h")

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.a(x, h)
        return tanh(a) * torch.sigmoid(a.amax(-1, keepdim=True)) + 0.3 * h


@pytest.mark.parametrize("mode", ["row_per_program", "cooperative", "stepwise"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_without_gradients(dtype: torch.dtype, mode: str):
    torch.manual_seed(3)
    cell = Most(24, 100).cuda().to(dtype)
    given = drawn(cell, 30, 19)
    given.x[20, 1, 0] = float("nan")
    with torch.no_grad(), select.only(mode):
        assert choose(cell, given).backend == "compiled"
        y = inferred(cell, given)["y"]
    truth = inferred(cell.double(), in_float64(given))["y"]
    assert torch.equal(y.isnan(), truth.isnan())
    assert truth.isnan().any()
    there = ~truth.isnan()
    assert error(y[there], truth[there]) < (1e-6 if dtype == torch.float32 else 1e-2)


@pytest.mark.gpu(engine="reference")
def test_its_derivative_is_left_to_the_plain_loop():
    cell = Most(5, 7).cuda()
    given = drawn(cell, 6, 3)
    with pytest.warns(EngineWarning, match="does not take the derivative of a maximum over a row on the GPU"):
        ran, found = results(cell, given, "auto")
    assert ran == "reference"
    _, truth = results(cell.double(), in_float64(given), "reference")
    for name, value in truth.items():
        assert error(found[name], value) < 1e-5, name
