"""What a canonical task is, and the one list of them."""

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
    """A problem of the literature: drawn in batches from a seed, scored, and with the score of its trivial answer.

    Inputs are numbers (T, B, D), symbols one-hot, so that any layer takes any task. Subclasses are dataclasses of their
    sizes and say how to draw a batch, how the trivial answer looks and what it scores.
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
        """The score the trivial answer has in the mean over all batches."""

    @abstractmethod
    def draw(self, count: int, random: torch.Generator) -> Batch:
        """`count` sequences from a generator."""

    @abstractmethod
    def trivial(self, batch: Batch) -> Tensor:
        """What one answers without having learned anything, in the shape of a model's outputs."""

    @abstractmethod
    def score(self, outputs: Tensor, batch: Batch) -> float:
        """`metric` of a model's outputs: logits for classes, numbers otherwise."""

    def batches(self, batch_size: int, count: int = 100, seed: int = 0, rank: int = 0) -> "TaskBatches":
        """`count` batches an epoch, new ones every epoch; give every process its own rank."""
        return TaskBatches(self, batch_size, count, seed, rank)

    def sequences(self, count: int, seed: int = 0) -> SequenceSet:
        """A fixed set of sequences, for what wants to see the same ones again."""
        batch = self.draw(count, generator(seed))
        inputs = _cut(batch.inputs, batch.lengths)
        per_step = batch.targets.shape[:2] == batch.inputs.shape[:2] and self.kind not in (
            "classification",
            "regression",
        )
        targets = _cut(batch.targets, batch.lengths) if per_step else batch.targets
        return SequenceSet(inputs, targets, batch.lengths, self.kind, classes=self.classes, source=self.name)

    @property
    def classes(self) -> tuple[str, ...]:
        labels = self.kind in ("classification", "tagging")
        return tuple(str(k) for k in range(self.output_size)) if labels else ()


@dataclass(frozen=True)
class TaskBatches:
    """Batches of a task, each drawn from (seed, epoch, index): a position is two integers."""

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


def _cut(padded: Tensor, lengths: Tensor) -> list[Tensor]:
    return [padded[: int(n), b] for b, n in enumerate(lengths)]


def register(name: str):
    """Puts a task on the list under the name people know it by."""

    def put(cls: type[CanonicalTask]) -> type[CanonicalTask]:
        cls.name = name
        _TASKS[name] = cls
        return cls

    return put


def names() -> list[str]:
    """Every task, by name."""
    return sorted(_TASKS)


def make(name: str, **options: Any) -> CanonicalTask:
    """A task by name: `make("adding", length=200)`."""
    if name not in _TASKS:
        raise UnknownNameError("task", name, _TASKS)
    known = [field.name for field in fields(_TASKS[name])]
    for option in options:
        if option not in known:
            raise OptionError(option, f"an option {name!r} does not have", nearest(option, known) if known else "none")
    return _TASKS[name](**options)


def check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or size < 1:
            raise InputError(name, size, "a positive whole number")


def one_hot(symbols: Tensor, size: int) -> Tensor:
    """(T, B) numbers → (T, B, size); a negative number, which is padding, is all zeros."""
    encoded = torch.nn.functional.one_hot(symbols.clamp_min(0), size) * (symbols >= 0)[..., None]
    return encoded.to(torch.get_default_dtype())


def integers(low: int, high: int, count: int, random: torch.Generator) -> Tensor:
    """(count,) uniform on low..high, both included."""
    return torch.randint(low, high + 1, (count,), generator=random)


def uniform(shape: tuple[int, ...], random: torch.Generator, low: float = 0.0, high: float = 1.0) -> Tensor:
    """float64 in [low, high)."""
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def whole(inputs: Tensor, targets: Tensor) -> Batch:
    """A batch without padding, in the default dtype."""
    steps, count = inputs.shape[:2]
    inputs = inputs.to(torch.get_default_dtype())
    targets = targets.to(torch.get_default_dtype()) if targets.is_floating_point() else targets
    return Batch(inputs, targets, torch.full((count,), steps), torch.arange(count))
