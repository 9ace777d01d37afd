"""Locks that name their owner: one process at a time, and a dead one holds nothing."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recurra import file_lock
from recurra.file_lock import LockHeldError, LockOwner, owned_lock

HOLDER = """
import os, sys, time
from pathlib import Path
from recurra.file_lock import owned_lock
with owned_lock(Path(sys.argv[1])):
    print("held", flush=True)
    if sys.argv[2:] and os.fork() == 0:
        print(os.getpid(), flush=True)
    time.sleep(900)
"""


def start_holder(path: Path, *options: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(file_lock.__file__).parents[1])}
    command = [sys.executable, "-c", HOLDER, str(path), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.fixture(params=["locks of the system", "no locks"])
def path(tmp_path, request, monkeypatch) -> Path:
    """A lock's path, on a file system with locks and on one without: there the file itself decides."""
    if request.param == "no locks":

        def unsupported(file, operation):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(file_lock.fcntl, "flock", unsupported)
    return tmp_path / ".lock"


def test_the_error_names_the_process_and_its_death_frees_the_lock(path):
    process = start_holder(path)
    try:
        with pytest.raises(LockHeldError, match=f"process {process.pid} on .*, since 2") as caught, owned_lock(path):
            pass
        assert caught.value.owner.pid == process.pid
    finally:
        process.kill()
        process.communicate()
    assert json.loads(path.read_text())["pid"] == process.pid  # the file of a killed process stays
    with owned_lock(path):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


def test_one_process_holds_a_lock_once(path):
    with owned_lock(path), pytest.raises(LockHeldError, match=f"process {os.getpid()}"), owned_lock(path):
        pass
    with owned_lock(path):
        pass


@pytest.mark.parametrize("path", ["no locks"], indirect=True)
@pytest.mark.parametrize(
    ("change", "free"),
    [
        ({}, False),
        ({"started": "1"}, True),  # a later process with the same number
        ({"host": "elsewhere.invalid"}, False),  # may still run there
    ],
)
def test_a_process_is_known_by_host_number_and_start(path, change, free):
    owner = LockOwner.this_process().__dict__ | change
    path.write_text(json.dumps(owner))
    if free:
        with owned_lock(path):
            assert json.loads(path.read_text())["started"] != "1"
    else:
        with pytest.raises(LockHeldError, match=owner["host"]), owned_lock(path):
            pass


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_process(tmp_path):
    """Such a child is a worker of a data loader, which may outlive the run."""
    path = tmp_path / ".lock"
    process = start_holder(path, "fork")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    with pytest.raises(LockHeldError), owned_lock(path):
        pass
    process.kill()
    process.wait()
    try:
        os.kill(child, 0)  # is still there
        with owned_lock(path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        process.stdout.close()


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"), owned_lock(tmp_path / ".lock"):
        pass
    assert (tmp_path / "precious").read_text() == "kept"
