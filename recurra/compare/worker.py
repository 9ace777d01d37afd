"""The worker process: loads the problem once, then runs one work item after the other."""

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
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from recurra.cells.user_modules import import_user_module
from recurra.compare.plan import RunConfig, WorkItem
from recurra.compare.run_folder import Row, RunFolder

SHUTDOWN_SECONDS = 30.0  # for a worker to save its checkpoint before it is killed


@dataclass(frozen=True)
class WorkerSetup:
    """What every worker of a run receives at its start."""

    config: RunConfig
    folder: Path
    threads: int
    checkpoint_after: float  # seconds; fits that take longer keep checkpoints
    modules: tuple[str, ...] = ()  # modules that register custom cells
    path: tuple[str, ...] = field(default_factory=lambda: tuple(sys.path))


def worker_main(connection: Connection, setup: WorkerSetup) -> None:
    """Main function of the process: receives work items, sends ("progress", …) and ("result", row)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the parent handles it
    os.environ.pop("WORLD_SIZE", None)  # of a launcher such as torchrun: a fit here is no part of its job
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    logging.getLogger("recurra.train").setLevel(logging.ERROR)  # the parent reports interruptions
    from threadpoolctl import threadpool_limits

    sys.path[:] = list(setup.path)
    for name in setup.modules:
        import_user_module(name)
    import torch

    from recurra.compare.fitting import FitRunner

    torch.set_num_threads(setup.threads)
    with threadpool_limits(setup.threads):
        runner = FitRunner(setup)
        connection.send(("ready", None))
        try:
            while (item := connection.recv()) is not None:
                row = _run_item(runner, item, RunFolder(setup.folder), partial(_send_progress, connection))
                connection.send(("result", row))
        except (EOFError, BrokenPipeError):
            return  # the parent is gone


def _send_progress(connection: Connection, fraction: float, note: str) -> None:
    connection.send(("progress", (fraction, note)))


def _run_item(runner: Any, item: WorkItem, folder: RunFolder, report: Callable[[float, str], None]) -> Row:
    """The result row; an error of this item is recorded in the row, so that the others go on."""
    with folder.lock_item(item), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            row = runner.run(item, report)
        except (ArithmeticError, ValueError, LookupError, RuntimeError, MemoryError) as error:
            row = {"error": f"{type(error).__name__}: {error}"}
        shutil.rmtree(folder.fit_path(item), ignore_errors=True)
    messages = list(dict.fromkeys(str(warning.message) for warning in caught))
    return {"name": item.name, "kind": item.kind, "seed": item.seed, "warnings": messages[:5], **row}


def _exit_with_parent() -> None:
    """Stop when the parent process ends: a killed parent sends no signal."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    parent.join()
    if sys.platform == "win32":  # where `os.kill` would end the process at once
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)  # a fit saves its checkpoint
    time.sleep(SHUTDOWN_SECONDS)
    os._exit(1)
