"""Two runs in one folder: the second is told which process is there; the folder of a killed run is free."""

import json
import signal
import time

import pytest
from train import runs
from train.worker import train

from recurra.train import RunInUseError, checkpoint

SLOW = {"case": "streams", "pause": 0.5, "every": 1}


def test_the_second_run_is_refused_and_the_folder_of_a_killed_one_is_free(tmp_path):
    first = runs.Forked(tmp_path / "run", SLOW)
    try:
        runs.wait_for(lambda: len(checkpoint.saved(tmp_path / "run")) == 2, first)
        with pytest.raises(RunInUseError, match=rf"run: in use by process {first.process.pid} on .*; wait until"):
            train(tmp_path / "run", SLOW)
    finally:
        first.kill()
        assert runs.finish(first)[0] == -signal.SIGKILL
    assert json.loads((tmp_path / "run" / ".lock").read_text())["pid"] == first.process.pid
    quick = SLOW | {"pause": 0.0}
    train(tmp_path / "run", quick)
    train(tmp_path / "whole", quick)
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "run"))
    assert not (tmp_path / "run" / ".lock").exists()


@pytest.mark.slow
def test_runs_that_race_and_are_killed_leave_one_run(tmp_path):
    """Three processes at a time start in one folder and are killed; the one run goes on, to the last bit."""
    options = SLOW | {"pause": 0.01}
    train(tmp_path / "whole", options | {"pause": 0.0})
    refused = 0
    for wave in range(5):
        before = checkpoint.saved(tmp_path / "run")
        racing = [runs.Forked(tmp_path / "run", options) for _ in range(3)]
        deadline = time.monotonic() + 60
        while checkpoint.saved(tmp_path / "run") == before and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.02 * wave)
        for process in racing:
            process.kill()
        refused += sum("RunInUseError" in runs.finish(process)[2] for process in racing)
    assert refused > 0, "no process met another"
    train(tmp_path / "run", options | {"pause": 0.0})
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "run"))


def test_a_pair_of_processes_is_refused_together(tmp_path):
    first = runs.Forked(tmp_path, SLOW)
    try:
        runs.wait_for(lambda: bool(checkpoint.saved(tmp_path)), first)
        results = [runs.finish(process) for process in runs.start_pair(tmp_path, SLOW)]
    finally:
        first.kill()
        runs.finish(first)
    assert [code for code, *_ in results] == [1, 1]
    assert f"in use by process {first.process.pid}" in results[0][2]
    assert "in use by another process" in results[1][2]
