"""Model folders: a save replaces a model in one transaction, whenever the process ends and whoever reads meanwhile."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from waiting import wait_until

from recurra import __version__, storage
from recurra.errors import ModelFileError, WeightsMismatchError
from recurra.storage import FolderContents, distinct_tensors, read_config, read_folder, write_folder


def contents(number: int, size: int = 4) -> FolderContents:
    """A model all of whose numbers are `number`."""
    return FolderContents("Test", {"number": number}, {"a": torch.full((size,), float(number))})


def number_in(folder: Path) -> int:
    """The number of the model in a folder; config and weights must agree on it."""
    stored = read_folder(folder, "Test")
    (weight,) = set(stored.weights["a"].tolist())
    assert weight == stored.config["number"]
    return int(weight)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_folder_holds(tmp_path):
    write_folder(tmp_path / "a" / "b", contents(3))
    config = json.loads((tmp_path / "a" / "b" / "config.json").read_text())
    assert {name: config[name] for name in ("format", "kind", "recurra", "number")} == {
        "format": 2,
        "kind": "Test",
        "recurra": __version__,
        "number": 3,
    }
    digest = subprocess.run(["sha256sum", tmp_path / "a" / "b" / "model.safetensors"], capture_output=True, text=True)
    assert digest.stdout.startswith(config["sha256"])
    assert names(tmp_path / "a" / "b") == ["config.json", "model.safetensors"]


def test_other_files_stay(tmp_path):
    write_folder(tmp_path, contents(1))
    (tmp_path / "report.html").write_text("a report")
    (tmp_path / "checkpoints").mkdir()
    write_folder(tmp_path, contents(2))
    assert number_in(tmp_path) == 2
    assert names(tmp_path) == ["checkpoints", "config.json", "model.safetensors", "report.html"]


def test_both_files_can_be_read_by_the_same_users(tmp_path):
    write_folder(tmp_path, contents(1))
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_weights_of_another_save_are_refused(tmp_path):
    write_folder(tmp_path / "a", contents(1))
    write_folder(tmp_path / "b", contents(2))
    os.replace(tmp_path / "b" / "model.safetensors", tmp_path / "a" / "model.safetensors")
    with pytest.raises(ModelFileError, match=r"model\.safetensors: got SHA-256 .*, expected .*, as config\.json says"):
        read_folder(tmp_path / "a", "Test")


def test_other_kinds_formats_and_shapes_are_named(tmp_path):
    write_folder(tmp_path, contents(1))
    with pytest.raises(ModelFileError, match=r"config\.json: got 'Test', expected a model of the kind Tagger or Other"):
        read_config(tmp_path, "Tagger", "Other")
    stored = read_folder(tmp_path, "Test")
    with pytest.raises(WeightsMismatchError, match=r"got 'a' of shape \(4,\), expected \(5,\), as in the model"):
        stored.tensors({"a": torch.zeros(5)})
    with pytest.raises(WeightsMismatchError, match="got no tensor 'b'"):
        stored.tensors({"a": torch.zeros(4), "b": torch.zeros(4)})
    with pytest.raises(WeightsMismatchError, match="got a tensor 'a', expected none of this name"):
        stored.tensors({})
    with pytest.raises(ModelFileError, match=r"config\.json, options: got nothing, expected the options of a Test"):
        stored.section("options")
    config = json.loads((tmp_path / "config.json").read_text()) | {"format": 3, "recurra": "9.1"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFileError, match=r"got format 3, written by recurra 9\.1"):
        read_folder(tmp_path, "Test")


def test_a_flipped_bit_of_the_config_is_found(tmp_path):
    """Labels and numbers stand there: another letter is another label."""
    write_folder(tmp_path, contents(1))
    path = tmp_path / "config.json"
    text = path.read_text()
    path.write_text(text.replace('"kind": "Test"', '"kind": "Test", "label": "cat"'))
    with pytest.raises(ModelFileError, match=r"checksum is \w+, not \w+: the file was changed after it was saved"):
        read_folder(tmp_path, "Test")
    path.write_text(json.dumps(json.loads(text), indent=4))  # laid out in another way
    read_folder(tmp_path, "Test")
    path.write_text(json.dumps({name: value for name, value in json.loads(text).items() if name != "checksum"}))
    read_folder(tmp_path, "Test")


def test_tied_tensors_are_stored_once():
    module = torch.nn.ModuleDict({"b": torch.nn.Linear(2, 2, bias=False), "a": torch.nn.Linear(2, 2, bias=False)})
    module["b"].weight = module["a"].weight
    assert list(distinct_tensors(module)) == ["a.weight"]


# ---------------------------------------------------------------------------------------------------- interrupted saves

STEPS = ("save_tensors", "write_json", "replace 1", "replace 2", "replace 3")


class Killed(BaseException):
    """Ends a save as a signal would."""


def fail_at(step: str, monkeypatch) -> None:
    """Let the given call of a save end in an error, as if the process were gone: nothing is tidied up."""

    def killed(*arguments):
        raise Killed

    monkeypatch.setattr(storage, "_remove_drafts", lambda folder: None)
    if not step.startswith("replace"):
        return monkeypatch.setattr(storage, step, killed)
    real, calls = os.replace, []

    def replace(source, target):
        calls.append(source)
        if len(calls) == int(step.split()[1]):
            raise Killed
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("step", STEPS)
def test_a_save_that_stops_halfway_leaves_one_model(tmp_path, monkeypatch, step):
    write_folder(tmp_path, contents(1))
    with monkeypatch.context() as patch:
        fail_at(step, patch)
        with pytest.raises(Killed):
            write_folder(tmp_path, contents(2))
    expected = 2 if step == "replace 3" else 1  # the second rename commits
    assert number_in(tmp_path) == read_config(tmp_path, "Test")["number"] == expected
    write_folder(tmp_path, contents(3))
    assert number_in(tmp_path) == 3
    assert names(tmp_path) == ["config.json", "model.safetensors"]


def test_a_committed_save_survives_a_failure_of_the_next(tmp_path, monkeypatch):
    write_folder(tmp_path, contents(1))
    for step, number in (("replace 3", 2), ("save_tensors", 3)):
        with monkeypatch.context() as patch:
            fail_at(step, patch)
            with pytest.raises(Killed):
                write_folder(tmp_path, contents(number))
    assert number_in(tmp_path) == 2


def test_a_failed_save_leaves_nothing_behind(tmp_path, monkeypatch):
    write_folder(tmp_path, contents(1))

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "write_json", full)
        with pytest.raises(OSError, match="No space left"):
            write_folder(tmp_path, contents(2))
    assert number_in(tmp_path) == 1
    assert names(tmp_path) == ["config.json", "model.safetensors"]


WRITER = """
import sys, time
sys.path[:0] = [{tests!r}]
from test_storage import contents, write_folder
from pathlib import Path
print("ready", flush=True)
number = int(sys.argv[2])
while True:
    number += 1
    write_folder(Path(sys.argv[1]), contents(number, 1 + number % 7 * 1000))
    time.sleep(0.001)
"""


def start_writer(folder: Path, first: int) -> subprocess.Popen:
    code = WRITER.format(tests=str(Path(__file__).parent))
    environment = {**os.environ, "PYTHONPATH": str(Path(storage.__file__).parents[1])}
    command = [sys.executable, "-c", code, str(folder), str(first)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_a_reader_beside_a_writer_sees_whole_models(tmp_path):
    write_folder(tmp_path, contents(0))
    process = start_writer(tmp_path, 0)
    try:
        seen, end = set(), time.monotonic() + 1

        def several_were_read() -> bool:
            seen.update(number_in(tmp_path) for _ in range(20))
            return len(seen) > 3 and time.monotonic() > end

        wait_until(several_were_read, process)
    finally:
        process.kill()
        process.communicate()
    assert number_in(tmp_path) >= max(seen)


def test_two_writers_and_a_reader_see_whole_models(tmp_path):
    """Each writer counts on its own thousand; the last save of the two is there whole."""
    write_folder(tmp_path, contents(0))
    processes = [start_writer(tmp_path, first) for first in (1000, 1_000_000)]
    try:
        seen = set()

        def both_were_read() -> bool:  # never, if one writer shuts the other out
            seen.update(number_in(tmp_path) for _ in range(20))
            return {number > 1_000_000 for number in seen - {0}} == {False, True}

        wait_until(both_were_read)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert number_in(tmp_path) > 1000
    write_folder(tmp_path, contents(1))  # takes over what the killed ones left
    assert number_in(tmp_path) == 1
    assert names(tmp_path) == ["config.json", "model.safetensors"]


@pytest.mark.slow
def test_killed_writers_leave_whole_models(tmp_path):
    write_folder(tmp_path, contents(0))
    number = 0
    for attempt in range(12):
        process = start_writer(tmp_path, number)
        wait_until(lambda number=number: number_in(tmp_path) > number + 1, process)
        time.sleep(0.0137 * attempt)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found = number_in(tmp_path)
        assert found > number + 1
        number = found
