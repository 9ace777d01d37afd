"""The two ways of a loop on a card: which is taken, how a sequence is cut, what a person is told."""

import pytest
import torch

import recurra as rc
from recurra.engine.gpu import select
from recurra.engine.gpu.describe import described
from recurra.engine.gpu.persistent.tiling import Tiling, tiling
from recurra.engine.gpu.runner import OnGpu
from recurra.engine.gpu.stepwise.run import Steps, _pieces
from recurra.engine.plan.planner import plan
from recurra.engine.plan.schedule import schedule
from recurra.engine.traced_step import trace_in_clean_context

pytest.importorskip("triton")
CPU = torch.device("cpu")
H200, SMALL = (132, 232_448), (16, 65_536)  # multiprocessors, and bytes of shared memory for a program


def tiling_on(card: tuple[int, int], units: int, batch: int, name: str = "lstm", way: str = "") -> Tiling | None:
    cell = rc.layer(name, 16, units).cell_list[0]
    planned = plan(cell, trace_in_clean_context(cell), train=False, needs_x=False)
    return tiling(schedule(planned.forward), 2, batch, *card, way)


def on_gpu(name: str, train: bool = True, dtype: torch.dtype = torch.float32) -> OnGpu:
    cell = rc.layer(name, 6, 4).cell_list[0]
    return OnGpu(plan(cell, trace_in_clean_context(cell), train=train, needs_x=train), dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_plan_for_the_card_asks_nothing_of_the_processor(dtype: torch.dtype):
    made = on_gpu("lstm", dtype=dtype)
    assert made.runs  # the processor has no kernel of this dtype to sum them with


def test_weights_that_stay_on_the_chip_ask_for_one_kernel():
    shape = tiling_on(H200, 512, 64)
    assert shape is not None
    assert shape.weights in ("registers", "shared")
    assert select.why_by_steps(shape, 64, CPU, "forward") == ""


@pytest.mark.parametrize(
    ("name", "units", "batch", "alone"),
    [
        ("lstm", 64, 64, True),
        ("gru", 128, 64, True),
        ("lstm", 128, 64, False),  # four matrices of 128² are more than a multiprocessor's registers
        ("lstm", 64, 4000, False),  # so many rows are work for tensor cores
        ("indrnn", 64, 64, False),  # nothing is multiplied
        ("delay_rnn", 16, 64, False),  # states of several steps ago are read from memory
    ],
)
def test_a_program_has_a_row_to_itself_if_the_layer_is_small(name: str, units: int, batch: int, alone: bool):
    shape = tiling_on(H200, units, batch, name)
    assert shape is not None
    assert shape.alone == alone
    together = tiling_on(H200, units, batch, name, "together")
    assert together is not None
    assert not together.alone


def test_weights_too_many_for_the_chip_go_by_rows():
    few, many = (tiling_on(SMALL, 500, batch) for batch in (1, 512))
    assert few is not None
    assert few.weights == "memory"
    assert select.why_by_steps(few, 1, CPU, "forward") == ""
    assert "too many for the chip" in select.why_by_steps(many, 512, CPU, "forward")


def test_a_card_with_too_few_processors_goes_step_by_step():
    assert tiling_on(SMALL, 640, 64) is None
    assert "too few multiprocessors" in select.why_by_steps(None, 64, CPU, "backward")


def test_a_way_can_be_asked_for():
    shape = tiling_on(H200, 512, 64)
    with select.only("by steps"):
        assert select.why_by_steps(shape, 64, CPU, "forward")
        assert isinstance(on_gpu("lstm").loop(False, 3, False, CPU), Steps)
    assert not isinstance(on_gpu("lstm").loop(False, 3, False, CPU), Steps)


def test_a_refused_loop_goes_step_by_step_from_then_on():
    made = on_gpu("lstm")
    assert not isinstance(made.loop(True, 3, False, CPU), Steps)
    made._refuse(True, 3, CPU)
    assert isinstance(made.loop(True, 3, False, CPU), Steps)
    assert not isinstance(made.loop(False, 3, False, CPU), Steps)
    assert not isinstance(made.loop(True, 4, False, CPU), Steps)


def test_what_triton_says_of_a_grid_that_does_not_fit_is_a_refusal_and_nothing_else_is():
    _, no_room = select.launch_errors()
    assert select.is_refusal(RuntimeError("Triton Error [CUDA]: too many blocks in cooperative launch"))
    assert select.is_refusal(no_room(300_000, 232_448, "shared memory"))
    assert not select.is_refusal(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"))


@pytest.mark.parametrize("steps", [1, 31, 32, 33, 64, 127])
def test_a_sequence_is_cut_into_windows_of_few_sizes(steps: int):
    pieces = list(_pieces(steps, 32))
    assert [first for first, _ in pieces] == [sum(count for _, count in pieces[:i]) for i in range(len(pieces))]
    assert sum(count for _, count in pieces) == steps
    assert {count for _, count in pieces} <= {1, 2, 4, 8, 16, 32}
    assert sum(count < 32 for _, count in pieces) <= 5


def test_a_person_is_told_the_way_and_the_reason():
    made = on_gpu("gru")
    assert "forward, one kernel for all steps:" in "\n".join(described(made, 3, CPU, source=False))
    with select.only("alone"):
        assert "all columns of each of 3 rows" in "\n".join(described(made, 3, CPU, source=False))
    with select.only("by steps"):
        text = "\n".join(described(made, 3, CPU, source=True))
    assert "forward, step by step: it was asked for" in text
    assert "1. one product: 4 → 8 columns" in text
    assert "2. one product: 4 → 4 columns" in text
    assert "2. one kernel over 4 columns" in text
    assert "def group1(" in text


def test_states_that_are_multiplied_at_the_same_step_lie_side_by_side():
    """So that h goes to all lanes in one product, and the three gates to theirs in another."""
    with select.only("by steps"):
        (stage,) = on_gpu("full_gate_lstm").loop(False, 3, False, CPU).rendered.stages
    assert [(product.deep, product.wide) for product in stage.products] == [(4, 16), (12, 12)]
    assert len({product.symbol for product in stage.products}) == 1
