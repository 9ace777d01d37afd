"""The choice between persistent and stepwise loops, the split into windows, and the text of `rc.explain`."""

import pytest
import torch

import recurra as rc
from recurra.engine.gpu import select
from recurra.engine.gpu.describe import describe
from recurra.engine.gpu.inputs_ahead import take_out
from recurra.engine.gpu.persistent.tiling import Tiling, is_x, tiling
from recurra.engine.gpu.runner import GpuExecutor
from recurra.engine.gpu.stepwise.run import StepwiseLoop, _split
from recurra.engine.plan.planner import plan
from recurra.engine.plan.schedule import schedule
from recurra.engine.traced_step import trace_in_clean_context

pytest.importorskip("triton")
CPU = torch.device("cpu")
H200, SMALL = (132, 232_448), (16, 65_536)  # multiprocessors, and bytes of shared memory for a program


def tiling_on(card: tuple[int, int], units: int, batch: int, name: str = "lstm", mode: str = "") -> Tiling | None:
    cell = rc.layer(name, 16, units).cell_list[0]
    planned = plan(cell, trace_in_clean_context(cell), train=False, needs_x=False)
    return tiling(schedule(planned.forward), 2, batch, *card, mode)


def on_gpu(name: str, train: bool = True, dtype: torch.dtype = torch.float32) -> GpuExecutor:
    cell = rc.layer(name, 6, 4).cell_list[0]
    return GpuExecutor(plan(cell, trace_in_clean_context(cell), train=train, needs_x=train), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_plan_for_the_card_asks_nothing_of_the_processor(dtype: torch.dtype):
    made = on_gpu("lstm", dtype=dtype)
    assert made.runs  # the processor has no kernel of this dtype to sum them with


def test_weights_that_stay_on_the_chip_ask_for_one_kernel():
    shape = tiling_on(H200, 512, 64)
    assert shape is not None
    assert shape.weights in ("registers", "shared")
    assert select.why_stepwise(shape, 64, CPU, "forward") == ""


@pytest.mark.parametrize(
    ("name", "units", "batch", "row_per_program"),
    [
        ("lstm", 64, 64, True),
        ("gru", 128, 64, True),
        ("lstm", 128, 64, False),  # four matrices of 128² are more than a multiprocessor's registers
        ("lstm", 64, 4000, False),  # so many rows are work for tensor cores
        ("indrnn", 64, 64, False),  # nothing is multiplied
        ("delay_rnn", 16, 64, False),  # states of several steps ago are read from memory
    ],
)
def test_a_program_has_a_row_to_itself_if_the_layer_is_small(name: str, units: int, batch: int, row_per_program: bool):
    shape = tiling_on(H200, units, batch, name)
    assert shape is not None
    assert shape.row_per_program == row_per_program
    cooperative = tiling_on(H200, units, batch, name, "cooperative")
    assert cooperative is not None
    assert not cooperative.row_per_program


def test_large_weights_run_stepwise_from_some_rows_on():
    few, many = (tiling_on(SMALL, 500, batch) for batch in (1, 512))
    assert few is not None
    assert few.weights == "memory"
    assert select.why_stepwise(few, 1, CPU, "forward") == ""
    assert "too many for the chip" in select.why_stepwise(many, 512, CPU, "forward")


def test_a_card_with_too_few_processors_goes_step_by_step():
    assert tiling_on(SMALL, 640, 64) is None
    assert "too few multiprocessors" in select.why_stepwise(None, 64, CPU, "backward")


def test_a_mode_can_be_forced():
    shape = tiling_on(H200, 512, 64)
    with select.only("stepwise"):
        assert select.why_stepwise(shape, 64, CPU, "forward")
        assert isinstance(on_gpu("lstm").loops.find(False, 3, False, CPU), StepwiseLoop)
    assert not isinstance(on_gpu("lstm").loops.find(False, 3, False, CPU), StepwiseLoop)


def test_a_refused_loop_goes_step_by_step_from_then_on():
    made = on_gpu("lstm")
    assert not isinstance(made.loops.find(True, 3, False, CPU), StepwiseLoop)
    made.loops.refuse(True, 3, CPU)
    assert isinstance(made.loops.find(True, 3, False, CPU), StepwiseLoop)
    assert not isinstance(made.loops.find(False, 3, False, CPU), StepwiseLoop)
    assert not isinstance(made.loops.find(True, 4, False, CPU), StepwiseLoop)


def test_what_triton_says_of_a_grid_that_does_not_fit_is_a_refusal_and_nothing_else_is():
    _, no_room = select.launch_errors()
    assert select.is_refusal(RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch"))
    assert select.is_refusal(no_room(300_000, 232_448, "shared memory"))
    assert not select.is_refusal(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"))


@pytest.mark.parametrize("steps", [1, 31, 32, 33, 64, 127])
def test_a_sequence_is_cut_into_windows_of_few_sizes(steps: int):
    pieces = list(_split(steps, 32))
    assert [first for first, _ in pieces] == [sum(count for _, count in pieces[:i]) for i in range(len(pieces))]
    assert sum(count for _, count in pieces) == steps
    assert {count for _, count in pieces} <= {1, 2, 4, 8, 16, 32}
    assert sum(count < 32 for _, count in pieces) <= 5


def test_the_description_names_mode_and_reason():
    made = on_gpu("gru")
    assert "forward, one kernel for all steps:" in "\n".join(describe(made, 3, CPU, source=False))
    with select.only("row_per_program"):
        assert "all columns of each of 3 rows" in "\n".join(describe(made, 3, CPU, source=False))
    with select.only("stepwise"):
        text = "\n".join(describe(made, 3, CPU, source=True))
    assert "forward, step by step: it was asked for" in text
    assert "1. one product: 4 → 8 columns" in text
    assert "2. one product: 4 → 4 columns" in text
    assert "2. one kernel over 4 columns" in text
    assert "def group1(" in text


def test_states_that_are_multiplied_at_the_same_step_lie_side_by_side():
    """So that h goes to all lanes in one product, and the three gates to theirs in another."""
    with select.only("stepwise"):
        (stage,) = on_gpu("full_gate_lstm").loops.find(False, 3, False, CPU).rendered.stages
    assert [(product.deep, product.wide) for product in stage.products] == [(4, 16), (12, 12)]
    assert len({product.operand for product in stage.products}) == 1


def test_a_masked_input_is_multiplied_before_the_loop():
    """With variational dropout x comes masked; a mask of states alone changes nothing there."""
    for modifier, count in ((rc.VariationalDropout(0.3), 1), (rc.RecurrentDropout(0.3), 0)):
        cell = rc.layer("lstm", 5, 6, modifiers=modifier).cell_list[0]
        planned = plan(cell, trace_in_clean_context(cell), train=True, needs_x=True)
        found = take_out(planned.forward)
        assert len(found.made) == count
        lanes = [lane for group in schedule(found.program).groups for lane in group.lanes]
        assert all(any(map(is_x, lane.args)) for lane in lanes)
