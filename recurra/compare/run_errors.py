"""What ends a comparison early."""

import signal
from pathlib import Path

from recurra.errors import InputError, RecurraError


class RunFolderError(InputError):
    """A run folder holds something else than the run that was asked for."""


class WorkerError(RecurraError):
    """A worker process could not begin."""


class Stopped(SystemExit):
    """SIGTERM arrived: what was finished is kept. Left alone, it ends the script with exit code 128 + the signal."""

    def __init__(self, signum: int, done: int, total: int, folder: Path):
        super().__init__(128 + signum)
        self.signum, self.done, self.total, self.folder = signal.Signals(signum), done, total, folder

    def __str__(self) -> str:
        return (
            f"{self.done} of {self.total} fits are done and kept in {self.folder}; the same command goes on from there"
        )


class KeyboardStopped(Stopped, KeyboardInterrupt):
    """Ctrl-C arrived: a `Stopped` that `except KeyboardInterrupt` catches, with exit code 130."""
