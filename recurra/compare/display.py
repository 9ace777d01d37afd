"""Progress of a comparison: bars on a terminal, one line per result elsewhere, nothing without a console."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import Row


class NoDisplay:
    """Shows nothing; the interface of the other two."""

    def __enter__(self) -> "NoDisplay":
        return self

    def __exit__(self, *exception: object) -> None: ...

    def message(self, text: str) -> None: ...

    def start(self, item: WorkItem) -> None: ...

    def update(self, item: WorkItem, fraction: float, note: str) -> None: ...

    def finish(self, item: WorkItem, row: Row | None, done: int) -> None: ...


class LineDisplay(NoDisplay):
    """One line per result."""

    def __init__(self, console: Console, total: int, done: int, metric: str):
        self.console, self.total, self.metric = console, total, metric

    def message(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def finish(self, item: WorkItem, row: Row | None, done: int) -> None:
        if row is not None:
            self.message(f"{done:>4} of {self.total}  {item}: {format_result(row, self.metric)}")


class BarDisplay(NoDisplay):
    """One bar per running fit, and one for the whole phase."""

    def __init__(self, console: Console, total: int, done: int, metric: str):
        self.metric, self.console = metric, console
        columns = (
            TextColumn("{task.description:>24}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]:<18}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True)
        self.all = self.progress.add_task("all fits", total=total, completed=done, note=f"{done} of {total}")
        self.total, self.tasks = total, dict[WorkItem, TaskID]()

    def __enter__(self) -> "BarDisplay":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def message(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def start(self, item: WorkItem) -> None:
        self.tasks[item] = self.progress.add_task(str(item), total=1.0, note="")

    def update(self, item: WorkItem, fraction: float, note: str) -> None:
        if item in self.tasks:
            self.progress.update(self.tasks[item], completed=fraction, note=note)

    def finish(self, item: WorkItem, row: Row | None, done: int) -> None:
        if item in self.tasks:
            self.progress.remove_task(self.tasks.pop(item))
        self.progress.update(self.all, completed=done, note=f"{done} of {self.total}")


def make_display(console: Console | None, total: int, done: int, metric: str) -> NoDisplay:
    """The display that suits a console; `done` of `total` items were finished by an earlier run."""
    if console is None:
        return NoDisplay()
    return (BarDisplay if console.is_terminal else LineDisplay)(console, total, done, metric)


def format_result(row: dict[str, Any], metric: str) -> str:
    """A result on one line: error, tuned settings, or score, parameters and seconds."""
    if "error" in row:
        return f"failed, {row['error']}"
    if row["kind"] == "tuning":
        return ", ".join(f"{name} {value:.3g}" for name, value in row["settings"].items())
    count = f"{row['parameters']:,} parameter{'s' if row['parameters'] != 1 else ''}"
    return f"{metric} {row['score']:.4g}, {count}, {row['seconds']:.1f} s"
