"""The GPU's kernels in Triton's interpreter on the CPU: forward and backward equal the plain loop."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine.strange_cells import STRANGE

import recurra as rc
from recurra.engine.gpu.math_functions import EXPRESSIONS
from recurra.engine.ir.nodes import TABLE

TESTS = Path(__file__).parents[2]
ODD = ["Random4", "Random26", "MasksAndTime", "OnlyAMask"]  # a constant state; parts of products; nothing to compute
QUICK = ["lstm", "gru", "delay_rnn", "scrn", "indrnn", "Competing", *ODD]
REST = [n for n in sorted(rc.registry()) if n not in (*QUICK, "unitary_rnn")]
RANDOM = [0, 1, 3, 5, 6, 10, 14, 18, 21]
WIDE = ["lstm:150", "RowNormalised:150"]  # several programs share a row, and the batch


def run_in_the_interpreter(tier: str, names: list[str]) -> None:
    """Triton must hear of its interpreter before anybody imports it: a process of its own."""
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    child = subprocess.run(
        [sys.executable, TESTS / "engine" / "gpu" / "interpreted.py", tier, *names],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 0, child.stdout[-300:] + child.stderr[-3000:]
    assert child.stdout.count("\n") == 2 * len(names)


def test_every_operation_of_the_table_can_be_written():
    assert set(EXPRESSIONS) | {"pow", "clamp"} == set(TABLE)


@pytest.mark.parametrize("tier", ["alone", "together", "by steps"])
def test_a_few_cells(tier: str):
    run_in_the_interpreter(tier, QUICK)


@pytest.mark.slow
def test_many_programs_step_by_step():
    run_in_the_interpreter("by steps", WIDE)


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["alone", "together", "by steps"])
def test_cells_nobody_wrote(tier: str):
    run_in_the_interpreter(tier, [f"Random{seed}" for seed in RANDOM])


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["alone", "together", "by steps"])
@pytest.mark.parametrize("names", [REST[::3], REST[1::3], REST[2::3], [cell.__name__ for cell in STRANGE]])
def test_every_other_cell(names: list[str], tier: str):
    run_in_the_interpreter(tier, names)
