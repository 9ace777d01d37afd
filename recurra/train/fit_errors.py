"""Errors and warnings of training runs; each says at which step, and what to resume from."""

import signal
from pathlib import Path

from recurra.errors import RecurraError


class CheckpointError(RecurraError):
    """A checkpoint cannot be written, or a folder is not a valid checkpoint."""

    def __init__(self, path: str | Path, problem: str):
        super().__init__(f"{path}: {problem}")
        self.path, self.problem = Path(path), problem

    def __reduce__(self):
        return type(self), (self.path, self.problem)


class MismatchError(CheckpointError):
    """A valid checkpoint of another model, optimizer or number of processes."""


class RunInUseError(CheckpointError):
    """Another process trains in the folder."""

    def __init__(self, path: str | Path, owner: str):
        super().__init__(path, f"in use by {owner}; wait until it ends, or choose another folder")
        self.owner = owner

    def __reduce__(self):
        return type(self), (self.path, self.owner)


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written or read; an older one remains."""


class LogWarning(UserWarning):
    """The log file cannot be written; later lines are missing."""


class NonFiniteError(RecurraError, ArithmeticError):
    """The loss or a gradient is not finite. The weights are those before this step."""

    def __init__(self, step: int, quantity: str, layer: str, ids: list[int]):
        shown = ", ".join(map(str, ids[:32])) + (", …" if len(ids) > 32 else "")
        super().__init__(f"step {step}: the {quantity} is not finite; first seen in {layer}; sequences {shown}")
        self.step, self.quantity, self.layer, self.ids = step, quantity, layer, ids

    def __reduce__(self):
        return type(self), (self.step, self.quantity, self.layer, self.ids)


class OutOfMemoryError(RecurraError, MemoryError):
    """A batch does not fit into memory, not even in small parts."""


class RankError(RecurraError, RuntimeError):
    """Another process of this run has ended or does not answer."""


class OtherProcessError(RankError):
    """Another process of this run has failed; it raises the reason."""


class Interrupted(SystemExit):
    """SIGTERM arrived, and a checkpoint was saved if possible. Uncaught, the script exits with 128 + the signal."""

    def __init__(self, signum: int, step: int, checkpoint: Path | None):
        super().__init__(128 + signum)
        self.signum, self.step, self.checkpoint = signal.Signals(signum), step, checkpoint

    def __reduce__(self):
        return type(self), (int(self.signum), self.step, self.checkpoint)

    def __str__(self) -> str:
        saved = f"saved {self.checkpoint}; the same call resumes there" if self.checkpoint else "nothing was saved"
        return f"{self.signum.name} after step {self.step}: {saved}"


class KeyboardInterrupted(Interrupted, KeyboardInterrupt):
    """Ctrl-C arrived: an `Interrupted` that `except KeyboardInterrupt` catches, with exit code 130."""
