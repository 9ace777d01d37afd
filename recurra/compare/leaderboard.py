"""The leaderboard: mean and standard deviation over seeds, best first, baselines included."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from recurra.compare.run_folder import Row
from recurra.compare.verdict import verdict

#: metrics shown in percent
PERCENT_METRICS = ("accuracy", "f1")


@dataclass(frozen=True)
class LeaderboardEntry:
    """The results of one cell or baseline over its seeds.

    **Example**

        >>> entry = rc.compare.LeaderboardEntry("gru", baseline=False, scores=(0.9, 0.8))
        >>> round(entry.mean, 2), round(entry.std, 2)
        (0.85, 0.07)
    """

    name: str
    baseline: bool
    scores: tuple[float, ...]
    parameters: int | None = None
    seconds: float | None = None  # mean training time per seed
    hidden_size: int | None = None
    epochs: float | None = None
    settings: dict[str, Any] | None = None
    errors: tuple[str, ...] = ()
    model: str | None = None  # path of the model, relative to the run folder

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def std(self) -> float | None:
        """The sample standard deviation over the seeds; None for a single seed."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "LeaderboardEntry":
        """The entry of one cell or baseline, from the rows of its seeds."""
        good = [row for row in rows if "error" not in row]
        first = good[0] if good else rows[0]
        return cls(
            name=first["name"],
            baseline=first["kind"] == "baseline",
            scores=tuple(row["score"] for row in good),
            parameters=first.get("parameters"),
            seconds=statistics.fmean(row["seconds"] for row in good) if good else None,
            hidden_size=first.get("hidden_size"),
            epochs=statistics.fmean(row["epochs"] for row in good) if good and "epochs" in first else None,
            settings=first.get("settings"),
            errors=tuple(dict.fromkeys(row["error"] for row in rows if "error" in row)),
            model=f"models/{first['name']}" if "model" in first else None,
        )

    def to_json(self) -> dict[str, Any]:
        """The entry in values that JSON has; what is empty is left out."""
        plain = {name: getattr(self, name) for name in ("name", "baseline", "mean", "std", "parameters", "seconds")}
        plain |= {"scores": list(self.scores), "hidden_size": self.hidden_size, "epochs": self.epochs}
        plain |= {"settings": self.settings, "errors": list(self.errors), "model": self.model}
        return {name: value for name, value in plain.items() if value not in (None, [], {})} | {"mean": self.mean}


@dataclass(frozen=True)
class Leaderboard:
    """The result of `compare`: one entry per cell and baseline, best first. rich prints it as a table.

    **Attributes**

    - `entries`: `LeaderboardEntry`s, best mean first; failed ones last.
    - `best`: the best cell.
    - `verdict`: what wins, and whether by more than the spread over seeds, in a sentence.
    - `metric`, `higher_is_better`: what the scores are.
    - `folder`: the run folder, with the models below `models/`.
    - `report`: the HTML report, if one was written.

    **Example**

        >>> from pathlib import Path
        >>> entry = rc.compare.LeaderboardEntry("gru", baseline=False, scores=(0.9, 0.8))
        >>> board = rc.compare.Leaderboard("data.csv", "classify", "accuracy", True, (entry,), Path("run"))
        >>> board.best.name, round(board.best.mean, 2)
        ('gru', 0.85)
    """

    source: str
    task: str
    metric: str
    higher_is_better: bool
    entries: tuple[LeaderboardEntry, ...]
    folder: Path
    report: Path | None = None

    @classmethod
    def of(cls, rows: Sequence[Row], problem: Any, folder: Path, report: Path | None = None) -> "Leaderboard":
        """Ranked by mean score, then by fewer parameters; failed entries last."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["kind"], row["name"]), []).append(row)
        sign = -1 if problem.higher_is_better else 1

        def rank(entry: LeaderboardEntry) -> tuple[bool, float, int, str]:
            return entry.mean is None, sign * (entry.mean or 0.0), entry.parameters or 0, entry.name

        entries = tuple(sorted((LeaderboardEntry.of(group) for group in groups.values()), key=rank))
        header = problem.source, problem.task, problem.metric, problem.higher_is_better
        return cls(*header, entries, folder, report)

    @property
    def best(self) -> LeaderboardEntry:
        """The best cell; baselines are left out."""
        return next(entry for entry in self.entries if not entry.baseline)

    @property
    def verdict(self) -> str:
        """What wins, and whether by more than the spread over seeds."""
        return verdict(self)

    def to_json(self) -> dict[str, Any]:
        """The board in values that JSON has, as in `leaderboard.json`."""
        return {
            "source": self.source,
            "verdict": self.verdict,
            "task": self.task,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "folder": str(self.folder),
            "report": None if self.report is None else str(self.report),
            "rows": [entry.to_json() for entry in self.entries],
        }

    @property
    def unit(self) -> tuple[int, int, str]:
        """How scores are displayed: factor, decimals, suffix."""
        return (100, 1, " %") if self.metric in PERCENT_METRICS else (1, 4, "")

    def format_score(self, entry: LeaderboardEntry) -> str:
        """`mean ± std` in the unit of the metric."""
        if entry.mean is None:
            return "failed"
        factor, digits, unit = self.unit
        std = "" if entry.std is None else f" ± {factor * entry.std:.{digits}f}"
        return f"{factor * entry.mean:.{digits}f}{std}{unit}"

    def table_rows(self) -> list[dict[str, str]]:
        """One mapping per entry, column → text, all with the same keys."""
        return [
            {
                "": str(rank),
                "cell": f"{entry.name} (baseline)" if entry.baseline else entry.name,
                f"test {self.metric}": self.format_score(entry),
                "parameters": "" if entry.parameters is None else f"{entry.parameters:,}",
                "units": "" if entry.hidden_size is None else str(entry.hidden_size),
                "seconds": "" if entry.seconds is None else f"{entry.seconds:.1f}",
                "seeds": str(len(entry.scores)),
            }
            for rank, entry in enumerate(self.entries, start=1)
        ]

    def save_svg(self, path: str | Path, width: int = 80) -> None:
        """Write the table as an SVG picture of a terminal."""
        console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
        console.print(self)
        console.save_svg(str(path), title=f"recurra compare {Path(self.source).name}")

    def __rich__(self) -> Table:
        better = "higher" if self.higher_is_better else "lower"
        seeds = max((len(entry.scores) for entry in self.entries), default=0)
        over = f", mean ± std of {seeds} seeds" if seeds > 1 else ""
        title = f"{Path(self.source).name}: test {self.metric}{over}; {better} is better"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        rows = [{key: text for key, text in row.items() if key != "seeds"} for row in self.table_rows()]
        for heading in rows[0] if rows else ():
            table.add_column(
                heading.removeprefix("test "), justify="left" if heading == "cell" else "right", no_wrap=True
            )
        first = next((entry for entry in self.entries if not entry.baseline and entry.mean is not None), None)
        for entry, row in zip(self.entries, rows, strict=True):
            style = "bold green" if entry is first else "dim" if entry.baseline else "red" if entry.mean is None else ""
            table.add_row(*row.values(), style=style)
        return table
