"""Two real processes over gloo: the same numbers as one, one decision to stop, and no waiting for the dead."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from train import runs
from train.worker import train

from recurra.train import MismatchError, checkpoint

PAIR = {"case": "batches", "plain": True}


def finish_both(pair: list[runs.Forked]) -> list[tuple[int, str, str]]:
    return [runs.finish(process) for process in pair]


def test_two_processes_under_torchrun_train_as_one(tmp_path):
    """Batches of 7 are shares of 4 and 3, of 3 and 2, and of 1 and 0; without dropout the weights must agree."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(runs.WORKER)]
    arguments = [str(tmp_path / "pair"), json.dumps(PAIR)]
    done = subprocess.run([*command, *arguments], env=runs.environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    alone = train(tmp_path / "alone", PAIR)
    pair, one = runs.final_state(tmp_path / "pair", ranks=2), runs.final_state(tmp_path / "alone")
    for name, tensor in one["model"].items():
        torch.testing.assert_close(pair["model"][name], tensor, rtol=0, atol=1e-12)
    for a, b in zip(pair["log"], one["log"], strict=True):
        assert a == pytest.approx(b, abs=1e-12)
    assert alone.steps == pair["progress"]["step"]
    assert not torch.equal(pair["own"][0]["random"]["torch"], pair["own"][1]["random"]["torch"])  # dropout of their own
    with pytest.raises(MismatchError, match="written by 2 processes, but this run has 1"):
        train(tmp_path / "pair", PAIR)


@pytest.mark.slow
@pytest.mark.parametrize("norm", [False, True])
def test_a_killed_pair_resumes_bit_equal(tmp_path, norm):
    """With batch normalisation too, whose buffers are others in each process."""
    options = {"case": "streams", "every": 2, "norm": norm}
    assert [code for code, *_ in finish_both(runs.start_pair(tmp_path / "whole", options))] == [0, 0]
    pair = runs.start_pair(tmp_path / "killed", options | {"halt": 6})
    runs.wait_for(lambda: runs.steps_logged(tmp_path / "killed") >= 5, pair[0])
    for process in pair:
        process.kill()
    finish_both(pair)
    assert [code for code, *_ in finish_both(runs.start_pair(tmp_path / "killed", options))] == [0, 0]
    whole, resumed = (runs.final_state(tmp_path / name, ranks=2) for name in ("whole", "killed"))
    runs.assert_same(whole, resumed)
    first, second = (own["buffers"] for own in resumed["own"])
    assert set(first) == ({"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"} if norm else set())
    assert not norm or not torch.equal(first["norm.running_mean"], second["norm.running_mean"])


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["warm-up", "training", "evaluation"])
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_one_process_stops_both_with_its_code(tmp_path, phase, signum):
    marker = tmp_path / "marker"
    options = {"case": "streams", "every": 1000, "phase": phase, "marker": str(marker)}
    pair = runs.start_pair(tmp_path / "run", options)
    runs.wait_for(Path(f"{marker}1").exists, pair[1])
    pair[1].send_signal(signum)
    Path(f"{marker}.go").touch()
    results = finish_both(pair)
    assert [code for code, *_ in results] == [128 + signum] * 2, results
    assert "the same call resumes there" in results[0][2]
    assert len(checkpoint.saved(tmp_path / "run")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("dead", [0, 1])
def test_a_dead_process_ends_the_other_with_a_message(tmp_path, dead):
    pair = runs.start_pair(tmp_path, {"case": "streams", "pause": 0.05, "every": 2, "epochs": 100})
    runs.wait_for(lambda: runs.steps_logged(tmp_path) >= 5, pair[0])
    pair[dead].kill()
    results = finish_both(pair)  # gives up long before the half hour that gloo waits for a process
    code, _, err = results[1 - dead]
    assert code == 1
    assert f"process {1 - dead} of 2 lost the connection to another one" in err
    assert "The run was at step" in err
    assert "is kept and the same call resumes there" in err


@pytest.mark.slow
def test_torchrun_ends_after_a_death(tmp_path):
    """The process that is left ends by itself, with a message, before torchrun kills it."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(runs.WORKER)]
    options = '{"case": "streams", "epochs": 1000, "die": 4}'
    done = subprocess.run(
        [*command, str(tmp_path), options], env=runs.environment(), capture_output=True, text=True, timeout=600
    )
    assert done.returncode != 0
    assert "lost the connection to another one" in done.stderr
    assert "forcefully" not in done.stderr, "torchrun waited 30 s for the other process and killed it"


@pytest.mark.slow
def test_a_failing_disk_in_one_process_is_everyones(tmp_path):
    """Process 1 cannot write its part, so the checkpoint of process 0 is not published either."""
    pair = runs.start_pair(tmp_path, {"case": "streams", "every": 1000, "epochs": 1, "spoil": 1})
    results = finish_both(pair)
    assert [code for code, *_ in results] == [0, 0], results
    assert all("CheckpointWarning" in err for *_, err in results)
    assert [path.name for path in checkpoint.saved(tmp_path)] == ["checkpoint-000001"]
    assert not list(tmp_path.glob(".writing*"))


@pytest.mark.slow
def test_a_number_that_is_not_finite_ends_both_with_the_reason(tmp_path):
    pair = runs.start_pair(tmp_path, {"case": "streams", "poison": 1})
    results = finish_both(pair)
    assert [code for code, *_ in results] == [1, 1]
    assert "NonFiniteError: step 3: the loss is not finite; first seen in the weights" not in results[0][2]
    assert "first seen in the output of layer rnn" in results[1][2]
    assert "first seen in another process" in results[0][2]
