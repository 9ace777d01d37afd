"""`recurra` under torchrun: one job, one printer, one message, and the model of one process."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from waiting import PATIENCE, wait_until

from recurra.tensor_files import load_tensors

ROOT = Path(__file__).parents[2]
DIFFERS = str(Path(__file__).with_name("one_process_differs.py"))
RECURRA = ["-m", "recurra"]


def write_data(folder: Path, seed: int = 0) -> None:
    """29 sequences, which two processes cannot share evenly."""
    draw, rows = random.Random(seed), ["id,t,a,b,label"]
    for number in range(29):
        slope = draw.choice([-1, 1])
        label = "up" if slope > 0 else "down"
        length = draw.randint(4, 9)
        rows += [f"{number},{t},{slope * t + draw.gauss(0, 1):.3f},{draw.random():.3f},{label}" for t in range(length)]
    folder.mkdir(exist_ok=True)
    (folder / "data.csv").write_text("\n".join(rows) + "\n")


def start(folder: Path, program: list[str], *arguments: str, processes: int = 2) -> subprocess.Popen:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = [sys.executable, *(launcher if processes > 1 else []), *program, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen, seconds: float = PATIENCE) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        raise
    return process.returncode, out, err


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_tensors(folder / "model.safetensors")[0]


@pytest.mark.slow
def test_fit_is_one_job_with_the_model_of_one_process(tmp_path):
    write_data(tmp_path)
    options = ["data.csv", "--epochs", "2", "--batch-size", "5", "--set", "hidden_size=6", "--json"]
    pair = start(tmp_path, RECURRA, "fit", *options, "-o", "pair")
    alone = start(tmp_path, RECURRA, "fit", *options, "-o", "alone", processes=1)
    (code, out, err), (_, reference, _) = finish(pair), finish(alone)
    assert code == 0, err
    assert err.count("Training lstm.") == 1
    together, one = json.loads(out), json.loads(reference)  # one document: one process printed
    assert together["measures"] == pytest.approx(one["measures"], abs=1e-4)
    for name, tensor in weights(tmp_path / "alone").items():
        # ten steps of Adam in float32, of which each may double the rounding of the gradient
        torch.testing.assert_close(weights(tmp_path / "pair")[name], tensor, rtol=1e-4, atol=1e-4)
    assert sorted(path.name for path in (tmp_path / "pair").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.slow
def test_other_commands_run_in_the_first_process(tmp_path):
    write_data(tmp_path)
    assert finish(start(tmp_path, RECURRA, "fit", "data.csv", "--epochs", "1", "-o", "m", processes=1))[0] == 0
    write_data(tmp_path / "others", seed=1)  # of the training file, the held-out part alone would be scored
    evaluate = start(tmp_path, RECURRA, "evaluate", "m", "others/data.csv", "--json")
    predict = start(tmp_path, RECURRA, "predict", "m", "data.csv", "-o", "answers.csv")
    (code, out, err), (coded, _, written) = finish(evaluate), finish(predict)
    assert code == coded == 0, err + written
    assert json.loads(out)["count"] == 29
    assert written.count("Wrote 29 rows") == 1


@pytest.mark.slow
def test_a_killed_job_resumes_with_the_same_command(tmp_path):
    write_data(tmp_path)
    options = ["fit", "data.csv", "--epochs", "3", "--batch-size", "5"]
    whole = start(tmp_path, RECURRA, *options, "-o", "whole")
    killed = start(tmp_path, [DIFFERS], "die", *options, "-o", "killed")
    assert finish(whole)[0] == 0
    code, _, err = finish(killed)
    assert code != 0
    assert len([line for line in err.splitlines() if line.startswith("Error")]) == 1, err
    assert "process 0 of 2 lost the connection to another one" in err
    code, _, err = finish(start(tmp_path, RECURRA, *options, "-o", "killed"))
    assert code == 0, err
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(weights(tmp_path / "killed")[name], tensor), name


@pytest.mark.slow
def test_a_terminated_job_says_how_to_resume(tmp_path):
    write_data(tmp_path)
    job = start(tmp_path, RECURRA, "fit", "data.csv", "--epochs", "100000", "-o", "m")
    wait_until(lambda: list(tmp_path.glob("m/run/checkpoints/fit-1/checkpoint-*")), job)
    job.send_signal(signal.SIGTERM)
    code, _, err = finish(job)
    assert code != 0
    assert err.count("The same command resumes:") == 1
    assert "torchrun --nproc-per-node 2 -m recurra fit data.csv --epochs 100000 -o m" in err
    assert not list(tmp_path.glob("m/run/**/.writing"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("empty", r"Error in process 1 of 2 on \S+: data.csv: no such file."),
        ("other", "process 1 would train with another train than process 0"),
        ("raise", r"Error in process 1 of 2 on \S+: data.csv: input/output error."),
    ],
)
def test_an_error_in_one_process_ends_all_with_one_message(tmp_path, second, message):
    write_data(tmp_path)
    write_data(tmp_path / "other", seed=1)
    (tmp_path / "empty").mkdir()
    code, out, err = finish(
        start(tmp_path, [DIFFERS], second, "fit", "data.csv", "--epochs", "3", "-o", str(tmp_path / "m"))
    )
    assert code != 0
    assert "forcefully" not in err, "torchrun waited 30 s for a process and killed it"
    lines = [line for line in err.splitlines() if line.startswith("Error")]
    assert len(lines) == 1, err
    assert re.search(message, lines[0]), lines[0]
    assert not out


@pytest.mark.slow
def test_a_mistake_in_the_command_is_reported_once(tmp_path):
    code, _, err = finish(start(tmp_path, RECURRA, "fit", "nothing.csv"))
    assert code != 0
    assert [line for line in err.splitlines() if line.startswith("Error")] == ["Error: nothing.csv: no such file."]
    code, _, err = finish(start(tmp_path, RECURRA, "fit", "nothing.csv", "--epochs", "many"))
    assert code != 0
    assert err.count("Usage: recurra fit") == 1, err
