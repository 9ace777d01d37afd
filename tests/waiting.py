"""Waiting for an event: over as soon as it is there, with a limit that no slow machine reaches."""

import subprocess
import time
from collections.abc import Callable

PATIENCE = 300.0  # seconds after which an event is not expected any more


def wait_until(happened: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Return when `happened()` is true. A process that ends before, or `PATIENCE`, is a failure."""
    until = time.monotonic() + PATIENCE
    while not happened():
        ended = process is not None and process.poll() is not None
        assert not ended or happened(), f"the process ended early: {process and process.communicate()}"
        assert time.monotonic() < until, f"nothing happened for {PATIENCE:g} s"
        time.sleep(0.01)
