"""Every operation of the table on extreme numbers, value and gradient, compiled for the CPU: equal to torch's."""

import pytest
import torch
from engine.operation_table import ATTRIBUTES, TableCell, cases, cotangent, differences

from recurra.engine.backend import set_backend
from recurra.engine.dispatch import Sequences, scan
from recurra.engine.ir.buffers import BufferRef
from recurra.engine.ir.nodes import Builder
from recurra.engine.ir.table import TABLE

PARTS = 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_is_torchs_on_extreme_numbers(part: int, dtype: torch.dtype):
    cell = TableCell(cases()[part::PARTS]).to(dtype)
    x = cell.values(dtype).requires_grad_()
    with set_backend("compiled"):
        y = scan(cell, Sequences(x, (x.new_zeros(x.shape[1], 1),))).y
    dy = cotangent(y.detach())
    (dx,) = torch.autograd.grad(y, x, dy)
    assert not differences(cell, x.detach(), y.detach(), dy, dx)


@pytest.mark.parametrize("op", [op for op, rule in TABLE.items() if rule.expansion is not None])
def test_every_expansion_ends_in_rows_with_code(op: str):
    builder = Builder()
    made = [case for case in cases() if case.name.partition(" ")[0] == op]
    leaves = [builder.load(BufferRef.mask(f"v{i}"), 7) for i in range(made[0].operands)]
    node = builder.make(op, *leaves, attr=ATTRIBUTES.get(op, [None])[0])
    plain = builder.expand_composites([node])[node]
    assert plain.op != op
    assert TABLE[plain.op].cpp
