"""A spawned process that asks the question once and then does one fit after the other."""

import logging
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from recurra.compare.plan import Entrant, Rules
from recurra.compare.run_folder import Folder, Row

GRACE = 30.0  # seconds in which an orphan may save what it has


@dataclass(frozen=True)
class Duty:
    """What every worker of a run is told at its start."""

    rules: Rules
    folder: Path
    threads: int
    keep_after: float  # seconds from which on a fit is worth checkpoints
    modules: tuple[str, ...] = ()  # that register cells of one's own
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))


def work(line: Connection, duty: Duty) -> None:
    """The main function of the process: entrants come over the line, words and rows go back."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal; a fit hears it itself
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    logging.getLogger("recurra.train").setLevel(logging.ERROR)  # the parent says what was interrupted
    from threadpoolctl import threadpool_limits

    sys.path[:] = list(duty.path)
    for name in duty.modules:
        import_module(name)
    import torch

    from recurra.compare.fitting import Fitting

    torch.set_num_threads(duty.threads)
    with threadpool_limits(duty.threads):
        fitting = Fitting(duty)
        line.send(("ready", None))
        try:
            while (entrant := line.recv()) is not None:
                line.send(("row", _row(fitting, entrant, Folder(duty.folder), partial(_tell, line))))
        except (EOFError, BrokenPipeError):
            return  # the parent is gone


def _tell(line: Connection, share: float, word: str) -> None:
    line.send(("told", (share, word)))


def _row(fitting: Any, entrant: Entrant, folder: Folder, tell: Callable[[float, str], None]) -> Row:
    """The result, or what went wrong with this cell: the others go on."""
    with folder.claimed(entrant), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            row = fitting.run(entrant, tell)
        except (ArithmeticError, ValueError, LookupError, RuntimeError, MemoryError) as error:
            row = {"error": f"{type(error).__name__}: {error}"}
        shutil.rmtree(folder.fit(entrant), ignore_errors=True)
    said = list(dict.fromkeys(str(warning.message) for warning in heard))
    return {"name": entrant.name, "kind": entrant.kind, "seed": entrant.seed, "warnings": said[:5], **row}


def _leave_with_parent() -> None:
    """A killed parent sends no signal: whoever waits for it notices."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    if sys.platform == "win32":  # where `os.kill` would end the process at once
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)  # a fit saves its checkpoint
    time.sleep(GRACE)
    os._exit(1)
