"""Benchmarks: results files record the environment of their numbers."""

import json
import platform
import re

import pytest
import torch

import recurra as rc
from benchmarks import environment as module
from benchmarks import sequential_mnist
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


@pytest.mark.parametrize("cell", ["s5", "lru"])
def test_the_recurrences_of_sequential_mnist_are_scans_with_a_rate_of_their_own(cell: str):
    network = sequential_mnist.Network(cell, 8, 4, 1, 0.0)
    layer = network.blocks[0].recurrence
    with rc.set_backend("compiled"):
        assert "parallel in time: re, im" in rc.explain(layer, torch.zeros(784, 2, 8))
    own, others = sequential_mnist.optimiser_of(network, 1.0, 0.5, 0.01, fused=False).param_groups
    names = {id(parameter): name for name, parameter in layer.cell_list[0].named_parameters()}
    modes = {name for name in names.values() if not name.startswith(("c_", "d"))} | ({"dt"} if cell == "s5" else set())
    assert {names[id(parameter)] for parameter in own["params"]} == modes
    assert (own["lr"], own["weight_decay"], others["lr"], others["weight_decay"]) == (0.5, 0.0, 1.0, 0.01)
    assert len(own["params"]) + len(others["params"]) == len(list(network.parameters()))


def test_sequential_mnist_warms_up_and_falls():
    rates = [sequential_mnist.schedule(i / 100, 0.05) for i in range(101)]
    assert rates[0] == 0.01
    assert rates.index(max(rates)) == 5
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] == 0.0
