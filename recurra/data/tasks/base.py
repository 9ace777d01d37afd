"""The base class of the tasks, and their registry."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...errors import InputError, OptionError, UnknownNameError, nearest
from ..batching import generator
from ..sequences import Batch, SequenceSet, Task

_TASKS: dict[str, type["CanonicalTask"]] = {}


@dataclass(frozen=True)
class CanonicalTask(ABC):
    """A benchmark task: batches generated from a seed, a score, and the score of a trivial answer.

    Inputs are numbers (T, B, D); symbols are one-hot, so any layer can read any task. A subclass is a dataclass of its
    sizes; it draws batches and defines the trivial answer and the score.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.adding(length=50)
        >>> batch = next(task.batches(batch_size=8).epoch(0))
        >>> batch.inputs.shape, task.metric, round(task.baseline, 3)
        (torch.Size([50, 8, 2]), 'mse', 0.167)
        >>> task.score(task.trivial(batch), batch) < 1
        True
    """

    name: ClassVar[str] = ""
    kind: ClassVar[Task]
    metric: ClassVar[str]
    better: ClassVar[Literal["lower", "higher"]]
    symbols: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def input_size(self) -> int: ...

    @property
    @abstractmethod
    def output_size(self) -> int: ...

    @property
    @abstractmethod
    def baseline(self) -> float:
        """The expected score of the trivial answer."""

    @abstractmethod
    def draw(self, count: int, random: torch.Generator) -> Batch:
        """A batch of `count` sequences from a random generator."""

    @abstractmethod
    def trivial(self, batch: Batch) -> Tensor:
        """The best outputs without learning, in the shape of the outputs of a model."""

    @abstractmethod
    def score(self, outputs: Tensor, batch: Batch) -> float:
        """The `metric` of the outputs of a model: logits for classes, otherwise numbers."""

    def batches(self, batch_size: int, count: int = 100, seed: int = 0, rank: int = 0) -> "TaskBatches":
        """A source of `count` new batches per epoch; every process needs its own rank."""
        return TaskBatches(self, batch_size, count, seed, rank)

    def sequences(self, count: int, seed: int = 0) -> SequenceSet:
        """A fixed set of `count` sequences."""
        batch = self.draw(count, generator(seed))
        inputs = _unpad(batch.inputs, batch.lengths)
        per_step = batch.targets.shape[:2] == batch.inputs.shape[:2] and self.kind not in (
            "classification",
            "regression",
        )
        targets = _unpad(batch.targets, batch.lengths) if per_step else batch.targets
        return SequenceSet(inputs, targets, batch.lengths, self.kind, classes=self.classes, source=self.name)

    @property
    def classes(self) -> tuple[str, ...]:
        labels = self.kind in ("classification", "tagging")
        return tuple(str(k) for k in range(self.output_size)) if labels else ()


@dataclass(frozen=True)
class TaskBatches:
    """Batches of a task; each is a function of (seed, epoch, index, rank)."""

    task: CanonicalTask
    batch_size: int
    count: int
    seed: int
    rank: int = 0

    def __post_init__(self):
        check_sizes(batch_size=self.batch_size, count=self.count)

    def __len__(self) -> int:
        return self.count

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        for index in range(start, self.count):
            batch = self.task.draw(self.batch_size, generator(self.seed, epoch, index, self.rank))
            batch.ids = (epoch * self.count + index) * self.batch_size + torch.arange(self.batch_size)
            yield batch


def _unpad(padded: Tensor, lengths: Tensor) -> list[Tensor]:
    return [padded[: int(n), b] for b, n in enumerate(lengths)]


def register(name: str):
    """Class decorator: register a task under its name."""

    def decorate(cls: type[CanonicalTask]) -> type[CanonicalTask]:
        cls.name = name
        _TASKS[name] = cls
        return cls

    return decorate


def names() -> list[str]:
    """The names of all tasks.

    **Example**

        >>> import recurra as rc
        >>> "adding" in rc.data.tasks.names()
        True
    """
    return sorted(_TASKS)


def make(name: str, **options: Any) -> CanonicalTask:
    """A task by its name.

    **Arguments**

    - `name`: one of `names()`.
    - `options`: the arguments of the task.

    **Returns** a `CanonicalTask`.

    **Example**

        >>> import recurra as rc
        >>> rc.data.tasks.make("adding", length=200)
        Adding(length=200)
    """
    if not isinstance(name, str) or name not in _TASKS:
        raise UnknownNameError("task", name, _TASKS)
    known = [field.name for field in fields(_TASKS[name])]
    for option in options:
        if option not in known:
            raise OptionError(option, f"an unknown option of {name!r}", nearest(option, known) if known else "none")
    return _TASKS[name](**options)


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise InputError(name, size, "a positive whole number")


def one_hot(symbols: Tensor, size: int) -> Tensor:
    """(T, B) symbols → (T, B, size); negative symbols, which are padding, become zeros."""
    encoded = torch.nn.functional.one_hot(symbols.clamp_min(0), size) * (symbols >= 0)[..., None]
    return encoded.to(torch.get_default_dtype())


def integers(low: int, high: int, count: int, random: torch.Generator) -> Tensor:
    """(count,): uniform integers from low to high, inclusive."""
    return torch.randint(low, high + 1, (count,), generator=random)


def uniform(shape: tuple[int, ...], random: torch.Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """Uniform float64 numbers in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def unpadded_batch(inputs: Tensor, targets: Tensor) -> Batch:
    """A batch of sequences of equal length, in the default dtype."""
    steps, count = inputs.shape[:2]
    inputs = inputs.to(torch.get_default_dtype())
    targets = targets.to(torch.get_default_dtype()) if targets.is_floating_point() else targets
    return Batch(inputs, targets, torch.full((count,), steps), torch.arange(count))
