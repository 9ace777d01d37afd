"""Every operation of the table on extreme numbers, on a CUDA device: value and gradient equal to torch's there."""

import pytest
import torch
from engine.operation_table import UNSIGNED_ON_A_GPU, TableCell, cases, cotangent, differences

from recurra.engine.backend import set_backend
from recurra.engine.dispatch import Sequences, scan
from recurra.engine.gpu import select

pytestmark = pytest.mark.gpu
PARTS = 6


@pytest.mark.parametrize("mode", ["row_per_program", "stepwise"])
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_is_torchs_on_extreme_numbers(part: int, mode: str):
    cell = TableCell(cases()[part::PARTS]).cuda()
    x = cell.values(torch.float32).cuda()
    x[x.abs() < torch.finfo(x.dtype).tiny] *= 0.0  # the kernels take denormal numbers for zeros, of either sign
    x.requires_grad_()
    with select.only(mode), set_backend("compiled"):
        y = scan(cell, Sequences(x, (x.new_zeros(x.shape[1], 1),))).y
        dy = cotangent(y.detach())
        (dx,) = torch.autograd.grad(y, x, dy)
    assert not differences(cell, x.detach(), y.detach(), dy, dx, UNSIGNED_ON_A_GPU)
