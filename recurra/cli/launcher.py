"""The command line under `torchrun`: training runs in all processes, other commands in one, and one prints."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, TextIO

#: what torchrun tells its processes; without it a process is alone
VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
_stderr: TextIO | None = None  # of a process that does not print


def place() -> tuple[int, int]:
    """The rank of this process and the number of processes: (0, 1) without a launcher."""
    size = int(os.environ.get("WORLD_SIZE", 1))
    return (int(os.environ.get("RANK", 0)), size) if size > 1 else (0, 1)


def silence_other_processes(debugging: bool) -> None:
    """Only the first process prints, and the one that reports an error."""
    global _stderr
    if place()[0] == 0 or debugging:
        return
    _stderr = sys.stderr
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 — open until the process ends


def error_stream() -> TextIO | None:
    """Where to print an error: standard error, or None if another process of the job has printed one."""
    if place()[1] > 1:
        from recurra.train.distributed import is_first_to

        if not is_first_to("print an error"):
            return None
    return _stderr or sys.stderr


def name_of_process() -> str:
    """` in process 1 of 2 on HOST`, or nothing in the first."""
    import socket

    rank, size = place()
    return f" in process {rank} of {size} on {socket.gethostname()}" if rank else ""


def first_process_only(command: Callable[..., None]) -> Callable[..., None]:
    """The command, run by the first process alone; the others have nothing to do."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        rank, size = place()
        if size > 1:
            for name in VARIABLES:  # a fit inside, or in a worker, must not wait for the others
                os.environ.pop(name, None)
        if rank == 0:
            command(*arguments, **options)

    return run


def launched_as() -> str:
    """How `recurra` was started, to be repeated: `recurra`, or torchrun with the module."""
    if place()[1] == 1:
        return "recurra"
    here = os.environ.get("LOCAL_WORLD_SIZE", "…")
    machines = os.environ.get("GROUP_WORLD_SIZE", "1")
    several = "" if machines == "1" else f"--nnodes {machines} … "
    return f"torchrun {several}--nproc-per-node {here} -m recurra"
