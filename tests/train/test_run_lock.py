"""Two runs in one folder: the second is told which process is there; the folder of a killed run is free."""

import json
import signal
import time

import pytest
from train import runs
from train.worker import train
from waiting import wait_until

from recurra.train import RunInUseError, checkpoint

SLOW = {"case": "streams", "halt": 2, "every": 1}  # holds the folder until it is killed
QUICK = {"case": "streams", "every": 1}


def test_the_second_run_is_refused_and_the_folder_of_a_killed_one_is_free(tmp_path):
    first = runs.Forked(tmp_path / "run", SLOW)
    try:
        runs.wait_for(lambda: bool(checkpoint.saved(tmp_path / "run")), first)
        with pytest.raises(RunInUseError, match=rf"run: in use by process {first.process.pid} on .*; wait until"):
            train(tmp_path / "run", QUICK)
    finally:
        first.kill()
        assert runs.finish(first)[0] == -signal.SIGKILL
    assert json.loads((tmp_path / "run" / ".lock").read_text())["pid"] == first.process.pid
    train(tmp_path / "run", QUICK)
    train(tmp_path / "whole", QUICK)
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "run"))
    assert not (tmp_path / "run" / ".lock").exists()


@pytest.mark.slow
def test_runs_that_race_and_are_killed_leave_one_run(tmp_path):
    """Three processes at a time start in one folder and are killed; the one run goes on, to the last bit."""
    train(tmp_path / "whole", QUICK)
    for wave in range(5):
        before = checkpoint.saved(tmp_path / "run")
        racing = [runs.Forked(tmp_path / "run", QUICK | {"halt": 4}) for _ in range(3)]
        wait_until(lambda racing=racing: sum(process.poll() is not None for process in racing) == 2)
        wait_until(lambda before=before: checkpoint.saved(tmp_path / "run") != before)
        time.sleep(0.02 * wave)
        for process in racing:
            process.kill()
        errors = [runs.finish(process)[2] for process in racing]
        assert sum("RunInUseError" in error for error in errors) == 2, errors
    train(tmp_path / "run", QUICK)
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "run"))


def test_a_pair_of_processes_is_refused_together(tmp_path):
    first = runs.Forked(tmp_path, SLOW)
    try:
        runs.wait_for(lambda: bool(checkpoint.saved(tmp_path)), first)
        results = [runs.finish(process) for process in runs.start_pair(tmp_path, QUICK)]
    finally:
        first.kill()
        runs.finish(first)
    assert [code for code, *_ in results] == [1, 1]
    assert f"in use by process {first.process.pid}" in results[0][2]
    assert "in use by another process" in results[1][2]
