"""Checkpoints: a folder each, written beside, forced to disk, and renamed: whatever happens, the newest is whole.

    runs/a/checkpoint-000007/
      progress.json           where the run stands: step, epoch, index, history, …
      model.safetensors       the weights under their own names
      best.safetensors        the weights of the best validation so far, where there is one
      optimizer.safetensors   the states of optimizer, schedule and loss scaling
      rank-0.safetensors      what each process has of its own: random state, carried hidden state, callbacks

No name of a file, of a class or of a function is read from any of them.
"""

import os
import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from recurra.errors import InputError
from recurra.train.distributed import Processes
from recurra.train.fit_errors import CheckpointError, CheckpointWarning, MismatchError
from recurra.train.tensorfile import load_tensors, load_tree, read_json, save_tensors, save_tree, sync, write_json

FORMAT = 1
NAME = re.compile(r"checkpoint-(\d{6,})")


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often to save: every epoch, every `every` steps, and when the run is asked to stop.

    Epochs that end less than `apart` seconds after the last save are not saved, but for the last one.
    The newest `keep` stay. Where the folder holds a checkpoint already, the run goes on from there, unless `resume` is
    False. Several processes need one folder that all of them see.
    """

    folder: str | Path
    every: int | None = None
    keep: int = 2
    resume: bool = True
    apart: float = 0.0

    def __post_init__(self):
        if not self.apart >= 0:
            raise InputError("apart", self.apart, "seconds, 0 or more")
        if self.every is not None and self.every < 1:
            raise InputError("every", self.every, "a positive number of steps")
        if self.keep < 1:
            raise InputError("keep", self.keep, "at least one checkpoint to keep")

    def due(self, step: int) -> bool:
        return self.every is not None and step % self.every == 0


@dataclass
class Snapshot:
    """All that a run needs to go on as if nothing had happened."""

    progress: dict[str, Any]
    weights: dict[str, Tensor]
    best: dict[str, Tensor] | None
    shared: dict[str, Any]  # the same in every process
    own: dict[str, Any]  # this process's


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
    """Write a checkpoint, then drop the old ones; a failure of any process leaves the old ones as they were."""
    folder, number = Path(where.folder), 0
    draft = folder / ".writing"

    def begin() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if draft.exists():  # what a kill left behind
            shutil.rmtree(draft)
        draft.mkdir()

    def publish() -> None:
        nonlocal number
        number = max([0, *(int(path.name.split("-")[1]) for path in _listing(folder))]) + 1
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
    """The newest checkpoint that is whole, or None where there is none; a damaged one is passed over with a warning."""
    paths = saved(where.folder)
    if paths and not where.resume:
        raise InputError("checkpoints", f"{where.folder}, which holds a run", "an empty folder, or resume=True")
    for path in reversed(paths):
        snapshot = _try_to_read(path, model, processes)
        damaged = any(processes.largest([float(isinstance(snapshot, CheckpointError))]))
        if isinstance(snapshot, Snapshot) and not damaged:
            return path, snapshot
        problem = snapshot if isinstance(snapshot, CheckpointError) else CheckpointError(path, "unreadable elsewhere")
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
    """One checkpoint, held against the model it is for."""
    progress = read_json(path / "progress.json")
    if not isinstance(progress, dict) or progress.get("format") != FORMAT:
        raise CheckpointError(path, f"not a checkpoint of format {FORMAT}")
    if progress.get("processes") != processes.size:
        there = f"written by {progress.get('processes')} processes, and read by {processes.size}"
        raise MismatchError(path, f"{there}; resume with as many")
    like = tensors_of(model)
    best = path / "best.safetensors"
    return Snapshot(
        progress,
        load_tensors(path / "model.safetensors", like)[0],
        load_tensors(best, like)[0] if best.exists() else None,
        load_tree(path / "optimizer.safetensors"),
        load_tree(path / f"rank-{processes.rank}.safetensors"),
    )


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The state dict; anything in it that is not a tensor could only be pickled, and is refused."""
    state = model.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise InputError("model", f"{type(value).__name__} as {name!r} in its state_dict", "tensors only")
    return state


def load_weights(model: nn.Module, folder: str | Path, which: str = "best") -> nn.Module:
    """The best or the last weights of a run's folder, into the model; without any validation the last are the best."""
    if which not in ("best", "last"):
        raise InputError("which", which, '"best" or "last"')
    paths = saved(folder)
    if not paths:
        raise CheckpointError(folder, "no checkpoint here; a run's folder holds folders named checkpoint-…")
    best = paths[-1] / "best.safetensors"
    path = best if which == "best" and best.exists() else paths[-1] / "model.safetensors"
    model.load_state_dict(load_tensors(path, tensors_of(model))[0])
    return model
