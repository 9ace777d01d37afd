"""A share of `make fuzz`: random cells, mutated files and kill points. Seeds are fixed here and fresh there."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from fuzzing import odd_cases
from fuzzing.odd_cells import FEATURES, OddCell, odd_cell

import recurra as rc
from recurra.engine.guards import Guards

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz.py"


@pytest.mark.slow
def test_two_minutes_of_fuzzing():
    command = [sys.executable, FUZZ, "--seconds", "115", "--seed", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"cells", "odd", "files", "kills"} <= set(re.findall(r"\d+ (\w+)", done.stdout))


@pytest.mark.parametrize("seed", range(12))
def test_odd_cells(seed: int):
    assert odd_cases.check(seed) == ""


def test_every_feature_of_odd_cells_is_drawn():
    drawn = "\n".join(odd_cell(seed).source for seed in range(400))
    assert all(feature.step.splitlines()[0] in drawn for feature in FEATURES)


def test_a_plan_that_is_not_made_anew_is_found(monkeypatch: pytest.MonkeyPatch):
    """A check that cannot fail is none: without guards, a number that changed between two calls is frozen."""
    changing = next(odd for odd in map(odd_cell, range(1000)) if odd.changes and _is_compiled(odd))
    assert odd_cases.check(changing.seed) == ""
    monkeypatch.setattr(Guards, "is_current", lambda self: True)
    monkeypatch.setattr("recurra.engine.cell_cache.CellCache.is_valid", lambda self: True)
    assert "y of call 1: apart by" in odd_cases.check(changing.seed)


def _is_compiled(odd: OddCell) -> bool:
    layer = rc.Recurrent(odd.build()[0], 3, 6)
    with rc.set_backend("auto"), warnings.catch_warnings():
        warnings.simplefilter("ignore", rc.EngineWarning)
        return "backend: compiled" in rc.explain(layer, torch.zeros(2, 3, 3))


def test_batch_norm_in_evaluation_runs_on_the_plain_loop():
    """It takes no gradient of its running mean, which tracing asks for."""
    assert odd_cases.check(101118) == ""
