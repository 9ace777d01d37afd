"""The plan of a comparison: its configuration, the cells, and the list of work items."""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from recurra.cell import positive_int
from recurra.cells import canonical_names, find, registry
from recurra.errors import InputError, OptionError, UnknownNameError

Budget = Literal["parameters", "time"]

DEFAULT_CELLS = (
    *("rnn", "orthogonal_rnn", "delay_rnn", "leaky_rnn", "scrn", "lstm"),
    *("vanilla_lstm", "lstm_cifg", "gru", "mgu", "min_gru", "slstm"),
)
REFERENCE_CELL = "lstm"  # the other cells match its number of parameters


@dataclass(frozen=True)
class WorkItem:
    """One unit of work: fit a cell or a baseline with one seed, or tune a cell."""

    name: str
    seed: int = 0
    kind: Literal["cell", "baseline", "tuning"] = "cell"

    @property
    def key(self) -> str:
        """File name of its result and its checkpoints."""
        return re.sub(r"\W+", "_", f"{self.kind} {self.name} {self.seed}")

    def __str__(self) -> str:
        return f"{self.name}, seed {self.seed}" if self.kind != "tuning" else f"{self.name}, tuning"


@dataclass(frozen=True)
class RunConfig:
    """Everything a result depends on, except the cell and the seed; stored as config.json in the run folder."""

    problem: dict[str, Any]  # arguments of `infer_problem`; "ask" in config.json
    budget: Budget = "parameters"
    hidden_size: int = 32  # of the reference cell; under a time budget, of every cell
    epochs: int | None = None  # None: the default of the estimator
    seconds: float = 30.0  # of training, under a time budget
    tune: int = 0  # trials of a hyperparameter search per cell
    settings: dict[str, Any] = field(default_factory=dict)  # further options of the estimator

    def __post_init__(self):
        if self.budget not in ("parameters", "time"):
            raise UnknownNameError("budget", repr(self.budget), ("parameters", "time"))
        positive_int("hidden_size", self.hidden_size)
        if self.epochs is not None:
            positive_int("epochs", self.epochs)
            if self.budget == "time":
                raise OptionError(
                    "epochs", self.epochs, "no value under a time budget, which sets the number of epochs"
                )
        if not self.seconds > 0:
            raise InputError("seconds", self.seconds, "a positive number of seconds")
        if isinstance(self.tune, bool) or not isinstance(self.tune, int) or self.tune < 0:
            raise InputError("tune", self.tune, "a number of trials, 0 for none")

    def to_json(self) -> dict[str, Any]:
        """Plain values with hashes of the files, so that a changed file makes another run."""
        from recurra import __version__

        plain = json.loads(json.dumps(asdict(self), default=str))
        plain["ask"] = plain.pop("problem")  # the key since 0.1.0: run folders and their names stay valid
        if self.budget == "parameters":
            del plain["seconds"]
        files = {key: _digest(value) for key, value in self.problem.items() if _is_file(value)}
        return plain | {"content": files, "recurra": __version__}

    def digest(self) -> str:
        """Eight hex digits, equal on every machine with the same files and arguments."""
        content = self.to_json()
        # Paths differ between machines, file contents do not.
        content["ask"] = {key: value for key, value in content["ask"].items() if key not in content["content"]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def resolve_cells(cells: str | Iterable[str]) -> tuple[str, ...]:
    """Cell names from names, families ("gru-family": every cell of that module) and "all".

    **Example**

        >>> rc.compare.resolve_cells("lstm,gru-family")[:3]
        ('lstm', 'gru', 'mut1')
    """
    names = [part.strip() for part in cells.split(",")] if isinstance(cells, str) else _names(cells)
    found: dict[str, None] = {}
    groups = cell_families()
    for name in filter(None, names):
        if name == "all":
            found |= dict.fromkeys(canonical_names())
        elif name in registry():
            found[name] = None
        elif name.removesuffix("-family") in groups:
            found |= dict.fromkeys(groups[name.removesuffix("-family")])
        elif name.endswith("-family"):
            raise UnknownNameError("cells", repr(name), [*(f"{group}-family" for group in groups), "all"])
        else:
            find(name)  # raises an error that proposes another name
    if not found:
        raise InputError("cells", cells, "names of cells or families, or all")
    return tuple(found)


def _names(cells: Any) -> list[str]:
    names = list(cells) if isinstance(cells, Iterable) else [cells]
    if not all(isinstance(name, str) for name in names):
        raise InputError("cells", repr(cells), "names of cells or families, or all")
    return names


def cell_families() -> dict[str, list[str]]:
    """Family → cell names. A family is a module of `recurra.cells`, or a module that registered custom cells.

    **Example**

        >>> rc.compare.cell_families()["gru"]
        ['gru', 'mut1', 'mut2', 'mut3', 'mgu', 'mgu1', 'mgu2', 'mgu3']
    """
    found: dict[str, list[str]] = {}
    for name in canonical_names():
        found.setdefault(registry()[name].__module__.rpartition(".")[2], []).append(name)
    return found


def work_items(cells: Sequence[str], baselines: Sequence[tuple[str, bool]], seeds: int) -> list[WorkItem]:
    """Baselines first, then the first seed of every cell, then the second, …: early results cover all cells.

    A deterministic baseline runs once.
    """
    first = [WorkItem(name, seed, "baseline") for name, random in baselines for seed in range(seeds if random else 1)]
    return first + [WorkItem(name, seed) for seed in range(seeds) for name in cells]


def default_folder(config: RunConfig) -> Path:
    stem = re.sub(r"\W+", "_", Path(str(config.problem["source"])).stem) or "data"
    return Path("runs") / f"compare-{stem}-{config.digest()}"


def _is_file(value: Any) -> bool:
    return isinstance(value, str | Path) and bool(str(value)) and Path(value).is_file()


def _digest(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
