"""An estimator's training, watched: how far it is, how long it took, when to stop."""

import time
from collections.abc import Callable
from typing import Any

from recurra.train.fit_context import surrounded
from recurra.train.run import Event, Run

Tell = Callable[[float, str], None]  # the share that is done, and a word about it
OFTEN = 0.1  # seconds between two words
WORTH_SAVING = 0.2  # seconds of an epoch, after each of which a checkpoint is written


class Long(Exception):
    """The training takes longer than can be lost: it should begin again, with checkpoints."""


class Watch:
    """A callback that tells how far the training is and counts its seconds.

    An estimator may fit more than once. `limit`: seconds after which each of these fits ends. `too_long`: raise `Long`
    as soon as a fit is expected to take longer. First steps are not counted, since they may compile. The seconds are
    part of the checkpoints.
    """

    def __init__(self, tell: Tell, limit: float | None = None, too_long: float | None = None):
        self.tell, self.limit, self.too_long = tell, limit, too_long
        self.seconds, self.fits = 0.0, 0  # in all
        self._this, self._steps, self._told = 0.0, 0, 0.0  # seconds and steps of this fit
        self._last: float | None = None

    def __call__(self, event: Event, run: Run, /) -> None:
        now = time.perf_counter()
        if event == "start":
            self._begin(run)
            return
        if self._last is not None:
            self.seconds += now - self._last
            self._this += now - self._last
        if event == "step" or self._steps:
            self._last = now
        if event == "step":
            self._steps += 1
            self._speak(run, now)
        if self.limit is not None and self._this >= self.limit:
            run.stop = True

    def _begin(self, run: Run) -> None:
        if not run.progress.step:  # else the checkpoint has said
            self._this = 0.0
        self.fits, self._steps, self._last = self.fits + 1, 0, None

    def _speak(self, run: Run, now: float) -> None:
        if now - self._told < OFTEN:
            return
        self._told = now
        fit = f"fit {self.fits}, " if self.fits > 1 else ""
        self.tell(run.progress.step / run.total_steps, f"{fit}loss {run.loss:.3f}")
        if self.too_long is not None and self._worth_keeping(run, self.too_long):
            raise Long

    def _worth_keeping(self, run: Run, too_long: float) -> bool:
        """Long in all, and its epochs longer than it takes to save them, unless it is very long."""
        if self._this < min(1.0, too_long):
            return False  # too early to say
        step = self._this / max(1, self._steps - 1)
        expected, epoch = step * run.total_steps, step * run.steps_per_epoch
        return expected > too_long and (epoch > WORTH_SAVING or expected > 10 * too_long)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "this": self._this}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seconds, self._this = float(state["seconds"]), float(state["this"])


def probe(learn: Callable[[], Any]) -> tuple[float, int]:
    """How long an epoch takes, in all fits of an estimator that is to learn for one, and how many fits these are."""
    watch = Watch(lambda share, word: None)
    started = time.perf_counter()
    with surrounded(callbacks=[watch]):
        learn()
    # With one step an epoch nothing was counted but what compiles.
    return watch.seconds or time.perf_counter() - started, watch.fits
