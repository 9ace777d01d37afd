"""Benchmarks: results files record the environment of their numbers."""

import importlib
import json
import platform
import re
import time
from pathlib import Path

import pytest
import torch

import recurra as rc
from benchmarks import environment as module
from benchmarks import peers, sequential_mnist
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


# In place of the process that times cells: it dies at the second one, and prints what is no row.
DIES_AT_B = """
import json, sys
for name in sys.argv[3:]:
    print("noise")
    sys.exit(9) if name == "b" else print(json.dumps({"cell": name, "train_ms": 1.0}), flush=True)
"""


@pytest.fixture
def cells_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    found = importlib.import_module("cells_gpu")
    monkeypatch.setattr(found, "RESULTS", tmp_path / "cell_speed_h200.json")
    return found


def test_a_cell_that_ends_the_process_is_named_and_the_next_one_is_timed(cells_gpu, tmp_path, monkeypatch):
    script = tmp_path / "dies.py"
    script.write_text(DIES_AT_B)
    monkeypatch.setattr(cells_gpu, "__file__", str(script))
    found = dict(cells_gpu.rows(["a", "b", "c"], time.monotonic() + 60))
    assert found["a"] == found["c"] == {"train_ms": 1.0}
    assert found["b"]["error"].endswith("status 9")
    assert not dict(cells_gpu.rows(["a"], time.monotonic() - 1))


def test_a_cell_that_refuses_half_precision_is_timed_in_single(cells_gpu, monkeypatch):
    def timed(name: str, dtype: str) -> dict:
        if name == "neither" or dtype == "bf16":
            raise RuntimeError("not here")
        return {"dtype": dtype}

    monkeypatch.setattr(cells_gpu, "timed", timed)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert cells_gpu.measure("one") == {"dtype": "fp32", "refused": "bf16: RuntimeError: not here"}
    assert cells_gpu.measure("neither")["error"].count("RuntimeError: not here") == 2


def test_a_later_run_keeps_the_rows_of_the_same_machine(cells_gpu, monkeypatch):
    cells_gpu.save({"gru": {"train_ms": 1.0}})
    assert cells_gpu.earlier() == {"gru": {"train_ms": 1.0}}
    monkeypatch.setattr(cells_gpu, "environment", lambda: environment() | {"torch": "other"})
    assert cells_gpu.earlier() == {}


def test_the_picture_shows_a_compiled_loop_on_a_card_once_it_is_measured(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(peers, "RESULTS", tmp_path)
    assert peers.loops_on_card() == {}
    loop = {"recurra": 2.0, "compiled step in a loop": 40.0}
    rows = {"LSTM": loop, "GRU": {"recurra": 2.0}, "peephole LSTM": loop, "own cell": loop}
    (tmp_path / "peers_h200.json").write_text(json.dumps({"milliseconds": rows}))
    assert peers.loops_on_card() == {"compiled step in a loop": [20.0, 0.0, 20.0, 20.0]}
