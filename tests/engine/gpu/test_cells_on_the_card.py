"""Every cell on a CUDA device: as near to float64 as the plain loop in the same dtype, forward and every gradient."""

import pytest
import torch
from engine.gpu.accuracy import drawn, error, in_float64, inferred, results
from engine.strange_cells import STRANGE, InOtherOrders, Noisy

import recurra as rc
from recurra.cell import Cell
from recurra.cells import canonical_names
from recurra.engine.dispatch import Sequences
from recurra.engine.gpu import select

pytestmark = pytest.mark.gpu

COMPLEX = {"unitary_rnn"}
MODES = ["row_per_program", "cooperative"]  # of the programs of one kernel
ITS_OWN_WEIGHTS_ARE_LESS_EXACT = {"orthogonal_rnn"}  # torch's factorisation has no 16-bit form
CASES = [*(n for n in sorted(canonical_names()) if n not in COMPLEX), *STRANGE, InOtherOrders, Noisy]
# What a sum of a few rounded numbers may cost either engine: below it, twice the other's error says nothing.
FLOOR = {torch.float32: 8e-7, torch.bfloat16: 4e-3, torch.float16: 1e-3}


def made(case: str | type[Cell], dtype: torch.dtype) -> Cell:
    torch.manual_seed(7)
    cell = case(24, 40) if isinstance(case, type) else rc.layer(case, 24, 40).cell_list[0]
    return cell.cuda().to(dtype)


def check(case: str | type[Cell], dtype: torch.dtype, steps: int, batch: int, ragged: bool) -> None:
    cell = made(case, dtype)
    lengths = torch.randint(1, steps + 1, (batch,)) if ragged else None
    times = 8 if any(state.axes for state in cell.carried) else 2  # sums over the axes of a matrix go another way
    compare(cell, drawn(cell, steps, batch, lengths.cuda() if lengths is not None else None), times)


def compare(cell: Cell, given: Sequences, times: float = 2) -> None:
    """`times`: how much further from float64 than the plain loop."""
    dtype = given.x.dtype
    ran, found = results(cell, given, "auto")
    for name, value in inferred(cell, given).items():
        assert error(value, found[name].double()) <= FLOOR[dtype], name
    _, plain = results(cell, given, "reference")
    _, truth = results(cell.double(), in_float64(given), "reference")
    assert ran == "compiled"
    for name, value in truth.items():
        if dtype is torch.float16 and not plain[name].isfinite().all():
            continue  # the plain loop overflows
        lone = 4 if value.numel() == 1 else 1  # a single number's error is a draw, not an average
        allowed = lone * (times * error(plain[name], value) + FLOOR[dtype])
        assert error(found[name], value) <= allowed, name


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_float32(case: str | type[Cell], ragged: bool, mode: str):
    with select.only(mode):
        check(case, torch.float32, 20, 19, ragged)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", [c for c in CASES if c not in ITS_OWN_WEIGHTS_ARE_LESS_EXACT])
def test_bfloat16(case: str | type[Cell], mode: str):
    with select.only(mode):
        check(case, torch.bfloat16, 20, 19, False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("case", ["lstm", "gru", "mgu", "rnn", "projection_lstm"])
@pytest.mark.parametrize("batch", [1, 33, 200, 700])
def test_float16_in_batches_of_any_size(case: str, batch: int, mode: str):
    with select.only(mode):
        check(case, torch.float16, 9, batch, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(
    ("batch", "units"), [(16, 768), (64, 256), (64, 128), (8, 512), (128, 1024), (100, 264), (130, 2048)]
)
@pytest.mark.parametrize("name", ["lstm", "gru", "rnn"])
def test_sizes_that_are_cut_in_different_tiles(name: str, batch: int, units: int, dtype: torch.dtype):
    torch.manual_seed(2)
    cell = rc.layer(name, 16, units).cell_list[0].cuda().to(dtype)
    compare(cell, drawn(cell, 4, batch))


@pytest.mark.parametrize("units", [1, 7, 130, 520])
def test_widths_that_are_no_multiple_of_anything(units: int):
    torch.manual_seed(2)
    cell = rc.layer("lstm", 3, units).cell_list[0].cuda()
    given = drawn(cell, 6, 5)
    ran, found = results(cell, given, "auto")
    assert ran == "compiled"
    _, truth = results(cell.double(), in_float64(given), "reference")
    for name, value in truth.items():
        assert error(found[name], value) < 2e-6, name
