"""What is written can be read, what is not a checkpoint is refused, and a failing disk costs nothing that was saved."""

import contextlib
import errno
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from train import runs

from recurra.data import Batches, SequenceSet
from recurra.errors import InputError, ModelFileError
from recurra.tensor_files import Limits, load_tensors, load_tree, save_tensors, save_tree
from recurra.train import (
    CheckpointError,
    Checkpoints,
    CheckpointWarning,
    LogWarning,
    MismatchError,
    checkpoint,
    fit,
    load_weights,
)
from recurra.train.distributed import Processes
from recurra.train.tensor_trees import map_tensors


class Net(nn.Module):
    def __init__(self, hidden: int = 3):
        super().__init__()
        self.rnn, self.head = nn.GRU(2, hidden), nn.Linear(hidden, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0])[-1]


def data() -> Batches:
    random = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(12, 4, 2, generator=random), torch.randn(12, 2, generator=random)
    return Batches(SequenceSet.from_arrays(inputs, targets, "regression"), 3)


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
tensors = st.sampled_from(
    [torch.tensor(1.5), torch.arange(6).view(2, 3), torch.zeros(0, 2), torch.tensor([True, False])]
)
keys = st.text(max_size=6) | st.integers() | st.sampled_from(["tensor", "dict", "tuple", "float"])
trees = st.recursive(
    scalars | tensors,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=12,
)


@given(trees)
def test_any_tree_of_plain_values_comes_back(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("tree") / "tree.safetensors"
    save_tree(path, tree)
    back = load_tree(path)
    assert type(back) is type(tree)
    runs.assert_same(tree, back)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64, torch.int8, torch.uint8])
def test_tensors_keep_dtype_and_bits(tmp_path, dtype):
    tensor = torch.randn(4, 3).to(dtype).t()  # not contiguous
    save_tree(tmp_path / "a", {"x": tensor, "view": tensor[0]})
    runs.assert_same({"x": tensor, "view": tensor[0]}, load_tree(tmp_path / "a"))


def test_what_would_need_a_pickle_is_refused(tmp_path):
    with pytest.raises(InputError, match="checkpoint: got a set"):
        save_tree(tmp_path / "a", {"x": {1, 2}})
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["adam", "adamw", "nadam", "rmsprop", "sgd", "adagrad"])
def test_every_optimizer_resumes_to_the_last_bit(tmp_path, name):
    torch.manual_seed(0)
    whole = Net()
    resumed = Net()
    resumed.load_state_dict(whole.state_dict())
    fit(whole, data(), epochs=4, optimizer=name, lr=0.01)
    fit(resumed, data(), epochs=2, optimizer=name, lr=0.01, checkpoints=tmp_path)
    again = Net()
    fit(again, data(), epochs=4, optimizer=name, lr=0.01, checkpoints=tmp_path)
    runs.assert_same(dict(whole.state_dict()), dict(again.state_dict()))


def test_folder_holds_the_last_two_and_nothing_else(tmp_path):
    fit(Net(), data(), data(), epochs=5, checkpoints=Checkpoints(tmp_path, every=1))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["checkpoint-000025", "checkpoint-000026", "log.jsonl"]  # the start, 20 steps, 5 epochs
    inside = sorted(path.name for path in (tmp_path / names[1]).iterdir())
    assert inside == [
        "SHA256SUMS",
        "best.safetensors",
        "model.safetensors",
        "optimizer.safetensors",
        "progress.json",
        "rank-0.safetensors",
    ]


def test_best_and_last_weights_can_be_loaded(tmp_path):
    last = Net()
    fit(last, data(), data(), epochs=3, checkpoints=tmp_path, lr=0.05)
    runs.assert_same(dict(load_weights(Net(), tmp_path, "last").state_dict()), dict(last.state_dict()))
    stored = load_tensors(checkpoint.saved(tmp_path)[-1] / "best.safetensors")[0]
    runs.assert_same(dict(load_weights(Net(), tmp_path).state_dict()), stored)


def test_another_model_or_optimizer_is_named(tmp_path):
    fit(Net(), data(), epochs=1, checkpoints=tmp_path)
    with pytest.raises(
        MismatchError, match=r"another model: got 'head.weight' of shape \(2, 3\), expected \(2, 4\), as in the model"
    ):
        fit(Net(4), data(), epochs=1, checkpoints=tmp_path)
    with pytest.raises(MismatchError, match="written with Adam, not SGD"):
        fit(Net(), data(), epochs=1, checkpoints=tmp_path, optimizer="sgd")
    with pytest.raises(InputError, match="which holds a run, expected an empty folder"):
        fit(Net(), data(), epochs=1, checkpoints=Checkpoints(tmp_path, resume=False))


def test_a_damaged_newest_checkpoint_is_passed_over(tmp_path):
    result = fit(Net(), data(), epochs=3, checkpoints=tmp_path)
    newest = result.checkpoint / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-4])
    with pytest.warns(CheckpointWarning, match="going back to an older checkpoint"):
        again = fit(Net(), data(), epochs=3, checkpoints=tmp_path)
    assert again.history == result.history


# Damaged files


def flipped(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def positions(size: int, count: int = 80) -> list[int]:
    """The first and last bytes of a file, and others at equal distances."""
    spread = torch.linspace(0, size - 1, count).long().tolist()
    return sorted({*range(min(16, size)), *range(max(0, size - 16), size), *spread})


def test_every_flipped_bit_is_found(tmp_path):
    """At some hundred places of every file, a damaged checkpoint is a `CheckpointError`, and never loads."""
    path = fit(Net(), data(), data(), epochs=1, checkpoints=tmp_path).checkpoint
    here, model, tried = Processes(), Net(), 0
    files = sorted(path.iterdir())
    assert len(files) == 6
    for file in files:
        intact = file.read_bytes()
        for position in positions(len(intact)):
            flipped(file, position, tried % 8)
            tried += 1
            with pytest.raises(CheckpointError, match=f"{path}") as caught:
                checkpoint.read(path, model, here)
            assert not isinstance(caught.value, MismatchError)  # damage, not another model
            with pytest.raises(CheckpointError):
                checkpoint._weights(path, model, "best")
            file.write_bytes(intact)
    assert tried > 500
    checkpoint.read(path, model, here)


@pytest.mark.parametrize("name", ["SHA256SUMS", "progress.json", "model.safetensors", "rank-0.safetensors"])
def test_a_flipped_bit_in_the_newest_checkpoint_costs_one_checkpoint(tmp_path, name):
    result = fit(Net(), data(), data(), epochs=3, checkpoints=tmp_path)
    older, newest = checkpoint.saved(tmp_path)
    flipped(newest / name, (newest / name).stat().st_size // 2, 3)
    with pytest.warns(CheckpointWarning, match=rf"{newest.name}.* going back to an older checkpoint"):
        loaded = load_weights(Net(), tmp_path, "last")
    runs.assert_same(dict(loaded.state_dict()), load_tensors(older / "model.safetensors")[0])
    with pytest.warns(CheckpointWarning, match=rf"{newest.name}.* going back to an older checkpoint"):
        again = fit(Net(), data(), data(), epochs=3, checkpoints=tmp_path)
    assert again.history == result.history


def test_sha256sum_reads_the_checksums(tmp_path):
    path = fit(Net(), data(), epochs=1, checkpoints=tmp_path).checkpoint
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=path, capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.count(": OK") == 4


@pytest.mark.parametrize("missing", ["SHA256SUMS", "model.safetensors", "rank-0.safetensors"])
def test_a_missing_file_is_named(tmp_path, missing):
    path = fit(Net(), data(), epochs=1, checkpoints=Checkpoints(tmp_path, keep=1)).checkpoint
    (path / missing).unlink()
    with pytest.raises(CheckpointError, match=missing):
        fit(Net(), data(), epochs=1, checkpoints=tmp_path)


# Files that are not what they seem


class Canary:
    """A pickle that leaves a file behind when it is executed."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def test_the_canary_sings_when_it_is_unpickled(tmp_path):
    pickle.loads(pickle.dumps(Canary(tmp_path / "song")))
    assert (tmp_path / "song").exists()


@pytest.mark.parametrize("name", ["model", "best", "optimizer", "rank-0"])
def test_a_pickle_renamed_to_safetensors_is_never_executed(tmp_path, name):
    fit(Net(), data(), data(), epochs=1, checkpoints=Checkpoints(tmp_path / "run", keep=1))
    path = checkpoint.saved(tmp_path / "run")[-1]
    (path / f"{name}.safetensors").write_bytes(pickle.dumps(Canary(tmp_path / "song")))
    checkpoint.write_checksums(path)  # whoever writes the file can write its checksum
    with pytest.raises(CheckpointError, match="expected a safetensors file"):
        fit(Net(), data(), data(), epochs=2, checkpoints=Checkpoints(tmp_path / "run", keep=1))
    assert not (tmp_path / "song").exists()


def test_a_pt_file_is_neither_executed_nor_taken_for_a_checkpoint(tmp_path):
    folder = tmp_path / "run" / "checkpoint-000001"
    folder.mkdir(parents=True)
    for path in (tmp_path / "run.pt", tmp_path / "run" / "model.pt", folder / "model.pt", folder / "progress.json"):
        torch.save(Canary(tmp_path / "song"), path)
    with pytest.raises(CheckpointError):
        fit(Net(), data(), checkpoints=tmp_path / "run")
    for path in (tmp_path / "run", tmp_path / "run.pt", tmp_path / "run" / "model.pt"):
        with pytest.raises(CheckpointError):
            load_weights(Net(), path)
    assert not (tmp_path / "song").exists()


def test_links_out_of_the_folder_are_refused(tmp_path):
    path = fit(Net(), data(), epochs=1, checkpoints=Checkpoints(tmp_path / "run", keep=1)).checkpoint
    shutil.move(path / "model.safetensors", tmp_path / "elsewhere.safetensors")
    (path / "model.safetensors").symlink_to(tmp_path / "elsewhere.safetensors")
    with pytest.raises(CheckpointError, match="got a link or a folder, expected a regular file"):
        load_weights(Net(), tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoint-000009").symlink_to(path)
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        load_weights(Net(), tmp_path / "other")


def header_file(path: Path, header: object, body: bytes = b"", length: int | None = None) -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + body)
    return path


@pytest.mark.parametrize(
    ("header", "length"),
    [
        ({}, 1 << 60),
        (b"[" * 100_000, None),
        (b"not json", None),
        ([1, 2], None),
        ({"a": 3}, None),
        ({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, None),
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, None),
        ({"a": {"dtype": "F32", "shape": [-1, -1], "data_offsets": [0, 4]}}, None),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, None),
        ({"a": {"dtype": "PICKLE", "shape": [1], "data_offsets": [0, 4]}}, None),
        ({"a": {"dtype": "F32", "shape": ["1"], "data_offsets": [0, 4]}}, None),
        ({"__metadata__": {"structure": "[" * 100_000}}, None),
        ({"__metadata__": {"structure": '{"tensor": "no such key"}'}}, None),
    ],
)
def test_lying_headers_are_refused(tmp_path, header, length):
    path = header_file(tmp_path / "a.safetensors", header, b"\0\0\0\0" if "dtype" in str(header) else b"", length)
    with pytest.raises(ModelFileError, match=str(path)):
        load_tree(path)


def test_caps_hold_before_anything_is_allocated(tmp_path, monkeypatch):
    save_tensors(tmp_path / "a", {str(n): torch.zeros(4) for n in range(10)})
    monkeypatch.setattr("safetensors.torch.load_file", lambda path: pytest.fail("the file was opened"))
    with pytest.raises(ModelFileError, match="got 10 tensors, expected at most 9"):
        load_tree(tmp_path / "a", Limits(tensors=9))
    with pytest.raises(ModelFileError, match="got 160 bytes of tensors, expected at most 159"):
        load_tree(tmp_path / "a", Limits(bytes=159))
    with pytest.raises(ModelFileError, match="a header of"):
        load_tree(tmp_path / "a", Limits(header=100))


def test_a_sparse_giant_costs_no_memory(tmp_path):
    entry = {"a": {"dtype": "U8", "shape": [1 << 38], "data_offsets": [0, 1 << 38]}}
    path = header_file(tmp_path / "a.safetensors", entry)
    os.truncate(path, path.stat().st_size + (1 << 38))
    with pytest.raises(ModelFileError, match="at most"):
        load_tree(path)


# Disks that fail


def mounted(folder: Path, *options: str) -> bool:
    folder.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        return False
    return subprocess.run(["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)], capture_output=True).returncode == 0


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "disk"
    if not mounted(folder, "-o", "size=256k"):
        pytest.skip("needs the right to mount a small tmpfs; an injected error is tested in any case")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def after_start(action):
    """A callback that runs `action` once, after the second step."""
    return lambda event, run: action() if event == "step" and run.progress.step == 2 else None


def assert_kept(folder: Path, before: list[str]) -> None:
    assert [path.name for path in checkpoint.saved(folder)] == before
    assert not list(folder.glob(".writing*"))


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 1024)
    assert shutil.disk_usage(path.parent).free == 0


def test_a_full_disk_keeps_the_old_checkpoint_and_says_so(tiny_disk):
    folder, filler, log = tiny_disk / "run", tiny_disk / "filler", tiny_disk.parent / "log.jsonl"
    callbacks = [after_start(lambda: fill(filler))]
    with pytest.warns(CheckpointWarning, match=r"No space left on device.*step 4, .*checkpoint-000001 is kept"):
        result = fit(Net(), data(), epochs=1, checkpoints=folder, callbacks=callbacks, log=log)
    assert_kept(folder, ["checkpoint-000001"])
    assert result.steps == 4
    assert "save failed" in log.read_text()
    filler.unlink()
    assert fit(Net(), data(), epochs=1, checkpoints=folder, log=log).steps == 4
    assert_kept(folder, ["checkpoint-000001", "checkpoint-000002"])


def test_a_log_on_a_full_disk_does_not_end_the_run(tiny_disk):
    log, filler = tiny_disk / "log.jsonl", tiny_disk / "filler"
    make_room = lambda event, run: filler.unlink() if event == "step" and run.progress.step == 300 else None  # noqa: E731
    callbacks = [after_start(lambda: fill(filler)), make_room]
    with pytest.warns(LogWarning, match=r"the log cannot be written.*No space left"):
        assert fit(Net(), data(), epochs=100, log=log, callbacks=callbacks).steps == 400
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]  # whole lines only
    assert steps == sorted(steps)
    assert set(range(1, 3)) | set(range(301, 401)) <= set(steps) < set(range(401))


@pytest.mark.parametrize("target", ["save_tree", "save_tensors", "write_json", "sync"])
def test_an_injected_full_disk_keeps_the_old_checkpoint(tmp_path, monkeypatch, target):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    callback = after_start(lambda: monkeypatch.setattr(checkpoint, target, full))
    with pytest.warns(CheckpointWarning, match="No space left on device"):
        fit(Net(), data(), epochs=1, checkpoints=tmp_path, callbacks=[callback])
    assert_kept(tmp_path, ["checkpoint-000001"])
    monkeypatch.undo()
    assert load_weights(Net(), tmp_path) is not None


def test_a_folder_turned_read_only_keeps_the_old_checkpoint(tiny_disk):
    folder = tiny_disk / "run"
    remount = lambda: subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)  # noqa: E731
    with pytest.warns(LogWarning), pytest.warns(CheckpointWarning, match="Read-only file system"):
        fit(Net(), data(), epochs=1, checkpoints=folder, callbacks=[after_start(remount)])
    assert [path.name for path in checkpoint.saved(folder)] == ["checkpoint-000001"]
    assert load_weights(Net(), folder) is not None


UNWRITABLE = """
import os, sys
sys.path[:0] = [{tests!r}]
from train.test_checkpoint import CheckpointError, Net, data, fit
fit(Net(), data(), epochs=1)  # imports what it needs while that may be read
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
try:
    fit(Net(), data(), epochs=1, checkpoints={folder!r})
except CheckpointError as error:
    print(error)
"""


def test_a_folder_that_cannot_be_written_fails_at_once():
    folder = Path(tempfile.mkdtemp())  # pytest's own temporary folder is closed to other users
    folder.chmod(0o555)
    code = UNWRITABLE.format(tests=str(Path(__file__).parents[1]), folder=str(folder))
    done = subprocess.run([sys.executable, "-c", code], env=runs.environment(), capture_output=True, text=True)
    assert "cannot be written to ([Errno 13] Permission denied" in done.stdout, done.stderr
    assert not list(folder.iterdir())
    folder.rmdir()


def test_a_link_or_a_file_in_the_place_of_the_folder_is_named(tmp_path):
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(CheckpointError, match="cannot be written to"):
        fit(Net(), data(), epochs=1, checkpoints=tmp_path / "run", log=tmp_path / "log")


def test_states_keep_their_containers():
    Pair = namedtuple("Pair", "h c")
    state = Pair(torch.ones(1), [torch.ones(2), None])
    doubled = map_tensors(lambda tensor: tensor * 2, state)
    assert type(doubled) is Pair
    assert torch.equal(doubled.c[0], torch.full((2,), 2.0))
