"""The programs in examples/: each runs as a person would start it, with small settings, and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
#: small settings, and what must be printed
RUNS = {
    "character_lm": (["--epochs", "1", "--units", "16"], r"([\d.]+) bits per character"),
    "tag_entities": (["--epochs", "5"], r"F1 of entities: ([\d.]+)"),
    "forecast_electricity": (["--epochs", "1"], r"model +([\d.]+)"),
    "classify_sensors": (["--epochs", "2"], r"random recurrent features +([\d.]+)%"),
    "paper_cell": (["--length", "10", "--updates", "60", "--units", "8"], r"weighted average .* ([\d.]+)\n"),
    "stream_microphone": (["--recordings", "16", "--seconds", "4"], r"([\d.]+)% of 400 frames"),
    "train_distributed": (["--sequences", "320", "--epochs", "1"], r"squared error ([\d.]+)"),
    "onnx_elsewhere": (["--epochs", "2"], r"difference of a probability ([\d.e-]+)"),
    "actor_critic": (["--frames", "24000"], r"24000 frames: .* stood (\d+) steps"),
}
#: the worst that is accepted; a network that has learned nothing is beyond it
LIMITS = {
    "character_lm": (0, 6.4),  # 89 kinds of characters, all alike
    "tag_entities": (0.8, 1),
    "forecast_electricity": (0, 3.8),  # the naive forecast
    "classify_sensors": (95, 100),
    "paper_cell": (0, 0.7),
    "stream_microphone": (50, 100),
    "train_distributed": (0, 1.5),
    "onnx_elsewhere": (0, 1e-5),
    "actor_critic": (100, 500),  # 22 before it learns, 215 to 242 over five seeds
}


def run(name: str, options: list[str], launcher: tuple[str, ...] = ()) -> float:
    """The number an example prints."""
    command = [sys.executable, *launcher, str(EXAMPLES / f"{name}.py"), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = re.search(RUNS[name][1], done.stdout)
    assert found, done.stdout
    return float(found[1])


def test_every_example_is_listed_and_short():
    files = sorted(EXAMPLES.glob("*.py"))
    listed = re.findall(r"\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [file.stem for file in files] == sorted(RUNS)
    for file in files:
        assert 40 <= len(file.read_text(encoding="utf-8").splitlines()) <= 120, file.name


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs(name: str):
    low, high = LIMITS[name]
    assert low <= run(name, RUNS[name][0]) <= high


@pytest.mark.slow
def test_two_processes_train_the_model_of_one():
    options, torchrun = (
        RUNS["train_distributed"][0],
        ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    )
    assert run("train_distributed", options, torchrun) == pytest.approx(run("train_distributed", options), rel=1e-3)
