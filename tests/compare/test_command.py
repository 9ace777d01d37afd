"""`recurra compare` on the command line."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compare.data import turns
from typer.testing import CliRunner
from waiting import wait_until

from recurra.cli.app import app
from recurra.compare.baselines import BASELINES
from recurra.compare.settings import CompareSettings
from recurra.errors import InputError, UnknownNameError
from recurra.problem.settings import load_settings

ROOT = Path(__file__).parent.parent.parent
FEW = ["--cells", "rnn", "--epochs", "1", "--seeds", "1", "--jobs", "1", "--hidden-size", "4", "--no-report"]


def start(*arguments: object, where: Path) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    command = [sys.executable, "-m", "recurra", "compare", *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, cwd=where)


def test_json_on_stdout_and_progress_on_stderr(tmp_path):
    process = start(turns(tmp_path / "turns.csv"), *FEW, "--json", where=tmp_path)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    found = json.loads(output)
    assert {row["name"] for row in found["rows"]} == {*BASELINES["classify"], "rnn"}
    assert Path(tmp_path / found["folder"]).parent.name == "runs"
    assert "'way' has one text label per 'unique_id'" in errors
    assert "rnn, seed 0: accuracy" in errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "wya"], "way"),
        (["--cells", "lsmt"], "'lstm'?"),
        (["--budget", "money"], "'parameters' or 'time'"),
        (["--set", "optimiser=sgd"], "optimizer"),
        (["--import", "no_such_module"], "no_such_module"),
        (["--storage", "nonsense"], "sqlite:///"),
    ],
)
def test_bad_input_is_one_paragraph(tmp_path, arguments, said):
    file = turns(tmp_path / "turns.csv")
    done = CliRunner().invoke(app, ["compare", str(file), *FEW, "--folder", str(tmp_path / "run"), *arguments])
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())
    assert "Traceback" not in done.output


def test_flags_override_the_settings_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text('cells = ["lstm", "gru"]\nseeds = 5\ntarget = "way"\n[options]\nlr = 0.1\nclip = 2.0\n')
    found = load_settings(CompareSettings, file, {"seeds": 2, "options": {"lr": 0.2}, "epochs": None})
    assert found.problem_arguments() == {"target": "way"}
    assert found.compare_arguments() == {"cells": ["lstm", "gru"], "seeds": 2, "settings": {"lr": 0.2, "clip": 2.0}}
    assert load_settings(CompareSettings, None, {}).compare_arguments() == {}


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("sedes = 3\n", UnknownNameError, "did you mean 'seeds'"),
        ("seeds = 0\n", InputError, "seeds: got 0"),
        ('budget = "money"\n', InputError, "budget"),
        ("options = 3\n", InputError, "a table"),
        ("seeds = \n", InputError, "TOML"),
    ],
)
def test_an_invalid_settings_file_is_named(tmp_path, text, error, said):
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(error, match=said) as raised:
        load_settings(CompareSettings, file, {})
    assert "run.toml" in str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_a_signal_gives_its_exit_code_and_how_to_resume(tmp_path, signum):
    process = start("japanese_vowels", "--cells", "gru", "--seeds", 1, "--jobs", 1, "--no-report", where=tmp_path)
    wait_until(lambda: list(tmp_path.glob("runs/*/fits/.cell_gru_0.lock")), process)
    process.send_signal(signum)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 128 + signum
    assert "The same command resumes" in errors
    assert "recurra compare japanese_vowels --cells gru" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
def test_a_custom_cell(tmp_path):
    (tmp_path / "mycells.py").write_text(
        "import torch, recurra as rc\n"
        '@rc.register("half_rnn")\n'
        "class HalfRNN(rc.Cell):\n"
        '    states = ("h",)\n'
        "    def __init__(self, input_size, hidden_size):\n"
        "        super().__init__(input_size, hidden_size)\n"
        '        self.a = self.affine("x", "h")\n'
        "    def step(self, x, h):\n"
        "        return (0.5 * h + 0.5 * torch.tanh(self.a(x, h)),)\n"
    )
    file = turns(tmp_path / "turns.csv")
    few = [*FEW, "--json", "--import", "mycells", "--cells", "half_rnn,rnn"]
    process = start(file, *few, where=tmp_path)
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    rows = {row["name"]: row for row in json.loads(output)["rows"]}
    assert "mean" in rows["half_rnn"]
    assert "errors" not in rows["half_rnn"]
