"""A killed run, resumed, ends where the undisturbed one does: to the last bit."""

import random
import signal
import time
from pathlib import Path

import pytest
from train import runs
from train.worker import Net, train

from recurra.train import checkpoint
from recurra.train.distributed import Processes


def to_the_end(folder: Path, options: dict, start=runs.start) -> dict:
    code, _, err = runs.finish(start(folder, options))
    assert code == 0, err
    return runs.final_state(folder)


@pytest.mark.parametrize("case", ["streams", "batches"])
def test_killed_in_the_middle_of_an_epoch_and_resumed_is_bit_equal(tmp_path, case):
    options = {"case": case, "pause": 0.02, "every": 2}
    whole = train(tmp_path / "whole", options | {"pause": 0.0})
    assert runs.kill_after(tmp_path / "killed", options, steps=5, start=runs.Forked)
    at = checkpoint.read_json(checkpoint.saved(tmp_path / "killed")[-1] / "progress.json")
    assert at["epoch"] < whole.history[-1]["epoch"], "the kill came too late to mean anything"
    state = to_the_end(tmp_path / "killed", options | {"pause": 0.0}, start=runs.Forked)
    runs.assert_same(runs.final_state(tmp_path / "whole"), state)


def test_carried_state_is_in_the_checkpoint(tmp_path):
    assert runs.kill_after(tmp_path, {"case": "streams", "pause": 0.02, "every": 1}, steps=3, start=runs.Forked)
    own = checkpoint.load_tree(checkpoint.saved(tmp_path)[-1] / "rank-0.safetensors")
    for state in own["carried"]:
        assert state.shape == (1, 4, 8)
        assert state.abs().sum() > 0
    assert len(own["carried"]) == 2  # h and c


@pytest.mark.slow
@pytest.mark.parametrize("case", ["streams", "batches"])
def test_ten_random_kills_each_then_bit_equal(tmp_path, case):
    chance = random.Random(case)
    options = {"case": case, "every": 2, "epochs": 8, "pause": 0.01}
    whole = to_the_end(tmp_path / "whole", options | {"pause": 0.0})
    kills = 0
    while kills < 10:
        assert runs.kill_after(tmp_path / "killed", options, steps=chance.randint(1, 4), start=runs.Forked), (
            "the run was over too soon"
        )
        kills += 1
    runs.assert_same(whole, to_the_end(tmp_path / "killed", options | {"pause": 0.0}))


@pytest.mark.slow
def test_a_hundred_kills_during_saving_leave_a_loadable_checkpoint(tmp_path):
    """One process after another saves after every step and is killed at a random moment."""
    chance, folder = random.Random(5), tmp_path / "run"
    options = {"case": "streams", "every": 1, "epochs": 1000}
    model, last, cut_short = Net(2, 8, 2), -1, 0
    for _ in range(100):
        before = checkpoint.saved(folder)
        child = runs.Forked(folder, options)
        runs.wait_for(lambda before=before: checkpoint.saved(folder) != before, child)
        runs.wait_for((folder / ".writing").exists, child)
        time.sleep(chance.uniform(0, 0.02))
        child.kill()
        assert runs.finish(child)[0] == -signal.SIGKILL
        cut_short += bool(list(folder.glob(".writing*")))
        step = checkpoint.read(checkpoint.saved(folder)[-1], model, Processes()).progress["step"]
        assert step >= last
        last = step
    assert last >= 80  # every process got further, by a step or by the end of an epoch
    assert cut_short >= 20, "too few of the kills fell into a save to mean anything"
    assert train(folder, options | {"epochs": 1}).steps == last  # the run is past its first epoch: only loaded
