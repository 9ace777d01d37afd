"""The folder of an unfinished training run, inside that of the model: the same command resumes it."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recurra.cli.error_handling import command_line
from recurra.cli.training_progress import TrainingProgress
from recurra.errors import InputError, RecurraError
from recurra.train.checkpoint import Checkpoints
from recurra.train.distributed import Processes
from recurra.train.fit_context import fit_context
from recurra.train.fit_errors import Interrupted
from recurra.train.run_lock import run_lock

CHECKPOINT_SECONDS = 3.0  # between checkpoints; Ctrl-C saves one in any case
RUN = "run"  # folder inside the model folder, during training
ARGUMENTS, CHECKPOINTS = "arguments.json", "checkpoints"  # inside the run folder


@dataclass(frozen=True)
class UnfinishedRun:
    """A run that is locked by this job."""

    folder: Path  # of the model
    path: Path
    processes: Processes
    accept_changes: bool

    def train(self, fit: Callable[[], Any], progress: TrainingProgress) -> Any:
        """What `fit` returns; it trains with the checkpoints of the run. An interruption is reported and raised."""
        console = progress.console
        logging.getLogger("recurra.train").addHandler(logging.NullHandler())  # interruptions are reported below
        options: dict[str, Any] = {"apart": CHECKPOINT_SECONDS, "accept_changes": self.accept_changes}
        try:
            with fit_context(Checkpoints(self.path / CHECKPOINTS, **options), [progress]):
                return fit()
        except Interrupted as stopped:
            console.print(f"\nInterrupted {progress.where}.", soft_wrap=True)
            if stopped.checkpoint is not None:
                console.print(
                    f"The checkpoint is in {self.path}. The same command resumes:", soft_wrap=True, markup=False
                )
                console.print(f"  {command_line()}", soft_wrap=True, markup=False)
            raise
        except RecurraError:
            if self.processes.first:
                self._remove_if_empty()
            raise

    def remove(self) -> None:
        """Remove the checkpoints: the model is saved."""
        shutil.rmtree(self.path)

    def _remove_if_empty(self) -> None:
        """Remove the folders of a run that failed before its first checkpoint."""
        if any(self.path.glob(f"{CHECKPOINTS}/*/checkpoint-*")):
            return
        shutil.rmtree(self.path)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


@contextmanager
def open_run(
    folder: Path, arguments: dict[str, Any], processes: Processes, force: bool, accept_changes: bool = False
) -> Iterator[UnfinishedRun]:
    """The run in a model folder, new or unfinished, locked while the block runs.

    `arguments` has the "source" and the "settings"; those of an unfinished run must be the same.
    """
    run = folder / RUN
    with processes.all_or_none():
        if processes.first:
            _make_run_folder(folder, force)
    with run_lock(run, processes):
        with processes.all_or_none():
            if processes.first:
                _check_arguments(run, arguments, force, accept_changes)
        yield UnfinishedRun(folder, run, processes, accept_changes)


def _make_run_folder(folder: Path, force: bool) -> None:
    """Create the run folder if needed; a folder with a model and no unfinished run needs --force."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {folder}", "a file", "a new or empty folder")
    run = folder / RUN
    if (folder / "config.json").exists() and not (run / ARGUMENTS).is_file() and not force:
        raise InputError(
            f"--out {folder}", "a folder that contains a model", "another folder, or --force to replace it"
        )
    run.mkdir(parents=True, exist_ok=True)


def _check_arguments(run: Path, arguments: dict[str, Any], force: bool, accept_changes: bool) -> None:
    """Write the arguments of a new run; those of an unfinished one must be the same. With `force` it starts over."""
    note, written = run / ARGUMENTS, json.loads(json.dumps(arguments))
    if force:
        shutil.rmtree(run / CHECKPOINTS, ignore_errors=True)
    elif note.is_file() and not accept_changes:
        before = json.loads(note.read_text(encoding="utf-8"))
        if before != written:
            raise InputError(
                f"--out {run.parent}",
                f"an unfinished run with other settings ({_difference(before, written)})",
                "the same settings, --accept-changes to resume with the new ones, or --force to start over",
            )
    note.write_text(json.dumps(written, indent=1), encoding="utf-8")


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str:
    flat = [{"data": part["source"], **part["settings"]} for part in (before, now)]
    changed = [name for name in flat[1] if flat[0].get(name) != flat[1][name]]
    return (
        ", ".join(f"{name} was {flat[0].get(name)}, now {flat[1][name]}" for name in changed) or "from another version"
    )
