"""Comparisons with real processes: folder, report, interruption, shared runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from compare.data import turns, waves
from waiting import wait_until

import recurra as rc
from recurra.compare import RunFolderError, compare
from recurra.compare.baselines import BASELINES
from recurra.errors import InputError, UnknownNameError

SCRIPT = Path(__file__).with_name("script.py")
ROOT = SCRIPT.parent.parent.parent
SMALL = {"cells": "gru,rnn", "epochs": 2, "seeds": 2, "hidden_size": 8, "jobs": 2}
VOWELS = {"data": "japanese_vowels", "cells": "gru,mgu", "epochs": 10, "seeds": 1, "jobs": 2, "report": False}


def start(arguments: dict, folder: Path) -> subprocess.Popen:
    given = json.dumps({**arguments, "folder": str(folder)})
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def outcome(process: subprocess.Popen) -> dict:
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return json.loads(output)


def lasting(board: dict) -> list[dict]:
    """The rows without timings."""
    return [{key: value for key, value in row.items() if key != "seconds"} for row in board["rows"]]


def modified(folder: Path) -> dict[Path, int]:
    """When each result of a run was written."""
    return {path: path.stat().st_mtime_ns for path in folder.glob("rows/*.json")}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A finished comparison on a small CSV, and the file."""
    place = tmp_path_factory.mktemp("small")
    file = turns(place / "turns.csv")
    return file, compare(str(file), **SMALL, folder=place / "run")


def test_every_cell_and_baseline_is_ranked(small):
    _, board = small
    assert {one.name for one in board.entries} == {*BASELINES["classify"], "gru", "rnn"}
    random = {name for name, one in BASELINES["classify"].items() if one.random} | {"gru", "rnn"}
    assert {one.name: len(one.scores) for one in board.entries} == {
        one.name: 2 if one.name in random else 1 for one in board.entries
    }
    means = [one.mean for one in board.entries]
    assert means == sorted(means, reverse=True)
    counts = [one.parameters for one in board.entries if not one.baseline]
    assert max(counts) / min(counts) < 1.1
    assert all(0 <= score <= 1 for one in board.entries for score in one.scores)


def test_contents_of_the_run_folder(small):
    _, board = small
    rows = sorted(path.name for path in (board.folder / "rows").iterdir())
    baselines = [name for name in rows if name.startswith("baseline_")]
    assert len(baselines) == sum(2 if one.random else 1 for one in BASELINES["classify"].values())
    assert {"baseline_ESN_0.json", "baseline_ESN_1.json", "baseline_linear_0.json"} < set(baselines)
    assert rows == [*baselines, "cell_gru_0.json", "cell_gru_1.json", "cell_rnn_0.json", "cell_rnn_1.json"]
    written = json.loads((board.folder / "leaderboard.json").read_text())
    assert written == json.loads(json.dumps(board.to_json()))
    assert json.loads((board.folder / "config.json").read_text())["epochs"] == 2
    assert sorted(path.name for path in (board.folder / "models").iterdir()) == ["gru", "rnn"]
    assert not (board.folder / "fits").exists()
    kept = rc.SequenceClassifier.load(board.folder / "models" / "gru")
    assert kept.n_outputs_ == 2


def test_the_report_has_every_row(small):
    _, board = small
    page = board.report.read_text(encoding="utf-8")
    for line in board.table_rows():
        assert line["cell"] in page
        assert line[f"test {board.metric}"] in page


def test_the_same_call_reuses_all_results(small):
    file, board = small
    written = modified(board.folder)
    again = compare(str(file), **SMALL, folder=board.folder)
    assert lasting(again.to_json()) == lasting(board.to_json())
    assert modified(board.folder) == written


def test_other_settings_need_another_folder(small):
    file, board = small
    with pytest.raises(RunFolderError, match="epochs"):
        compare(str(file), **{**SMALL, "epochs": 3}, folder=board.folder)


def test_bad_input_raises_before_anything_starts(tmp_path):
    file = turns(tmp_path / "turns.csv")
    with pytest.raises(UnknownNameError, match="did you mean 'gru'"):
        compare(str(file), cells="gruu", folder=tmp_path / "run")
    with pytest.raises(InputError, match="seeds"):
        compare(str(file), seeds=0, folder=tmp_path / "run")
    with pytest.raises(InputError, match="test"):
        compare({"source": str(file), "test": 0}, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The result of an uninterrupted run."""
    return outcome(start(VOWELS, tmp_path_factory.mktemp("undisturbed") / "run"))


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
def test_an_interrupted_run_resumes_to_the_same_result(uninterrupted, tmp_path, signum):
    arguments, folder = {**VOWELS, "checkpoint_after": 0.01}, tmp_path / "run"
    process = start(arguments, folder)
    numbers = lambda: [int(path.name[-6:]) for path in folder.glob("fits/cell_*/checkpoints/*/checkpoint-*")]  # noqa: E731
    wait_until(lambda: max(numbers(), default=0) >= 3, process)
    process.send_signal(signum)
    process.communicate(timeout=600)
    assert process.returncode == (-9 if signum == signal.SIGKILL else 128 + signum)
    assert not (folder / "leaderboard.json").exists()
    finished = modified(folder)
    assert finished
    assert lasting(outcome(start(arguments, folder))) == lasting(uninterrupted)
    assert finished.items() <= modified(folder).items()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["sqlite:///{}", "journal:{}"])
def test_two_machines_share_one_run(tmp_path, scheme):
    arguments = {**VOWELS, "cells": "gru,mgu,rnn", "epochs": 5, "jobs": 1}
    arguments["storage"] = scheme.format(tmp_path / "shared")
    both = [start(arguments, tmp_path / name) for name in ("one", "two")]
    boards = [outcome(process) for process in both]
    assert [row["name"] for row in boards[0]["rows"]] == [row["name"] for row in boards[1]["rows"]]
    assert lasting(boards[0]) == lasting(boards[1])
    made = [{path.name for path in (tmp_path / name / "models").glob("*")} for name in ("one", "two")]
    assert made[0] | made[1] == {"gru", "mgu", "rnn"}
    assert not made[0] & made[1]  # each fit was done once


@pytest.mark.slow
def test_a_restarted_machine_resumes_its_claims(tmp_path):
    arguments = {**VOWELS, "storage": f"sqlite:///{tmp_path / 'shared.db'}", "jobs": 1, "checkpoint_after": 0.01}
    process = start(arguments, tmp_path / "one")
    wait_until(lambda: list((tmp_path / "one").glob("fits/cell_*/checkpoints")), process)
    process.kill()
    process.communicate()
    board = outcome(start(arguments, tmp_path / "one"))
    assert {row["name"] for row in board["rows"]} == {*BASELINES["classify"], "gru", "mgu"}


@pytest.mark.slow
def test_tuning_never_uses_the_test_data(tmp_path):
    file = turns(tmp_path / "turns.csv", 60)
    board = compare(str(file), cells="rnn", tune=3, epochs=5, seeds=1, hidden_size=8, jobs=1, folder=tmp_path / "run")
    searched = json.loads((tmp_path / "run" / "rows" / "cell_rnn_0.json").read_text())
    trials = json.loads((tmp_path / "run" / "rows" / "tuning_rnn_0.json").read_text())["trials"]
    assert len(trials) == 3
    assert len({trial["params"]["lr"] for trial in trials}) == 3
    best = max(trials, key=lambda trial: trial["value"])
    assert searched["settings"]["lr"] == best["settings"]["lr"]
    assert searched["hidden_size"] == best["settings"]["hidden_size"]
    assert board.best.name == "rnn"


@pytest.mark.slow
def test_time_budget(tmp_path):
    file = waves(tmp_path / "waves.csv")
    asked = {"source": str(file), "season": 12}
    board = compare(asked, cells="gru,rnn", budget="time", seconds=2, seeds=1, jobs=1, folder=tmp_path / "run")
    cells = [one for one in board.entries if not one.baseline]
    assert {one.hidden_size for one in cells} == {32}
    assert all(one.seconds > 0 for one in cells)
    assert {"naive", "seasonal naive", "linear AR", "ESN"} <= {one.name for one in board.entries}


@pytest.mark.slow
def test_a_cell_that_fails_does_not_stop_the_others(tmp_path):
    file = turns(tmp_path / "turns.csv")
    given = {"cells": "rnn,gru", "epochs": 3, "seeds": 1, "jobs": 1}
    diverging = {"lr": 1e38, "optimizer": "sgd", "clip": None}
    board = compare(str(file), **given, settings=diverging, folder=tmp_path / "run")
    assert board.report is None  # there is no model to look into
    failed = [one for one in board.entries if one.errors]
    assert failed
    assert all("NonFiniteError" in one.errors[0] for one in failed)
    assert [one.name for one in board.entries][-len(failed) :] == [one.name for one in failed]
