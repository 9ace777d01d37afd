"""An estimator's training, watched: how far it is, how long it took, when to stop."""

import time
from collections.abc import Callable
from typing import Any

from recurra.train.run import Event, Run
from recurra.train.surroundings import surrounded

Tell = Callable[[float, str], None]  # the share that is done, and a word about it
OFTEN = 0.1  # seconds between two words


class Long(Exception):
    """The training takes longer than can be lost: it should begin again, with checkpoints."""


class Measured(Exception):
    """Enough was seen to know how long an epoch takes."""

    def __init__(self, seconds: float):
        super().__init__(seconds)
        self.seconds = seconds


class Watch:
    """A callback that tells how far the training is, counts its seconds, and stops it when `limit` of them are over.

    The first step is not counted, since it may compile. The seconds are part of the checkpoint.
    """

    def __init__(self, tell: Tell, limit: float | None = None, too_long: float | None = None):
        self.tell, self.limit, self.too_long = tell, limit, too_long
        self.seconds, self._told, self._steps = 0.0, 0.0, 0
        self._last: float | None = None

    def __call__(self, event: Event, run: Run, /) -> None:
        now = time.perf_counter()
        if event not in ("step", "epoch", "end"):
            return
        if self._last is not None:
            self.seconds += now - self._last
        self._last = now
        if event == "step":
            self._steps += 1
        if event == "step" and now - self._told > OFTEN:
            self._told = now
            self.tell(run.progress.step / run.total_steps, f"loss {run.loss:.3f}")
            if self.too_long is not None and self.seconds > 1.0 and self._expected(run) > self.too_long:
                raise Long
        if self.limit is not None and self.seconds >= self.limit:
            run.stop = True

    def _expected(self, run: Run) -> float:
        return self.seconds / max(1, self._steps - 1) * run.total_steps

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seconds = float(state["seconds"])


class Pace:
    """A callback that ends a training as soon as it is known how long an epoch takes."""

    def __init__(self, enough: float):
        self.enough, self._steps = enough, 0
        self._first: float | None = None

    def __call__(self, event: Event, run: Run, /) -> None:
        now = time.perf_counter()
        if self._first is None:
            self._first = now if event == "step" else None
            return
        self._steps += event == "step"
        seconds, whole = now - self._first, run.steps_per_epoch
        seen = run.progress.epoch >= 2 if event == "epoch" else event == "end" or seconds > self.enough
        if self._steps and seen:
            raise Measured(seconds / self._steps * whole)


def seconds_an_epoch(learn: Callable[[], Any], enough: float) -> float:
    """How long an epoch takes, from two of them or from `enough` seconds."""
    try:
        with surrounded(callbacks=[Pace(enough)]):
            learn()
    except Measured as measured:
        return measured.seconds
    return enough
