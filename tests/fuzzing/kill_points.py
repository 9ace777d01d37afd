"""Kill points: training and saving processes, killed at a random moment; what is left loads and goes on.

A run that is killed and started again, as often as it takes, ends with the bits of a run that was never killed. A model
folder that is saved into and killed holds one model whole.
"""

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from train import runs
from train.worker import train

from recurra.storage import FolderContents, read_folder, write_folder

OPTIONS = {"case": "streams", "every": 2}
_whole: list[dict] = []  # the end of a run that was not killed


def check(seed: int) -> str:
    """What is wrong after the kills of this seed; empty if nothing is."""
    rng = random.Random(f"kill {seed}")
    with tempfile.TemporaryDirectory(prefix="recurra-fuzz-") as made:
        try:
            (_training if rng.random() < 0.5 else _saving)(Path(made), rng)
        except Exception as error:
            return f"kill point {seed}\n{type(error).__name__}: {error}"
    return ""


def _killed(work: Callable[[], object], seconds: float) -> bool:
    """Run in a forked child and kill it after so long; False if it ended by itself."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, f"the process failed with status {status}"
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _training(folder: Path, rng: random.Random) -> None:
    if not _whole:
        train(folder / "whole", OPTIONS)
        _whole.append(runs.final_state(folder / "whole"))
    for _ in range(rng.choice([1, 2, 4])):
        if not _killed(lambda: train(folder / "run", OPTIONS), rng.uniform(0.02, 1.0)):
            break
    train(folder / "run", OPTIONS)
    runs.assert_same(_whole[0], runs.final_state(folder / "run"))


def _model(number: int) -> FolderContents:
    """A model all of whose numbers are `number`."""
    return FolderContents("Test", {"number": number}, {"a": torch.full((1 + number % 7 * 5000,), float(number))})


def _saving(folder: Path, rng: random.Random) -> None:
    write_folder(folder, _model(0))

    def keep_saving() -> None:
        number = 0
        while True:
            number += 1
            write_folder(folder, _model(number))

    _killed(keep_saving, rng.uniform(0.0, 0.15))
    stored = read_folder(folder, "Test")
    (weight,) = set(stored.weights["a"].tolist())
    assert weight == stored.config["number"], f"weights of {weight}, config of {stored.config['number']}"
    write_folder(folder, _model(-1))
    assert read_folder(folder, "Test").config["number"] == -1
