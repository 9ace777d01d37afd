"""One run per folder of checkpoints: a lock that names the process that trains there."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from recurra.file_lock import LockHeldError, owned_lock
from recurra.train.distributed import Processes
from recurra.train.fit_errors import RunInUseError

LOCK = ".lock"


@contextmanager
def run_lock(folder: str | Path | None, processes: Processes | None = None) -> Iterator[None]:
    """Hold a run's folder inside the block; if another process trains there, all ranks raise `RunInUseError`.

    A folder that cannot be written is not locked: the first save raises and names the reason.
    """
    with ExitStack() as held:
        if folder is not None:
            refused = _enter(held, Path(folder)) if processes is None or processes.first else None
            if refused if processes is None else any(processes.largest([float(refused is not None)])):
                raise RunInUseError(folder, refused or "another process")
        yield


def _enter(held: ExitStack, folder: Path) -> str | None:
    """Take the lock, or return the process that has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held.enter_context(owned_lock(folder / LOCK))
    except LockHeldError as error:
        return str(error.owner or "another process")
    except OSError:
        return None
    return None
