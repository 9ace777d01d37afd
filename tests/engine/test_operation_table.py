"""Every operation of the table on extreme numbers, value and gradient, compiled for the CPU: equal to torch's."""

from collections.abc import Callable

import pytest
import torch
from engine.operation_table import ATTRIBUTES, INF, NAN, TableCell, cases, cotangent, differences
from torch import Tensor

from recurra.cell import Cell
from recurra.engine import reference
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


REDUCTIONS = {
    "std": lambda x: x.std(-1, keepdim=True),
    "var": lambda x: x.var(-1, keepdim=True),
    "logsumexp": lambda x: x.logsumexp(-1, keepdim=True),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
}
ROWS = [[0.1] * 21, [3.0] * 21, [0.0] * 21, [-INF] * 21, [INF, *[1.0] * 20], [-INF, *[0.3] * 20], [NAN, *[1.0] * 20],
        [1e-30] * 21, [k / 7 for k in range(21)], [1e6] * 21]  # fmt: skip


class Reduced(Cell):
    def __init__(self, reduction: Callable[[Tensor], Tensor]):
        super().__init__(21, 21)
        self.reduction, self.w = reduction, self.vector(fill=0.5)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.reduction(x) + self.w * h


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_constant_and_infinite_rows_are_torchs(name: str, dtype: torch.dtype):
    cell = Reduced(REDUCTIONS[name]).to(dtype)
    rows = ROWS[:-1] if name == "logsumexp" else ROWS  # torch's derivative, e^(x - result), cancels for the last
    x = torch.tensor([rows], dtype=dtype, requires_grad=True)
    given = Sequences(x, (torch.zeros_like(x[0]),))
    with set_backend("compiled"):
        found = scan(cell, given).y
    expected = reference.scan(cell, given).y
    g = cotangent(found.detach())
    close = {"rtol": 8 * torch.finfo(dtype).eps, "atol": 8 * torch.finfo(dtype).eps, "equal_nan": True}
    torch.testing.assert_close(found, expected, **close)
    mine, theirs = (torch.autograd.grad(y, x, g)[0] for y in (found, expected))
    if name == "var":  # of rows with infinity it is NaN, and its derivative -inf in torch, from x - mean alone
        mine, theirs = (d[expected.isfinite()] for d in (mine, theirs))
    torch.testing.assert_close(mine, theirs, **close)
