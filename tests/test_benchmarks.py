"""Benchmarks: results files record the environment of their numbers."""

import json
import platform
import re

import pytest
import torch

import recurra as rc
from benchmarks import environment as module
from benchmarks.environment import environment


def test_processor_versions_and_commit():
    found = environment("numpy", "no-such-distribution")
    assert json.loads(json.dumps(found)) == found
    assert {"processor", "cores", "device", "python", "torch", "triton", "recurra", "commit"} < set(found)
    assert found["processor"]
    assert (found["python"], found["torch"], found["recurra"]) == (
        platform.python_version(),
        torch.__version__,
        rc.__version__,
    )
    assert found["numpy"]
    assert found["no-such-distribution"] is None
    assert found["commit"] is None or re.fullmatch(r"[0-9a-f]{40}(-dirty)?", str(found["commit"]))


def test_outside_a_checkout_there_is_no_commit(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert module.commit() is None
