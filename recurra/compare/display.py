"""What a person sees while it runs: bars on a terminal, lines elsewhere, nothing without a console."""

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from recurra.compare.plan import Entrant
from recurra.compare.run_folder import Row


class Quiet:
    """Nobody is watching."""

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *exception: object) -> None: ...

    def say(self, text: str) -> None: ...

    def begin(self, entrant: Entrant) -> None: ...

    def tell(self, entrant: Entrant, share: float, word: str) -> None: ...

    def end(self, entrant: Entrant, row: Row | None, done: int) -> None: ...


class Lines(Quiet):
    """A line for every result."""

    def __init__(self, console: Console, total: int, done: int, metric: str):
        self.console, self.total, self.metric = console, total, metric

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def end(self, entrant: Entrant, row: Row | None, done: int) -> None:
        if row is not None:
            self.say(f"{done:>4} of {self.total}  {entrant}: {summary(row, self.metric)}")


class Bars(Quiet):
    """A bar for every fit under way, and one for all of them."""

    def __init__(self, console: Console, total: int, done: int, metric: str):
        self.metric, self.console = metric, console
        columns = (
            TextColumn("{task.description:>24}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[word]:<18}"),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True)
        self.all = self.progress.add_task("all fits", total=total, completed=done, word=f"{done} of {total}")
        self.total, self.tasks = total, dict[Entrant, TaskID]()

    def __enter__(self) -> "Bars":
        self.progress.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.progress.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def begin(self, entrant: Entrant) -> None:
        self.tasks[entrant] = self.progress.add_task(str(entrant), total=1.0, word="")

    def tell(self, entrant: Entrant, share: float, word: str) -> None:
        if entrant in self.tasks:
            self.progress.update(self.tasks[entrant], completed=share, word=word)

    def end(self, entrant: Entrant, row: Row | None, done: int) -> None:
        if entrant in self.tasks:
            self.progress.remove_task(self.tasks.pop(entrant))
        self.progress.update(self.all, completed=done, word=f"{done} of {self.total}")


def display(console: Console | None, total: int, done: int, metric: str) -> Quiet:
    if console is None:
        return Quiet()
    return (Bars if console.is_terminal else Lines)(console, total, done, metric)


def summary(row: dict[str, Any], metric: str) -> str:
    """A result in a few words."""
    if "error" in row:
        return f"failed, {row['error']}"
    if row["kind"] == "tuning":
        return ", ".join(f"{name} {value:.3g}" for name, value in row["settings"].items())
    return f"{metric} {row['score']:.4g}, {row['parameters']:,} parameters, {row['seconds']:.1f} s"
