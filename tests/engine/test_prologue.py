"""What is computed from weights alone is computed once a call, before the loop."""

import pytest
import torch
from engine.compare import compare, sequences
from torch import Tensor, nn, tanh

import recurra as rc
from recurra.engine.ir.lowering import lower_step
from recurra.engine.trace import trace


class Scaled(rc.Cell):
    """Two ways to write the same, a factor of one, and a whole number's."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.a, self.tau = self.affine("x", "h"), nn.Parameter(1.5 + torch.rand(hidden_size))
        self.register_buffer("whole", torch.arange(1, hidden_size + 1))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        new = tanh(self.a(x, h)) * (1 * self.tau) + 1.0 * self.whole
        return (1 - 1 / self.tau) * h + 1 / self.tau * new


def operations(cell: rc.Cell) -> list[str]:
    graph = lower_step(cell, trace(cell)).prologue.__self__.graph
    return [str(node.target) for node in graph.nodes if node.op == "call_function"]


def test_what_is_written_twice_is_computed_once():
    assert operations(rc.layer("leaky_rnn", 3, 4).cell_list[0]) == ["aten.reciprocal.default", "aten.rsub.Scalar"]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_it_is_the_same(dtype: torch.dtype):
    cell = Scaled(3, 4).to(dtype)
    assert operations(cell).count("aten.reciprocal.default") == 1
    found = compare(cell, sequences(cell, 5, 2, dtype))
    assert found.backend == "compiled"
    assert max(found.values, found.gradients) < (1e-12 if dtype == torch.float64 else 1e-5)
