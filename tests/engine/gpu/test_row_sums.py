"""Row sums of cooperating programs: fewer exchanges, the same numbers."""

from types import FunctionType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from engine.gpu.accuracy import drawn, error, in_float64, results
from engine.strange_cells import RowNormalised
from torch import Tensor, sigmoid, tanh

import recurra as rc
from recurra.engine.backend import set_backend
from recurra.engine.gpu import select
from recurra.engine.gpu.row_sums import centred_squares, with_early_row_sums
from recurra.engine.plan.planner import plan
from recurra.engine.plan.schedule import schedule
from recurra.engine.traced_step import trace_in_clean_context


class NormedLSTM(rc.Cell):
    """Layer norm of every gate inside the step."""

    states = ("h", "c")

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.i, self.f, self.o, self.z = (self.affine("x", "h") for _ in range(4))

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, o, z = (F.layer_norm(gate(x, h), (self.hidden_size,)) for gate in (self.i, self.f, self.o, self.z))
        c = sigmoid(f) * c + sigmoid(i) * tanh(z)
        return sigmoid(o) * tanh(c), c


def stages(cell: rc.Cell, backward: bool) -> int:
    """Exchanges of a step: groups with a row sum that is not one of squares around a mean."""
    made = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
    program = made.backward if backward else made.forward
    assert program is not None
    groups = schedule(with_early_row_sums(program, backward)).groups
    return sum(any(not centred_squares(node) for node in group.rowsums) for group in groups)


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_a_normalised_step_waits_once(backward: bool):
    assert stages(NormedLSTM(32, 24), backward) == 1


def test_the_modifier_waits_once_for_the_products_and_once_for_the_memory():
    cell = rc.LSTM(32, 24, modifiers=rc.LayerNorm()).cell_list[0]
    assert stages(cell, False) == stages(cell, True) == 2


def test_squares_around_a_mean_from_parts():
    """The text of the kernel's function, run on torch's numbers."""
    pytest.importorskip("triton")
    from recurra.engine.gpu.tiles_common import square, squares_around

    values = torch.randn(3, 21, dtype=torch.float64) * 0.1 + 30
    mean = values.mean(1, keepdim=True)
    parts = [values[:, first : first + 8] for first in (0, 8, 16)]
    sums = torch.stack([part.sum(1) for part in parts], 1)
    squares = torch.stack([((part - part.mean(1, keepdim=True)) ** 2).sum(1) for part in parts], 1)
    columns = torch.tensor([[8.0, 8.0, 5.0]], dtype=torch.float64)
    language = SimpleNamespace(maximum=lambda value, least: value.clamp(min=least))
    names = {"own_columns": lambda *_: columns, "square": square, "L": language}
    run = FunctionType(squares_around.__code__, names)
    found = run(sums, squares, mean, torch.arange(3), 1, 21, 8).sum(1)
    torch.testing.assert_close(found, ((values - mean) ** 2).sum(1), rtol=1e-9, atol=0)


SHAPES = [(NormedLSTM, 256, 64), (NormedLSTM, 256, 16), (NormedLSTM, 200, 33), (RowNormalised, 256, 64)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("cell_class", "units", "batch"), SHAPES)
def test_on_the_card(cell_class: type[rc.Cell], units: int, batch: int, dtype: torch.dtype):
    """Batches and widths whose tiles have fewer parts than threads, and more."""
    torch.manual_seed(0)
    cell = cell_class(32, units).cuda().to(dtype)
    given = drawn(cell, 12, batch)
    with select.only("cooperative"):
        ran, found = results(cell, given, "auto")
    assert ran == "compiled"
    exact = cell_class(32, units).cuda().double()
    exact.load_state_dict(cell.state_dict())
    _, truth = results(exact, in_float64(given), "reference")
    with set_backend("reference"):
        _, plain = results(cell, given, "reference")
    for name, value in truth.items():
        allowed = 2e-5 if dtype == torch.float32 else 4 * error(plain[name], value) + 1e-2
        assert error(found[name], value) <= allowed, name
