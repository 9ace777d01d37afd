"""The GPU's kernels in Triton's interpreter on the CPU: forward and backward equal the plain loop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import REPRESENTATIVES
from engine.strange_cells import STRANGE

from recurra.engine.gpu.math_functions import EXPRESSIONS
from recurra.engine.ir.nodes import TABLE

TESTS = Path(__file__).parents[2]
# A constant state; parts of products; masks and noise; spikes; samples; nothing to compute.
ODD = ["Random4", "Random26", "MasksAndTime", "Noisy", "Spiking", "LeakySpiking", "RSSM", "OnlyAMask"]
QUICK = ["lstm", "gru", "delay_rnn", "scrn", "indrnn", "slstm/2:16", "Competing", *ODD]
REST = [n for n in sorted(REPRESENTATIVES) if n not in (*QUICK, "unitary_rnn")]
RANDOM = [0, 1, 3, 5, 6, 10, 14, 18, 21]
WIDE = ["lstm:150", "RowNormalised:150"]  # several programs share a row, and the batch


def run_in_the_interpreter(mode: str, names: list[str], program: str = "interpreted.py") -> str:
    """What the program prints. In a process of its own: the interpreter must be enabled before Triton is imported."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    child = subprocess.run(
        [sys.executable, TESTS / "engine" / "gpu" / program, mode, *names],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout[-3000:] + child.stderr[-3000:]
    return child.stdout


def check_in_the_interpreter(mode: str, names: list[str]) -> None:
    assert run_in_the_interpreter(mode, names).count("\n") == 2 * len(names)


def test_every_operation_of_the_table_can_be_written():
    assert set(EXPRESSIONS) | {"pow", "clamp", "integer"} == {
        op for op, rule in TABLE.items() if rule.expansion is None
    }


@pytest.mark.parametrize("mode", ["row_per_program", "cooperative", "stepwise"])
def test_a_few_cells(mode: str):
    check_in_the_interpreter(mode, QUICK)


@pytest.mark.parametrize("mode", [pytest.param("row_per_program", marks=pytest.mark.slow), "stepwise"])
def test_every_operation_is_torchs_on_extreme_numbers(mode: str):
    run_in_the_interpreter(mode, [], "interpreted_table.py")


@pytest.mark.parametrize("mode", [pytest.param("row_per_program", marks=pytest.mark.slow), "cooperative"])
def test_several_tiles_that_end_early(mode: str):
    """35 sequences, all of them shorter than the batch: tiles stop, take turns and share rows of like length."""
    check_in_the_interpreter(mode, ["delay_rnn:6", "MasksAndTime:6"])


def test_numbers_of_a_row_in_another_order():
    check_in_the_interpreter("stepwise", ["InOtherOrders", "mass_conserving_lstm"])


def test_rows_are_gathered_and_padding_is_left_out():
    assert run_in_the_interpreter("9x5x37", ["12x9x16"], "interpreted_gather.py") == "9x5x37\n12x9x16\n"


@pytest.mark.slow
def test_many_programs_step_by_step():
    check_in_the_interpreter("stepwise", WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["row_per_program", "cooperative", "stepwise"])
def test_random_cells(mode: str):
    check_in_the_interpreter(mode, [f"Random{seed}" for seed in RANDOM])


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["row_per_program", "cooperative", "stepwise"])
@pytest.mark.parametrize("names", [REST[::3], REST[1::3], REST[2::3], [cell.__name__ for cell in STRANGE]])
def test_every_other_cell(names: list[str], mode: str):
    check_in_the_interpreter(mode, names)
