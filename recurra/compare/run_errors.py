"""Errors that end a comparison early."""

import signal
from pathlib import Path

from recurra.errors import InputError, RecurraError


class RunFolderError(InputError):
    """A run folder holds something other than the requested run.

    **Example**

        >>> from pathlib import Path
        >>> Path("photos").mkdir()
        >>> _ = Path("photos/cat.jpg").write_bytes(b"")
        >>> try:
        ...     rc.compare("japanese_vowels", cells="rnn", folder="photos")
        ... except rc.compare.RunFolderError as error:
        ...     print(error)
        folder: got photos, which contains other files, expected an empty or new folder
    """


class WorkerError(RecurraError):
    """A worker process could not start.

    **Example**

        >>> issubclass(rc.compare.WorkerError, rc.RecurraError)
        True
    """


class RunInterrupted(SystemExit):
    """SIGTERM arrived; finished fits are saved. Uncaught, it ends the script with exit code 128 + the signal.

    **Example**

        >>> import signal
        >>> from pathlib import Path
        >>> print(rc.compare.RunInterrupted(signal.SIGTERM, done=3, total=8, folder=Path("run")))
        3 of 8 fits are done and saved in run; the same call resumes the run
    """

    def __init__(self, signum: int, done: int, total: int, folder: Path):
        super().__init__(128 + signum)
        self.signum, self.done, self.total, self.folder = signal.Signals(signum), done, total, folder

    def __str__(self) -> str:
        return f"{self.done} of {self.total} fits are done and saved in {self.folder}; the same call resumes the run"


class RunKeyboardInterrupt(RunInterrupted, KeyboardInterrupt):
    """Ctrl-C arrived: a `RunInterrupted` that `except KeyboardInterrupt` catches, with exit code 130."""
