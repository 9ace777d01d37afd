"""SIGTERM and Ctrl-C: recorded when they arrive, handled by the loop between two steps."""

import signal
import threading
import time
from types import FrameType

PATIENCE = 1.0  # seconds; a launcher repeats the signal that its whole process group has already received


class Interrupt:
    """Inside `with`, `signum` is the signal that asked this process to stop, or 0.

    A second Ctrl-C more than a second after the first raises `KeyboardInterrupt` at once. Outside the main thread,
    where Python allows no handlers, nothing changes.
    """

    def __init__(self):
        self.signum, self._since, self._before = 0, 0.0, {}

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if signum == signal.SIGINT and self.signum and now - self._since > PATIENCE:
            raise KeyboardInterrupt
        if not self.signum:
            self.signum, self._since = signum, now
