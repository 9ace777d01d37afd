"""Callbacks that report a run: a JSON log with one line per event, and progress on the terminal."""

import errno
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recurra.argument_checks import path_of
from recurra.optional import is_installed, optional_imports
from recurra.train.fit_errors import LogWarning
from recurra.train.run import Callback, Event, Run


class JsonLines:
    """A log file with one JSON object per line. A resumed run truncates what it will repeat: each step appears once.

    **Example**

        >>> import json
        >>> from pathlib import Path
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> _ = rc.train.fit(model, data, epochs=1, callbacks=[rc.train.JsonLines("log.jsonl")], progress=False)
        >>> [json.loads(line)["event"] for line in Path("log.jsonl").read_text().splitlines()]
        ['start', 'step', 'epoch', 'end']
    """

    def __init__(self, path: str | Path):
        self.path, self.started, self.failed, self._keep = path_of("path", path), time.monotonic(), False, 0

    def __call__(self, event: Event, run: Run, /) -> None:
        progress = run.progress
        record: dict[str, Any] = {"event": event, "step": progress.step, "epoch": progress.epoch}
        match event:
            case "start":
                self._open()
                weights = sum(p.numel() for p in run.model.parameters())
                record |= {
                    "device": str(run.device),
                    "precision": run.precision,
                    "processes": run.processes,
                    "weights": weights,
                }
            case "step":
                record |= {"loss": run.loss, "norm": run.norm, "rate": run.rates[0]}
            case "epoch":
                record |= progress.history[-1]
            case "save failed":
                record |= {"message": run.message}
            case "end":
                record |= {"stopped": progress.stopped}
        record["seconds"] = round(time.monotonic() - self.started, 3)
        self._append(json.dumps(record) + "\n")

    def _open(self) -> None:
        """Truncate the log to its length at the checkpoint. A shorter file lost its end in a crash and stays."""
        if self.path.exists() and self.path.stat().st_size > self._keep:
            self._try(lambda: os.truncate(self.path, self._keep))

    def _append(self, line: str) -> None:
        def write() -> None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.path, "ab", buffering=0) as file:
                before, data = file.tell(), line.encode()
                if file.write(data) < len(data):  # a partial write: the disk is full
                    file.truncate(before)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        self._try(write)

    def _try(self, action: Callable[[], None]) -> None:
        """Run `action`; a log that cannot be written gives one warning and does not end the run."""
        try:
            action()
        except OSError as error:
            if not self.failed:
                warnings.warn(
                    f"{self.path}: the log cannot be written ({error}); training continues", LogWarning, stacklevel=2
                )
            self.failed = True

    def state_dict(self) -> dict[str, Any]:
        return {"bytes": self.path.stat().st_size if self.path.exists() else 0}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._keep = int(state["bytes"])


class Bar:
    """A progress bar on standard error: loss, steps per second, time left. Needs rich; `Lines` does without.

    **Example**

        >>> import contextlib, io
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> with contextlib.redirect_stderr(io.StringIO()) as shown:
        ...     _ = rc.train.fit(model, data, epochs=1, callbacks=[rc.train.Bar()], progress=False)
        >>> "epoch 1" in shown.getvalue()
        True
    """

    def __init__(self):
        with optional_imports("cli", what="rc.train.Bar"):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
        )
        self.bar = Progress(*columns, console=Console(stderr=True))
        self.task: TaskID | None = None
        self.first, self.since = 0, 0.0

    def __call__(self, event: Event, run: Run, /) -> None:
        step = run.progress.step
        if event == "start":
            self.bar.console.print(_opening_line(run), highlight=False)
            self.task = self.bar.add_task("epoch 1", total=run.total_steps, completed=step, figures="")
            self.first, self.since = step, time.monotonic()
            self.bar.start()
        elif self.task is None:
            return
        elif event == "step":
            rate = (step - self.first) / max(time.monotonic() - self.since, 1e-9)
            title, figures = f"epoch {run.progress.epoch + 1}/{run.epochs}", f"loss {run.loss:.4g}  {rate:.3g} steps/s"
            self.bar.update(self.task, completed=step, description=title, figures=figures)
        elif event == "epoch":
            self.bar.console.print(_epoch_line(run), highlight=False)
        elif event == "end":
            self.bar.stop()


class Lines:
    """Progress as plain lines on standard error: one at the start and one per epoch.

    **Example**

        >>> import contextlib, sys
        >>> inputs = [torch.randn(n, 2) for n in (5, 3)]
        >>> data = rc.data.SequenceSet.from_arrays(inputs, [(x[:, 0] > 0).long() for x in inputs], "tagging")
        >>> model = rc.train.Predictor(rc.GRU(2, 4), 2)
        >>> with contextlib.redirect_stderr(sys.stdout):
        ...     _ = rc.train.fit(model, data, epochs=1, callbacks=[rc.train.Lines()], progress=False)
        Predictor: 94 weights on cpu, float32
        epoch 1: loss 0.6956  rate 0.001
    """

    def __call__(self, event: Event, run: Run, /) -> None:
        if event == "start":
            print(_opening_line(run), file=sys.stderr, flush=True)
        elif event == "epoch":
            print(_epoch_line(run), file=sys.stderr, flush=True)


def progress_callback() -> Callback:
    """A bar where rich is installed, plain lines where it is not."""
    return Bar() if is_installed("rich") else Lines()


def stderr_is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None: a process without a console, as pythonw.exe


def _opening_line(run: Run) -> str:
    weights = sum(p.numel() for p in run.model.parameters())
    where = f"{run.device}, {run.precision}" + (f", {run.processes} processes" if run.processes > 1 else "")
    return f"{type(run.model).__name__}: {weights:,} weights on {where}"


def _epoch_line(run: Run) -> str:
    record = run.progress.history[-1]
    figures = "  ".join(f"{name} {value:.4g}" for name, value in record.items() if isinstance(value, float))
    return f"epoch {record['epoch'] + 1}: {figures}"
