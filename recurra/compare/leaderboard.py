"""Who won: results of all seeds, best first, the baselines among them."""

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

#: metrics shown as a share of a hundred
SHARES = ("accuracy", "f1")


@dataclass(frozen=True)
class Standing:
    """One line: a cell or a baseline over its seeds."""

    name: str
    baseline: bool
    scores: tuple[float, ...]
    parameters: int | None = None
    seconds: float | None = None  # of training a seed, the mean
    hidden_size: int | None = None
    epochs: float | None = None
    settings: dict[str, Any] | None = None
    errors: tuple[str, ...] = ()
    model: str | None = None  # the folder of the model, below that of the run

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.scores) if self.scores else None

    @property
    def spread(self) -> float | None:
        """The standard deviation over the seeds, where there are several."""
        return statistics.stdev(self.scores) if len(self.scores) > 1 else None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Standing":
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
        plain = {name: getattr(self, name) for name in ("name", "baseline", "mean", "spread", "parameters", "seconds")}
        plain |= {"scores": list(self.scores), "hidden_size": self.hidden_size, "epochs": self.epochs}
        plain |= {"settings": self.settings, "errors": list(self.errors), "model": self.model}
        return {name: value for name, value in plain.items() if value not in (None, [], {})} | {"mean": self.mean}


@dataclass(frozen=True)
class Leaderboard:
    """The outcome of a comparison; `print` it with rich, or take `to_json()`."""

    source: str
    task: str
    metric: str
    higher_is_better: bool
    standings: tuple[Standing, ...]
    folder: Path
    report: Path | None = None

    @classmethod
    def of(cls, rows: Sequence[Row], question: Any, folder: Path, report: Path | None = None) -> "Leaderboard":
        """Best mean first; of equals the smaller; what failed last."""
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            groups.setdefault((row["kind"], row["name"]), []).append(row)
        sign = -1 if question.higher_is_better else 1

        def rank(one: Standing) -> tuple[bool, float, int, str]:
            return one.mean is None, sign * (one.mean or 0.0), one.parameters or 0, one.name

        standings = tuple(sorted((Standing.of(group) for group in groups.values()), key=rank))
        facts = question.source, question.task, question.metric, question.higher_is_better
        return cls(*facts, standings, folder, report)

    @property
    def best(self) -> Standing:
        """The best of the cells."""
        return next(one for one in self.standings if not one.baseline)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "task": self.task,
            "metric": self.metric,
            "higher_is_better": self.higher_is_better,
            "folder": str(self.folder),
            "report": None if self.report is None else str(self.report),
            "rows": [one.to_json() for one in self.standings],
        }

    @property
    def unit(self) -> tuple[int, int, str]:
        """How a person reads the metric: by what it is multiplied, with how many decimals, and what follows."""
        return (100, 1, " %") if self.metric in SHARES else (1, 4, "")

    def shown(self, one: Standing) -> str:
        """Mean ± spread."""
        if one.mean is None:
            return "failed"
        factor, digits, unit = self.unit
        spread = "" if one.spread is None else f" ± {factor * one.spread:.{digits}f}"
        return f"{factor * one.mean:.{digits}f}{spread}{unit}"

    def lines(self) -> list[dict[str, str]]:
        """A mapping a row, all with the same keys, for tables and pages."""
        found = []
        for place, one in enumerate(self.standings, start=1):
            found.append(
                {
                    "": str(place),
                    "cell": f"{one.name} (baseline)" if one.baseline else one.name,
                    f"test {self.metric}": self.shown(one),
                    "parameters": "" if one.parameters is None else f"{one.parameters:,}",
                    "units": "" if one.hidden_size is None else str(one.hidden_size),
                    "seconds": "" if one.seconds is None else f"{one.seconds:.1f}",
                    "seeds": str(len(one.scores)),
                }
            )
        return found

    def save_svg(self, path: str | Path, width: int = 80) -> None:
        """The table as a picture of a terminal."""
        console = Console(record=True, width=width, file=StringIO(), force_terminal=True)
        console.print(self)
        console.save_svg(str(path), title=f"recurra compare {Path(self.source).name}")

    def __rich__(self) -> Table:
        better = "more" if self.higher_is_better else "less"
        seeds = max((len(one.scores) for one in self.standings), default=0)
        over = f", mean ± spread of {seeds} seeds" if seeds > 1 else ""
        title = f"{Path(self.source).name}: test {self.metric}{over}; {better} is better"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        lines = [{key: text for key, text in line.items() if key != "seeds"} for line in self.lines()]
        for heading in lines[0] if lines else ():
            table.add_column(
                heading.removeprefix("test "), justify="left" if heading == "cell" else "right", no_wrap=True
            )
        first = next((one for one in self.standings if not one.baseline and one.mean is not None), None)
        for one, line in zip(self.standings, lines, strict=True):
            style = "bold green" if one is first else "dim" if one.baseline else "red" if one.mean is None else ""
            table.add_row(*line.values(), style=style)
        return table
