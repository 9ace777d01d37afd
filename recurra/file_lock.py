"""Exclusive locks on files, held by one process at a time and released when the process ends."""

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

POLL = 0.1  # seconds between two attempts where no system call waits for the lock
LOCKED_BYTE = 1 << 30  # Windows locks bytes, which no process may read then: one behind the text of the file
#: errors of a file system without locks
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}


@contextmanager
def exclusive_lock(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock inside the block. `wait=False` raises `BlockingIOError` if another process holds it."""
    with open(path, "wb") as file:
        _lock(file, wait)
        yield


def _lock(file: IO[bytes], wait: bool) -> None:
    if fcntl is None:
        _lock_on_windows(file, wait)
    else:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


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


# ------------------------------------------------------------------------------------ locks that name their owner


@dataclass(frozen=True)
class LockOwner:
    """The process that holds a lock: its number, host and start time, and since when it holds the lock."""

    pid: int
    host: str
    since: str
    started: str | None  # tells a process from a later one with the same number; None where the system does not say

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    @classmethod
    def this_process(cls) -> "LockOwner":
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        return cls(os.getpid(), socket.gethostname(), since, _start_time(os.getpid()))

    def may_run(self) -> bool:
        """Whether the process may still run; of a process on another host that is not known."""
        if self.host != socket.gethostname():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except OSError:  # another user's process
            pass
        return self.started == _start_time(self.pid)


class LockHeldError(BlockingIOError):
    """Another process holds the lock; `owner` is what it wrote into the file, None if that is not readable."""

    def __init__(self, owner: LockOwner | None):
        super().__init__(errno.EWOULDBLOCK, str(owner or "another process"))
        self.owner = owner


@contextmanager
def owned_lock(path: Path, wait: bool = False) -> Iterator[None]:
    """Hold a lock whose file names the process, and remove the file at the end.

    The system releases the lock of a killed process, whose file stays and is taken over. Where the file system has no
    locks, the file itself decides: it counts while its process runs. Without `wait` a held lock is a `LockHeldError`.
    """
    file = _acquire(path, wait)
    _HELD.add(file)
    try:
        yield
    finally:
        if file in _HELD:  # not in a child that was forked meanwhile
            _HELD.remove(file)
            _release(file, path)


def _acquire(path: Path, wait: bool) -> IO[bytes]:
    while True:
        file = _open_locked(path, wait)
        if _is_file_at(file, path):  # else the previous owner has just removed it
            _write_owner(path)
            return file
        file.close()


def _write_owner(path: Path) -> None:
    # on a full disk the lock holds all the same
    with contextlib.suppress(OSError), open(path, "r+b", opener=_create_without_links) as file:
        file.truncate(0)
        file.write(json.dumps(asdict(LockOwner.this_process())).encode())


def _open_locked(path: Path, wait: bool, mode: str = "rb") -> IO[bytes]:
    """Open the file to read, so that its disk can be remounted read-only; NFS locks only files open for writing."""
    file = open(path, mode, buffering=0, opener=_create_without_links)  # noqa: SIM115 — stays open with the lock
    try:
        _lock_or_ask_owner(file, wait)
        return file
    except OSError as error:
        file.close()
        if error.errno == errno.EBADF and mode == "rb":
            return _open_locked(path, wait, "r+b")
        raise
    except BaseException:
        file.close()
        raise


def _create_without_links(path: str, flags: int) -> int:
    """Open or create a file; a link is an error, because its target would be overwritten."""
    return os.open(path, flags | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)


def _lock_or_ask_owner(file: IO[bytes], wait: bool) -> None:
    file.seek(LOCKED_BYTE)
    try:
        _lock(file, wait)
    except BlockingIOError:
        raise LockHeldError(_owner(file)) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        while (owner := _owner(file)) is not None and owner.may_run():
            if not wait:
                raise LockHeldError(owner) from None
            time.sleep(POLL)


def _owner(file: IO[bytes]) -> LockOwner | None:
    try:
        file.seek(0)
        return LockOwner(**json.loads(file.read(4096)))
    except (OSError, ValueError, TypeError):
        return None


def _is_file_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def _release(file: IO[bytes], path: Path) -> None:
    if sys.platform == "win32":  # cannot remove an open file, and refuses to remove that of the next owner
        file.close()
    with contextlib.suppress(OSError):
        if sys.platform == "win32" or _is_file_at(file, path):
            path.unlink()
    file.close()


def _start_time(pid: int) -> str | None:
    """When a process began, in clock ticks since the system's start; None where /proc does not say."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]  # field 22; the name in parentheses may hold anything


#: files of held locks; a forked child shares them, and would hold the locks longer than their owner
_HELD: set[IO[bytes]] = set()


def _drop_inherited() -> None:
    while _HELD:
        _HELD.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_inherited)
