"""Several machines and one store: PostgreSQL, sqlite, a journal file. Processes of their own, one of them killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from compare import data
from compare.machine import ITEMS
from compare.postgresql import server
from waiting import PATIENCE, wait_until

from recurra.compare.shared_run import open_storage

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(__file__).with_name("machine.py"))


@pytest.fixture(scope="module")
def postgresql():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # the server runs as another user
        with server(Path(folder) / "server") as url:
            yield url


@pytest.fixture(params=["postgresql", "sqlite:///{}", "journal:{}"], ids=["postgresql", "sqlite", "journal"])
def store(request, tmp_path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    return request.param.format(tmp_path / "store")


def start(folder: Path, *arguments: str, **more: str) -> subprocess.Popen:
    """A machine: its own working folder and process group."""
    folder.mkdir(exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}
    command = [sys.executable, SCRIPT, *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, start_new_session=True
    )


def finish(machine: subprocess.Popen, seconds: float = 900):
    out, _ = machine.communicate(timeout=seconds)
    assert machine.returncode == 0
    return json.loads(out.splitlines()[-1])


def test_items_that_machines_fight_for_are_done_once(store, tmp_path):
    machines = [start(tmp_path / name, "queue", store, str(tmp_path / name / "run")) for name in "ab"]
    done = [finish(machine) for machine in machines]
    assert Counter(key for each in done for key in each) == Counter(item.key for item in ITEMS)


def test_workers_do_not_wait_for_a_launcher(tmp_path):
    """Under torchrun a fit meets the other processes of the job; the fits of a comparison have none."""
    file = data.turns(tmp_path / "turns.csv")
    run = {"data": str(file), "cells": "gru", "seeds": 1, "epochs": 1, "jobs": 1, "folder": "run", "report": False}
    launched = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    board = finish(start(tmp_path / "a", "compare", json.dumps(run), **launched))
    assert not [row["errors"] for row in board["rows"] if "errors" in row]


def trials(url: str) -> list:
    """The trials of the fits, whatever the run is called."""
    storage = open_storage(url)
    try:
        studies = [study for study in storage.get_all_studies() if study.study_name.startswith("recurra-fits")]
        return [trial for study in studies for trial in storage.get_all_trials(study._study_id)]
    finally:
        storage.remove_session()
        storage.engine.dispose()


def test_a_killed_machine_loses_nothing(postgresql, tmp_path):
    file = data.turns(tmp_path / "turns.csv")
    run = {"data": str(file), "cells": "lstm,gru", "seeds": 2, "epochs": 25, "hidden_size": 8, "jobs": 1}
    run |= {"storage": postgresql, "folder": "run", "report": False}
    lost = start(tmp_path / "a", "compare", json.dumps(run))

    def of_lost() -> list:
        return [t for t in trials(postgresql) if f"{tmp_path / 'a' / 'run'}:" in t.user_attrs.get("owner", "")]

    def stop_in_the_middle() -> set[int]:
        """Stop the first machine between two results, and name what it was at; a commit under way ends first."""
        os.killpg(lost.pid, signal.SIGSTOP)
        time.sleep(1.0)
        return {t.number for t in of_lost() if not t.state.is_finished() and "row" not in t.user_attrs}

    wait_until(lambda: any("row" in t.user_attrs for t in of_lost()), lost)
    other = start(tmp_path / "b", "compare", json.dumps(run))
    until = time.monotonic() + PATIENCE
    while not (interrupted := stop_in_the_middle()):
        assert time.monotonic() < until, "the first machine has no work"
        assert lost.poll() is None
        os.killpg(lost.pid, signal.SIGCONT)
        time.sleep(0.1)
    os.killpg(lost.pid, signal.SIGKILL)
    lost.communicate()
    (tmp_path / "lost").touch()
    board = finish(other)
    ended = trials(postgresql)
    rows = [t.user_attrs["row"] for t in ended if "row" in t.user_attrs]
    assert set(Counter((row["name"], row["seed"]) for row in rows).values()) == {1}, "an item has two results"
    assert {(cell, seed) for cell in ("lstm", "gru") for seed in range(2)} <= {
        (row["name"], row["seed"]) for row in rows
    }
    assert not any("error" in row for row in rows)
    repeated = [t for t in ended if "again" in t.user_attrs and "row" in t.user_attrs]
    assert len(repeated) == len(interrupted)
    assert all(t.state.is_finished() for t in ended)
    again = finish(start(tmp_path / "a", "compare", json.dumps(run)))  # the machine comes back and finds all done
    scores = [[(entry["name"], entry["scores"]) for entry in each["rows"]] for each in (again, board)]
    assert scores[0] == scores[1]
