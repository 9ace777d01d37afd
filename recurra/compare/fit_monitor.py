"""A training callback that reports progress, counts seconds, and stops a fit at a time limit."""

import time
from collections.abc import Callable
from typing import Any

from recurra.train.fit_context import fit_context
from recurra.train.run import Event, Run

ReportProgress = Callable[[float, str], None]  # fraction done, and a short note
REPORT_EVERY = 0.1  # seconds
MIN_EPOCH_SECONDS = 0.2  # shorter epochs cost about as much to save as to repeat


class NeedsCheckpoints(Exception):
    """The fit takes too long to repeat: start it again with checkpoints."""


class FitMonitor:
    """Reports the progress of a training run and counts its seconds; the first step, which may compile, is not counted.

    An estimator may fit more than once. Each of these fits ends after `limit` seconds. `NeedsCheckpoints` is raised as
    soon as a fit is expected to take longer than `too_long` seconds. The seconds are part of the checkpoints.
    """

    checkpoint_key = "Watch"  # the class name in 0.1.0, under which checkpoints hold the seconds

    def __init__(self, report: ReportProgress, limit: float | None = None, too_long: float | None = None):
        self.report, self.limit, self.too_long = report, limit, too_long
        self.seconds, self.fits = 0.0, 0  # over all fits
        self._fit_seconds, self._steps, self._last_report = 0.0, 0, 0.0  # of this fit
        self._last: float | None = None

    def __call__(self, event: Event, run: Run, /) -> None:
        now = time.perf_counter()
        if event == "start":
            self._start(run)
            return
        if self._last is not None:
            self.seconds += now - self._last
            self._fit_seconds += now - self._last
        if event == "step" or self._steps:
            self._last = now
        if event == "step":
            self._steps += 1
            self._report(run, now)
        if self.limit is not None and self._fit_seconds >= self.limit:
            run.stop = True

    def _start(self, run: Run) -> None:
        if not run.progress.step:  # a resumed fit has its seconds from the checkpoint
            self._fit_seconds = 0.0
        self.fits, self._steps, self._last = self.fits + 1, 0, None

    def _report(self, run: Run, now: float) -> None:
        if now - self._last_report < REPORT_EVERY:
            return
        self._last_report = now
        fit = f"fit {self.fits}, " if self.fits > 1 else ""
        self.report(run.progress.step / run.total_steps, f"{fit}loss {run.loss:.3f}")
        if self.too_long is not None and self._is_worth_checkpoints(run, self.too_long):
            raise NeedsCheckpoints

    def _is_worth_checkpoints(self, run: Run, too_long: float) -> bool:
        """Whether the fit is long and its epochs are long enough to be saved, or the fit is very long."""
        if self._fit_seconds < min(1.0, too_long):
            return False  # too early to estimate
        step = self._fit_seconds / max(1, self._steps - 1)
        expected, epoch = step * run.total_steps, step * run.steps_per_epoch
        return expected > too_long and (epoch > MIN_EPOCH_SECONDS or expected > 10 * too_long)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "this": self._fit_seconds}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seconds, self._fit_seconds = float(state["seconds"]), float(state["this"])


def time_one_epoch(fit: Callable[[], Any]) -> tuple[float, int]:
    """Seconds and number of training runs of `fit`, which fits an estimator for one epoch."""
    monitor = FitMonitor(lambda fraction, note: None)
    started = time.perf_counter()
    with fit_context(callbacks=[monitor]):
        fit()
    # An epoch of one step has no counted seconds: the first step is left out.
    return monitor.seconds or time.perf_counter() - started, monitor.fits
