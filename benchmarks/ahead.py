"""Compile what a benchmark runs on a card before it is timed, in many processes: Triton keeps what they compile.

It does not keep which configuration of a kernel was fastest while others used the card.
"""

import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

PROCESSES = 14


def side_by_side(commands: Iterable[list[str]], processes: int = PROCESSES, seconds: float | None = None) -> None:
    """Run commands, `processes` at a time, each for at most `seconds`. What fails is left to the run that is timed."""

    env = os.environ | {"FLA_CACHE_RESULTS": "0", "TRITON_CACHE_AUTOTUNING": "0"}

    def run(command: list[str]) -> None:
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(command, check=False, env=env, stdout=subprocess.DEVNULL, timeout=seconds)

    with ThreadPoolExecutor(processes) as pool:
        list(pool.map(run, commands))


def shares(wanted: list[str], count: int = PROCESSES) -> list[list[str]]:
    """What is wanted, dealt out to as many processes."""
    return [wanted[i::count] for i in range(count) if wanted[i::count]]
