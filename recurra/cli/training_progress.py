"""Progress of a training run: a bar on a terminal, about ten lines elsewhere."""

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES = 10  # printed without a terminal


class TrainingProgress:
    """A callback of `rc.train.fit` that prints progress; `where` says how far the run is."""

    def __init__(self, console: Console):
        self.console, self.started, self.seconds = console, time.monotonic(), 0.0
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.where, self.rounds, self.title = "before the first step", 0, ""

    def __call__(self, event: str, run: Any, /) -> None:
        progress = run.progress
        epoch = min(progress.epoch + 1, run.epochs)
        self.where = f"{self.title}in epoch {epoch} of {run.epochs}, after step {progress.step} of {run.total_steps}"
        match event:
            case "start":
                self.rounds += 1  # some estimators train more than once
                self.title = f"round {self.rounds}, " if self.rounds > 1 else ""
                self._start(run, progress.step)
            case "step" if self.bar is not None and self.task is not None:
                self.bar.update(
                    self.task, completed=progress.step, description=f"{self.title}epoch {epoch}/{run.epochs}"
                )
            case "epoch":
                self._epoch(run)
            case "end":
                self.seconds = time.monotonic() - self.started
                if self.bar is not None:
                    self.bar.stop()

    def _start(self, run: Any, step: int) -> None:
        if step:
            self.console.print(f"Resuming {self.where}.")
        if self.console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.task = self.bar.add_task("epoch 1", total=run.total_steps, completed=step, note="")
            self.bar.start()

    def _epoch(self, run: Any) -> None:
        record = run.progress.history[-1]
        note = "  ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in _losses(record).items())
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, note=note)
        elif self._is_printed(record["epoch"] + 1, run.epochs):
            self.console.print(f"{self.title}epoch {record['epoch'] + 1} of {run.epochs}: {note}")

    def _is_printed(self, epoch: int, epochs: int) -> bool:
        return epoch in (1, epochs) or epoch % max(1, epochs // LINES) == 0


def _losses(record: dict[str, Any]) -> dict[str, float]:
    return {name: value for name, value in record.items() if isinstance(value, float) and "loss" in name}
