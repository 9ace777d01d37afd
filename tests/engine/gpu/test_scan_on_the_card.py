"""Scans over time on a CUDA device: as near to float64 as the plain loop, whatever the chunks."""

import pytest
import torch
from engine.gpu.accuracy import drawn, error, layer, plain, results
from engine.gpu.interpreted_scan import OWN
from engine.gpu.test_cells_on_the_card import compare
from torch import Tensor

import recurra as rc
from recurra.cell import Cell
from recurra.engine.dispatch import choose
from recurra.engine.gpu import select
from recurra.engine.gpu.runner import GpuExecutor

pytestmark = pytest.mark.gpu

ZOO = ("min_gru", "min_lstm", "sru", "hgrn", "rg_lru", "gateloop", "lru", "s5", "qrnn", "mamba", "s4d")
SIZES = ((20, 19), (300, 2), (1000, 1))  # (steps, sequences): in one chunk, in several; the last one is shorter


def made(name: str, dtype: torch.dtype, units: int = 40) -> Cell:
    torch.manual_seed(7)
    cell = OWN[name](24, units) if name in OWN else rc.layer(name, 24, units).cell_list[0]
    return cell.cuda().to(dtype)


def executor(cell: Cell, steps: int, batch: int) -> GpuExecutor:
    found = choose(cell, drawn(cell, steps, batch)).executor
    assert isinstance(found, GpuExecutor)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ZOO)
def test_values_and_gradients(name: str, size: tuple[int, int], dtype: torch.dtype):
    cell = made(name, dtype)
    assert executor(cell, *size).scans(size[0])
    compare(cell, drawn(cell, *size), times=3)  # of one sequence, a gradient is a long sum with few rows to average


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", ["Choice", "Many"])
def test_choices_rotations_and_states_that_follow_others(name: str, size: tuple[int, int]):
    cell = made(name, torch.float32)
    compare(cell, drawn(cell, *size))


@pytest.mark.parametrize("name", ["min_gru", "sru", "lru", "Chain"])
def test_sequences_of_different_lengths(name: str):
    cell = made(name, torch.float32)
    if name == "Chain":
        with torch.no_grad():
            cell.a.U.mul_(0.2)
    compare(cell, drawn(cell, 300, 5, torch.tensor([300, 1, 64, 0, 299]).cuda()))


@pytest.mark.parametrize("units", [1, 5, 65, 200])
def test_any_number_of_units(units: int):
    compare(made("min_gru", torch.float32, units), drawn(made("min_gru", torch.float32, units), 200, 3))


def test_resets_and_both_directions():
    model = layer("min_gru", torch.float32, bidirectional=True)
    x, resets = torch.randn(300, 4, 32, device="cuda"), torch.rand(300, 4, device="cuda") < 0.05
    assert torch.allclose(model(x, resets=resets)[0], plain(model, x, resets=resets), atol=5e-6)
    assert torch.allclose(model(x)[0], plain(model, x), atol=5e-6)


def test_replayed_calls_read_new_numbers():
    cell = made("min_gru", torch.float32)
    for _ in range(6):
        given = drawn(cell, 300, 2)
        found, expected = (results(cell, given, backend)[1] for backend in ("auto", "reference"))
        assert all(error(found[name], expected[name].double()) < 1e-5 for name in found)


def test_two_runs_give_the_same_bits():
    cell = made("lru", torch.bfloat16)
    given = drawn(cell, 500, 3)
    first, *others = (results(cell, given, "auto")[1] for _ in range(5))
    assert all(torch.equal(first[name], other[name]) for other in others for name in first)


def test_a_million_steps():
    """No further from float64 than the loop in 32 bits."""
    torch.manual_seed(0)
    model = rc.layer("min_gru", 4, 8).cuda()
    x = torch.randn(1 << 20, 1, 4, device="cuda")
    exact = rc.layer("min_gru", 4, 8).double()
    exact.load_state_dict({name: value.double().cpu() for name, value in model.state_dict().items()})
    with torch.no_grad():
        truth: Tensor = exact(x.double().cpu())[0]
        scanned = model(x)[0].cpu()
        with select.only(select.LOOP):
            looped = model(x)[0].cpu()
    assert error(scanned, truth) <= 1.1 * error(looped, truth) + 1e-7


@torch.no_grad()
def test_zero_stays_zero_whatever_the_decay():
    model = rc.Recurrent(OWN["Growing"], 2, 3).cuda()
    x = torch.zeros(1000, 1, 2, device="cuda")
    x[-1] = 1.0
    y = model(x)[0]
    assert not y[:-1].any()
    assert y[-1].isfinite().all()
    assert y[-1].any()


def test_explain_names_the_chunks():
    model, x = layer("min_gru"), torch.zeros(4096, 1, 32, device="cuda", dtype=torch.bfloat16)
    model(x)
    text = rc.explain(model, x)
    assert "all steps at once, as a scan over time" in text
    assert "a scan in 128 chunks of 32 steps" in text
