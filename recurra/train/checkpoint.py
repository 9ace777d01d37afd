"""Checkpoints of a training run: one folder each, written under a hidden name, synced to disk, then renamed into place.

    runs/a/checkpoint-000007/
      progress.json           position and history of the run: step, epoch, index, …
      model.safetensors       the model's state dict
      best.safetensors        the state dict of the best validation so far, if the run validates
      optimizer.safetensors   the states of optimizer, schedule and loss scaling
      rank-0.safetensors      per process: random state, buffers, carried hidden state, states of callbacks
      SHA256SUMS              of every other file, as sha256sum writes it

Reading executes nothing and follows no name of a file, class or function that is stored in them.
"""

import contextlib
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from recurra.argument_checks import instance_of, path_of, positive_int, true_or_false
from recurra.errors import InputError, ModelFileError, WeightsMismatchError
from recurra.tensor_files import (
    load_tensors,
    load_tree,
    read_json,
    read_text,
    regular_size,
    save_tensors,
    save_tree,
    sha256,
    sync,
    write_json,
    write_text,
)
from recurra.train.distributed import Processes
from recurra.train.fit_errors import CheckpointError, CheckpointWarning, MismatchError

FORMAT = 2
OLD_FORMAT = 1  # of recurra 0.1.0: without SHA256SUMS
CHECKSUMS = "SHA256SUMS"
CHECKSUM_LINE = re.compile(r"([0-9a-f]{64})  ([\w.-]+)\n")
NAME = re.compile(r"checkpoint-(\d{6,})")


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often `rc.train.fit` saves: at the end of every epoch, every `every` steps, and on a signal.

    **Arguments**

    - `folder`: the run's folder. If it holds checkpoints, the run resumes from the newest. Several processes need a
      folder that all of them can read and write.
    - `every`: also save after every so many steps.
    - `keep`: how many of the newest checkpoints to keep.
    - `resume`: with False, a folder that holds checkpoints is an error.
    - `accept_changes`: resume although model, optimizer, learning rate, schedule, loss, batches or data are not those
      of the run; without it, that is a `MismatchError` that names them. The new ones are used from here on: with other
      batches the epoch begins again, with another loss or validation set the best weights are those from here on.
    - `apart`: skip the save of an epoch that ends less than so many seconds after the previous save; the last epoch is
      always saved.

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> options = {"checkpoints": rc.train.Checkpoints("run", every=10), "progress": False}
        >>> _ = rc.train.fit(model, data, epochs=1, **options)
        >>> rc.train.fit(model, data, epochs=3, **options).history[-1]["epoch"]  # resumes after the first epoch
        2
    """

    folder: str | Path
    every: int | None = None
    keep: int = 2
    resume: bool = True
    apart: float = 0.0
    accept_changes: bool = False

    def __post_init__(self):
        path_of("folder", self.folder)
        if not isinstance(self.apart, (int, float)) or not self.apart >= 0:
            raise InputError("apart", repr(self.apart), "seconds, 0 or more")
        if self.every is not None:
            positive_int("every", self.every)
        positive_int("keep", self.keep)
        for name in ("resume", "accept_changes"):
            true_or_false(name, getattr(self, name))

    def due(self, step: int) -> bool:
        """Whether to save after this step."""
        return self.every is not None and step % self.every == 0


@dataclass
class Snapshot:
    """The state of a run, from which it resumes bit for bit."""

    progress: dict[str, Any]
    weights: dict[str, Tensor]
    best: dict[str, Tensor] | None
    shared: dict[str, Any]  # the same in every process
    own: dict[str, Any]  # of this process


def saved(folder: str | Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    try:
        return _listing(Path(folder))
    except OSError as error:
        raise CheckpointError(folder, f"cannot be read ({error.strerror})") from error


def _listing(folder: Path) -> list[Path]:
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = sorted((int(match[1]), folder / name) for name in names if (match := NAME.fullmatch(name)))
    return [path for _, path in found if path.is_dir() and not path.is_symlink()]


def save(where: Checkpoints, snapshot: Snapshot, processes: Processes) -> Path:
    """Write a checkpoint, then delete the oldest; if any process fails, the existing ones stay untouched."""
    folder, number = Path(where.folder), 0
    draft = folder / ".writing"

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if draft.exists():  # of a process that was killed while it saved
            shutil.rmtree(draft)
        draft.mkdir()

    def publish() -> None:
        nonlocal number
        number = max([0, *(int(path.name.split("-")[1]) for path in _listing(folder))]) + 1
        write_checksums(draft)
        sync(draft)
        os.rename(draft, folder / f"checkpoint-{number:06d}")
        sync(folder)

    for action in (begin, lambda: _write(draft, snapshot, processes), publish):
        problem = _attempt(action) if processes.first or action not in (begin, publish) else None
        if any(processes.largest([float(problem is not None)])):
            if processes.first:
                shutil.rmtree(draft, ignore_errors=True)
            raise CheckpointError(folder, f"cannot be written to ({problem or 'another process failed'})") from problem
    if processes.first:
        for old in saved(folder)[: -where.keep]:
            shutil.rmtree(old, ignore_errors=True)
    return folder / f"checkpoint-{int(processes.largest([number])[0]):06d}"


def _attempt(action: Callable[[], None]) -> OSError | None:
    try:
        action()
    except OSError as problem:
        return problem
    return None


def _write(draft: Path, snapshot: Snapshot, processes: Processes) -> None:
    save_tree(draft / f"rank-{processes.rank}.safetensors", snapshot.own)
    if not processes.first:
        return
    save_tensors(draft / "model.safetensors", snapshot.weights)
    if snapshot.best is not None:
        save_tensors(draft / "best.safetensors", snapshot.best)
    save_tree(draft / "optimizer.safetensors", snapshot.shared)
    write_json(draft / "progress.json", {"format": FORMAT, "processes": processes.size, **snapshot.progress})


def load(where: Checkpoints, model: nn.Module, processes: Processes) -> tuple[Path, Snapshot] | None:
    """The newest readable checkpoint, or None if the folder holds none; a damaged one is skipped with a warning."""
    paths = saved(where.folder)
    if paths and not where.resume:
        raise InputError("checkpoints", f"{where.folder}, which holds a run", "an empty folder, or resume=True")
    for path in reversed(paths):
        snapshot = _try_to_read(path, model, processes)
        damaged = any(processes.largest([float(isinstance(snapshot, CheckpointError))]))
        if isinstance(snapshot, Snapshot) and not damaged:
            return path, snapshot
        problem = snapshot if isinstance(snapshot, CheckpointError) else CheckpointError(path, "another process failed")
        if path == paths[0]:
            raise problem
        warnings.warn(f"{problem}; going back to an older checkpoint", CheckpointWarning, stacklevel=2)
    return None


def _try_to_read(path: Path, model: nn.Module, processes: Processes) -> Snapshot | CheckpointError:
    try:
        return read(path, model, processes)
    except MismatchError:
        raise
    except CheckpointError as error:
        return error


def read(path: Path, model: nn.Module, processes: Processes) -> Snapshot:
    """One checkpoint; names and shapes of its weights must be those of the model."""
    with _checkpoint_errors():
        return _read(path, model, processes)


@contextlib.contextmanager
def _checkpoint_errors() -> Iterator[None]:
    try:
        yield
    except WeightsMismatchError as error:
        raise MismatchError(error.argument, f"another model: got {error.got}, expected {error.expected}") from error
    except ModelFileError as error:
        raise CheckpointError(error.argument, f"got {error.got}, expected {error.expected}") from error


def _read(path: Path, model: nn.Module, processes: Processes) -> Snapshot:
    progress = _checked_progress(path)
    if progress.get("processes") != processes.size:
        written = f"written by {progress.get('processes')} processes, but this run has {processes.size}"
        raise MismatchError(path, f"{written}; resume with the same number")
    like = tensors_of(model)
    best = path / "best.safetensors"
    return Snapshot(
        progress,
        load_tensors(path / "model.safetensors", like)[0],
        load_tensors(best, like)[0] if best.exists() else None,
        load_tree(path / "optimizer.safetensors"),
        load_tree(path / f"rank-{processes.rank}.safetensors"),
    )


def _checked_progress(path: Path) -> dict[str, Any]:
    """progress.json, after the checksums of all files of the checkpoint."""
    checked = (path / CHECKSUMS).exists()
    if checked:
        check_checksums(path)
    progress = read_json(path / "progress.json")
    if not isinstance(progress, dict) or progress.get("format") not in (FORMAT, OLD_FORMAT):
        raise CheckpointError(path, f"not a checkpoint of format {FORMAT}")
    if progress["format"] == FORMAT and not checked:
        raise CheckpointError(path, f"{CHECKSUMS} is missing")
    return progress


def write_checksums(path: Path) -> None:
    """Write the SHA-256 of every file of a folder; `sha256sum --check` reads it too."""
    names = sorted(file.name for file in path.iterdir() if file.name != CHECKSUMS)
    write_text(path / CHECKSUMS, "".join(f"{sha256(path / name)}  {name}\n" for name in names))


def check_checksums(path: Path) -> None:
    """Compare all files with their checksums; files that a reader would open must be listed."""
    text = read_text(path / CHECKSUMS)
    listed = {name: digest for digest, name in CHECKSUM_LINE.findall(text)}
    if "".join(f"{digest}  {name}\n" for name, digest in listed.items()) != text:
        raise CheckpointError(path / CHECKSUMS, "damaged: not lines of a SHA-256 and a file name")
    for name in sorted({*listed, *(file.name for file in path.iterdir() if file.suffix in (".json", ".safetensors"))}):
        regular_size(path / name)
        if listed.get(name) != sha256(path / name):
            raise CheckpointError(path / name, f"damaged: its SHA-256 is not the one in {CHECKSUMS}")


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The state dict; a value that is not a tensor would need a pickle and is refused."""
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError("model", f"{type(value).__name__} as {name!r} in its state_dict", "tensors only")
    return state


def load_weights(model: nn.Module, folder: str | Path, which: str = "best") -> nn.Module:
    """Load the weights of a run into `model` and return it.

    **Arguments**

    - `model`: a module with the names and shapes of the one that was trained.
    - `folder`: the folder that `rc.train.fit` was given as `checkpoints`.
    - `which`: "best", by validation loss, or "last"; without validation the best are the last.

    **Example**

        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> _ = rc.train.fit(model, data, epochs=1, checkpoints="run", progress=False)
        >>> again = rc.train.load_weights(rc.train.Predictor(rc.GRU(2, 4), 2), "run")
        >>> torch.equal(again(inputs[0])[0], model(inputs[0])[0])
        True
    """
    if which not in ("best", "last"):
        raise InputError("which", which, '"best" or "last"')
    instance_of("model", model, nn.Module, "a torch module")
    paths = saved(path_of("folder", folder))
    if not paths:
        raise CheckpointError(folder, "no checkpoint here; a run's folder holds folders named checkpoint-…")
    for path in reversed(paths):
        try:
            model.load_state_dict(_weights(path, model, which))
            return model
        except MismatchError:
            raise
        except CheckpointError as error:
            if path == paths[0]:
                raise
            warnings.warn(f"{error}; going back to an older checkpoint", CheckpointWarning, stacklevel=2)
    return model


def _weights(path: Path, model: nn.Module, which: str) -> dict[str, Tensor]:
    best = path / "best.safetensors"
    with _checkpoint_errors():
        _checked_progress(path)
        chosen = best if which == "best" and best.exists() else path / "model.safetensors"
        return load_tensors(chosen, tensors_of(model))[0]
