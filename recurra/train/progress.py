"""A bar for what runs longer than a second, where someone is watching."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from torch import Tensor

from recurra.train.learner import Learner

T = TypeVar("T")


def watched(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar on the terminal's standard error while they are worked on."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, title, total, console=Console(stderr=True), transient=True)


def learn(learner: Learner, batches: Iterable[tuple[Tensor, ...]], total: int | None = None) -> list[float]:
    """`learner.step` on every `(x, target)` or `(x, target, mask)`; the losses."""
    return [learner.step(*batch) for batch in watched(batches, type(learner).__name__, total)]
