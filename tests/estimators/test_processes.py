"""Estimators under torchrun: one job, whose model is that of one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from estimators import together

from recurra.tensor_files import load_tensors, read_json

NAMES = ("classifier", "features", "mixed", "regressor", "forecaster", "tagger", "language", "translation")


def numbers(value: Any) -> list[Any]:
    """All numbers of a tree, in order; texts must be equal, so they are compared as they are."""
    if isinstance(value, dict):
        return [number for key in sorted(value) for number in [key, *numbers(value[key])]]
    return [number for one in value for number in numbers(one)] if isinstance(value, list) else [value]


def assert_close(left: Path, right: Path, tolerance: float) -> None:
    for name in NAMES:
        a, b = (load_tensors(folder / f"{name}.safetensors")[0] for folder in (left, right))
        assert a.keys() == b.keys()
        for key in a:
            torch.testing.assert_close(a[key], b[key], rtol=tolerance, atol=tolerance, msg=lambda m, k=key: f"{k}: {m}")
        a, b = (numbers(read_json(folder / f"{name}.json")) for folder in (left, right))
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert one == (pytest.approx(other, rel=tolerance, abs=tolerance) if isinstance(one, float) else other)


@pytest.mark.slow
def test_all_estimators_under_torchrun_are_those_of_one_process(tmp_path):
    """In float64 the order of sums changes the tenth digit at most, also of linear parts, corrections and histories."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*command, together.__file__, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    torch.set_default_dtype(torch.float64)
    try:
        alone = together.fitted()
    finally:
        torch.set_default_dtype(torch.float32)
    together.write(alone, tmp_path / "alone")
    assert len(alone["classifier"].history_) < 6, "not stopped early"
    assert alone["forecaster"].calibrated_
    assert np.any(alone["forecaster"].shifts_)
    assert_close(tmp_path / "seeded-0", tmp_path / "alone", 1e-9)
    for kind in ("seeded", "unseeded"):
        assert_close(tmp_path / f"{kind}-0", tmp_path / f"{kind}-1", 0)
    with pytest.raises(AssertionError):  # without a seed the processes agree on one of their own
        assert_close(tmp_path / "unseeded-0", tmp_path / "alone", 1e-3)
