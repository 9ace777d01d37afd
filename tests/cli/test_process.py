"""The command as a process: exit codes, signals, resuming."""

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from problem import files
from waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "80"}
RECURRA = [sys.executable, "-m", "recurra"]
FIT = [
    "fit",
    "moves.csv",
    "-c",
    "gru",
    "--hidden-size",
    "4",
    "--epochs",
    "400",
    "--batch-size",
    "4",
    "-o",
    "m",
    "--json",
]


def run(folder: Path, *words: str, **more) -> subprocess.CompletedProcess:
    given = {"cwd": folder, "env": ENVIRONMENT, "capture_output": True, "text": True, "timeout": 600, **more}
    return subprocess.run([*RECURRA, *words], **given, check=False)


def interrupted(folder: Path, signum: int, words: list[str] = FIT) -> tuple[int, str]:
    """Exit code and standard error of a fit that gets a signal after its second line about epochs."""
    process = subprocess.Popen([*RECURRA, *words], cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    heard, seen = "", 0
    for line in process.stderr:
        heard += line
        seen += line.startswith("epoch ")
        if seen == 2:
            process.send_signal(signum)
            break
    heard += process.stderr.read()
    process.stderr.close()
    return process.wait(timeout=PATIENCE), heard


@pytest.mark.parametrize("words", [("--help",), ("fit", "--help"), ("fitt",), ("fit",), ("cells", "--jsn")])
def test_help_and_usage_errors_do_not_import_torch(tmp_path, words):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')", encoding="utf-8")
    result = run(tmp_path, *words)
    assert "torch was imported" not in result.stderr
    assert "Usage: recurra" in result.stdout + result.stderr
    assert result.returncode == (0 if "--help" in words else 2)


def test_errors_end_with_2_and_without_a_traceback(tmp_path):
    files.recordings(tmp_path / "moves.csv")
    result = run(tmp_path, "fit", "moves.csv", "--target", "activty")
    assert result.returncode == 2
    assert result.stdout == ""
    expected = "Error: moves.csv has no column 'activty'. Did you mean 'activity'? "
    assert result.stderr == expected + "Columns: activity, ax, ay, recording, t.\n"


@pytest.mark.slow
def test_a_folder_in_which_another_command_trains_is_refused(tmp_path, recurra):
    """With --force too; the run of a killed command is free."""
    files.recordings(tmp_path / "moves.csv", count=40)
    long, short = ([epochs if word == "400" else word for word in FIT] for epochs in ("100000", "2"))
    process = subprocess.Popen([*RECURRA, *long], cwd=tmp_path, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while not process.stderr.readline().startswith("epoch "):
        assert process.poll() is None
    for words in (long, [*long, "--force"]):
        refused = recurra(*words)
        assert refused.exit_code == 1
        assert f"Error: m/run: in use by process {process.pid} on " in " ".join(refused.stderr.split())
    process.kill()
    process.wait()
    process.stderr.close()
    recurra.good(*short, "--force")
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["config.json", "model.safetensors"]


@pytest.mark.slow
def test_an_unexpected_exception_ends_with_1_and_a_paragraph(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import recurra.problem as p\n"
        "def broken(*_, **more): raise ZeroDivisionError('a bug')\np.infer_problem = broken\n",
        encoding="utf-8",
    )
    environment = {**ENVIRONMENT, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    result = run(tmp_path, "fit", "x.csv", env=environment)
    assert result.returncode == 1
    assert result.stderr.startswith("Error: ZeroDivisionError: a bug.")
    assert "Traceback" not in result.stderr
    shown = run(tmp_path, "fit", "x.csv", env={**environment, "RECURRA_DEBUG": "1"})
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_fit_resumes_to_the_same_model(tmp_path, signum, code):
    files.recordings(tmp_path / "moves.csv", count=40)
    found, heard = interrupted(tmp_path, signum)
    assert found == code
    assert "Interrupted in epoch " in heard
    assert "The checkpoint is in m/run. The same command resumes:" in heard
    assert f"  recurra {' '.join(FIT)}\n" in heard
    assert "Traceback" not in heard
    assert not (tmp_path / "m" / "config.json").exists()
    resumed = run(tmp_path, *FIT)
    assert resumed.returncode == 0, resumed.stderr
    assert "Resuming in epoch " in resumed.stderr
    assert not (tmp_path / "m" / "run").exists()
    whole = run(tmp_path, *FIT[:-2], "whole", "--json")
    one, other = json.loads(resumed.stdout), json.loads(whole.stdout)
    assert one["measures"] == other["measures"]
    same = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("m", "whole")]
    assert same[0] == same[1]


@pytest.mark.slow
def test_a_killed_fit_resumes_and_refuses_other_settings(tmp_path):
    files.recordings(tmp_path / "moves.csv", count=40)
    code, _ = interrupted(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL
    changed = [word if word != "4" else "5" for word in FIT]
    refused = run(tmp_path, *changed)
    assert refused.returncode == 2
    text = " ".join(refused.stderr.split())
    assert "an unfinished run with other settings (hidden_size was 4, now 5, batch_size was 4, now 5)" in text
    files.recordings(tmp_path / "moves.csv", count=44)
    refused = run(tmp_path, *FIT)
    assert refused.returncode == 1
    assert "train was 32 sequences" in refused.stderr
    assert "recurra fit --accept-changes) resumes with the new ones" in " ".join(refused.stderr.split())
    assert run(tmp_path, *FIT, "--lr", "0.02").returncode == 2
    resumed = run(tmp_path, *FIT, "--lr", "0.02", "--accept-changes")
    assert resumed.returncode == 0, resumed.stderr  # where it resumes depends on how far the killed run had saved
    assert run(tmp_path, *FIT).returncode == 2  # it is finished now, and not replaced unasked


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_without_a_run(tmp_path):
    cache = tmp_path / "cache"
    words, environment = ["bench", "rnn", "--seconds", "600"], ENVIRONMENT | {"RECURRA_CACHE": str(cache)}
    # A test that runs in the background of a shell passes on that interrupts are ignored.
    heeded = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [*RECURRA, *words], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True, preexec_fn=heeded
    )
    assert process.stderr is not None
    maps = Path(f"/proc/{process.pid}/maps")
    wait_until(lambda: f"{cache}/" in maps.read_text(), process)  # it has compiled the cell, and measures
    process.send_signal(signal.SIGINT)
    heard = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=PATIENCE) == 130
    assert heard == "Interrupted.\n"


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(tmp_path):
    result = subprocess.run(
        f"{sys.executable} -m recurra cells --json | head -c 20",
        shell=True, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert result.stdout.startswith("[")
    assert result.stderr == ""


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("file", "options", "metric", "bound"),
    [
        ("uea/BasicMotions", ("--epochs", "40", "--set", "lr=0.003"), "accuracy", 0.8),
        ("sunspots/sunspots.csv", ("--epochs", "10"), "mase", None),
        ("conll2000/test.txt", ("--epochs", "1", "--hidden-size", "32"), "f1", 0.5),
    ],
)
def test_fit_predict_and_evaluate_public_files(tmp_path, shared_data, file, options, metric, bound):
    data = str(shared_data / file)
    fitted = run(tmp_path, "fit", data, "-c", "gru", "-o", "m", "--json", *options)
    assert fitted.returncode == 0, fitted.stderr
    found = json.loads(fitted.stdout)
    assert found["metric"] == metric
    assert bound is None or found["score"] >= bound
    path = next((shared_data / file).glob("*_TEST.ts")) if (shared_data / file).is_dir() else Path(data)
    answered = run(tmp_path, "predict", "m", str(path), "-o", "answers.parquet")
    assert answered.returncode == 0, answered.stderr
    judged = run(tmp_path, "evaluate", "m", str(path), "--json")
    assert json.loads(judged.stdout)["metric"] == metric
