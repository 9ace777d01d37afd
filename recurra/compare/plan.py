"""Who competes, and under which rules."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from recurra.cell import positive_int
from recurra.cells import registry
from recurra.errors import InputError, OptionError, UnknownNameError

Budget = Literal["parameters", "time"]

DOZEN = (
    *("rnn", "orthogonal_rnn", "delay_rnn", "leaky_rnn", "scrn", "lstm"),
    *("vanilla_lstm", "lstm_cifg", "gru", "mgu", "min_gru", "slstm"),
)
REFERENCE = "lstm"  # whose parameters the others match


@dataclass(frozen=True)
class Entrant:
    """A cell, or a baseline, with one seed: what one worker does at a time."""

    name: str
    seed: int = 0
    kind: Literal["cell", "baseline", "tuning"] = "cell"

    @property
    def key(self) -> str:
        """The name of its files."""
        return re.sub(r"\W+", "_", f"{self.kind} {self.name} {self.seed}")

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.kind != "tuning" else f"{self.name}, tuning"


@dataclass(frozen=True)
class Rules:
    """Everything a result depends on, besides the cell and the seed."""

    ask: dict[str, Any]  # arguments of `recurra.problem.ask`
    budget: Budget = "parameters"
    hidden_size: int = 32  # of the reference cell, or of every cell where time is what they share
    epochs: int | None = None  # None: as many as the estimator takes by itself
    seconds: float = 30.0  # of training, where time is what they share
    tune: int = 0  # trials of a search for every cell
    settings: dict[str, Any] = field(default_factory=dict)  # further options of the estimator

    def __post_init__(self):
        if self.budget not in ("parameters", "time"):
            raise UnknownNameError("budget", repr(self.budget), ("parameters", "time"))
        positive_int("hidden_size", self.hidden_size)
        if self.epochs is not None:
            positive_int("epochs", self.epochs)
            if self.budget == "time":
                raise OptionError("epochs", self.epochs, "none beside the budget of time, which decides their number")
        if not self.seconds > 0:
            raise InputError("seconds", self.seconds, "a positive number of seconds")
        if isinstance(self.tune, bool) or not isinstance(self.tune, int) or self.tune < 0:
            raise InputError("tune", self.tune, "a number of trials, 0 for none")

    def to_json(self) -> dict[str, Any]:
        """Plain values, with the content of the files, so that a changed file is another run."""
        from recurra import __version__

        plain = json.loads(json.dumps(asdict(self), default=str))
        if self.budget == "parameters":
            del plain["seconds"]
        files = {key: _digest(value) for key, value in self.ask.items() if _is_file(value)}
        return plain | {"content": files, "recurra": __version__}

    def digest(self) -> str:
        """The same on every machine that has the same file and the same arguments."""
        content = self.to_json()
        # Where the file lies differs between machines; what is in it does not.
        content["ask"] = {key: value for key, value in content["ask"].items() if key not in content["content"]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def chosen_cells(cells: str | Iterable[str]) -> tuple[str, ...]:
    """Names from names, families ("gru-family": all of that file of the zoo) and "all"."""
    asked = [part.strip() for part in cells.split(",")] if isinstance(cells, str) else list(cells)
    found: dict[str, None] = {}
    groups = families()
    for name in filter(None, asked):
        if name == "all":
            found |= dict.fromkeys(first_names())
        elif name in registry():
            found[name] = None
        elif name.removesuffix("-family") in groups:
            found |= dict.fromkeys(groups[name.removesuffix("-family")])
        else:
            raise UnknownNameError("cells", repr(name), [*registry(), *(f"{group}-family" for group in groups), "all"])
    if not found:
        raise InputError("cells", cells, "names of cells or families, or all")
    return tuple(found)


def first_names() -> list[str]:
    """Every cell once, under the first of its names."""
    seen: dict[type, str] = {}
    for name, cell in registry().items():
        seen.setdefault(cell, name)
    return list(seen.values())


def families() -> dict[str, list[str]]:
    """The zoo by its files, and a family for every module that registered cells of its own."""
    found: dict[str, list[str]] = {}
    for name in first_names():
        found.setdefault(registry()[name].__module__.rpartition(".")[2], []).append(name)
    return found


def entrants(cells: Sequence[str], baselines: Sequence[tuple[str, bool]], seeds: int) -> list[Entrant]:
    """Baselines first, then every cell's first seed, then the second…, so that an early look compares all of them.

    A baseline that draws nothing at random is run once.
    """
    plain = [Entrant(name, seed, "baseline") for name, random in baselines for seed in range(seeds if random else 1)]
    return plain + [Entrant(name, seed) for seed in range(seeds) for name in cells]


def default_folder(rules: Rules) -> Path:
    stem = re.sub(r"\W+", "_", Path(str(rules.ask["source"])).stem) or "data"
    return Path("runs") / f"compare-{stem}-{rules.digest()}"


def _is_file(value: Any) -> bool:
    return isinstance(value, str | Path) and bool(str(value)) and Path(value).is_file()


def _digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
