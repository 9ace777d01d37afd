"""An exclusive lock on a file, held by one process at a time and released when the process ends."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

POLL = 0.1  # seconds between two attempts on Windows, which has no lock that waits without a limit


@contextmanager
def exclusive_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock inside the block. `wait=False` raises `BlockingIOError` if another process holds it."""
    with open(path, "wb") as file:
        if fcntl is None:
            _lock_on_windows(file, wait)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _lock_on_windows(file: IO[bytes], wait: bool) -> None:
    msvcrt = import_module("msvcrt")
    while True:
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            return
        except OSError as error:
            if not wait:
                raise BlockingIOError(*error.args) from error
            time.sleep(POLL)
