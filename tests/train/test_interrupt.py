"""SIGTERM and Ctrl-C: a real process, hit in every phase, saves, ends with the right code, and goes on later."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import nn
from train import runs
from train.worker import train

from recurra.data import Streams
from recurra.train import Interrupted, KeyboardInterrupted, checkpoint, fit

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def hit(folder, phase: str, signum: int, start) -> runs.Process:
    """A run that is sent a signal as soon as it is in the phase."""
    marker = folder.parent / "marker"
    process = start(folder, {"phase": phase, "marker": str(marker), "every": 1000})
    runs.wait_for(marker.exists, process)
    process.send_signal(signum)
    marker.with_suffix(".go").touch()
    return process


def check_saved_and_resumable(tmp_path, phase: str, signum: signal.Signals, start) -> None:
    process = hit(tmp_path / "run", phase, signum, start)
    code, _, err = runs.finish(process)
    assert code == CODES[signum]
    assert f"{signum.name} after step" in err
    assert "the same call resumes there" in err
    assert "Traceback" not in err
    progress = checkpoint.read_json(checkpoint.saved(tmp_path / "run")[-1] / "progress.json")
    expected = {"warm-up": (0, 0, 0), "training": (progress["step"], 0, progress["step"]), "evaluation": (12, 0, 12)}
    assert (progress["step"], progress["epoch"], progress["index"]) == expected[phase]
    train(tmp_path / "run", {})
    train(tmp_path / "whole", {})
    runs.assert_same(runs.final_state(tmp_path / "whole"), runs.final_state(tmp_path / "run"))


@pytest.mark.parametrize(("phase", "signum"), [("training", signal.SIGTERM), ("evaluation", signal.SIGINT)])
def test_a_signal_saves_and_ends_with_its_code(tmp_path, phase, signum):
    check_saved_and_resumable(tmp_path, phase, signum, runs.start)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("phase", "signum"),
    [
        ("warm-up", signal.SIGTERM),
        ("warm-up", signal.SIGINT),
        ("training", signal.SIGINT),
        ("evaluation", signal.SIGTERM),
    ],
)
def test_every_phase_takes_every_signal(tmp_path, phase, signum):
    check_saved_and_resumable(tmp_path, phase, signum, runs.Forked)


def raising(signum: int):
    return lambda event, run: os.kill(os.getpid(), signum) if event == "step" and run.progress.step == 2 else None


def small_run(**options):
    numbers = torch.randn(41, 3, generator=torch.Generator().manual_seed(0))  # a resumed run has the same data
    return fit(nn.GRU(3, 3), Streams(numbers, 2, 5), epochs=2, **options)


def test_without_a_folder_nothing_is_saved_and_that_is_said(caplog):
    with pytest.raises(Interrupted) as caught:
        small_run(callbacks=[raising(signal.SIGTERM)])
    assert (caught.value.code, caught.value.step, caught.value.checkpoint) == (143, 2, None)
    assert "nothing was saved" in caplog.text


def test_ctrl_c_is_a_keyboard_interrupt_as_well(tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        small_run(callbacks=[raising(signal.SIGINT)], checkpoints=tmp_path)
    assert isinstance(caught.value, KeyboardInterrupted)
    assert caught.value.checkpoint == checkpoint.saved(tmp_path)[-1]


def test_handlers_are_put_back():
    before = [signal.getsignal(number) for number in CODES]
    small_run()
    with pytest.raises(Interrupted):
        small_run(callbacks=[raising(signal.SIGTERM)])
    assert [signal.getsignal(number) for number in CODES] == before


def test_a_signal_in_the_last_moment_is_not_lost(tmp_path):
    last = lambda event, run: os.kill(os.getpid(), signal.SIGTERM) if len(run.progress.history) == 2 else None  # noqa: E731
    with pytest.raises(Interrupted):
        small_run(callbacks=[lambda event, run: last(event, run) if event == "epoch" else None], checkpoints=tmp_path)
    assert small_run(checkpoints=tmp_path).steps == 8


def test_a_thread_can_train_without_handlers():
    results = []
    thread = threading.Thread(target=lambda: results.append(small_run()))
    thread.start()
    thread.join()
    assert results[0].steps == 8


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    class Interrupting(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x, state=None):
            signal.raise_signal(signal.SIGINT)
            time.sleep(1.1)  # a launcher repeats the signal at once
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the second signal is kept for later")

    with pytest.raises(KeyboardInterrupt) as caught:
        fit(Interrupting(), Streams(torch.randn(41, 3), 2, 5))
    assert not isinstance(caught.value, KeyboardInterrupted)
