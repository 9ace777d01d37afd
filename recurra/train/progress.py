"""Progress of a loop, shown where standard error is a terminal."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from torch import Tensor

from recurra.errors import InputError
from recurra.optional import is_installed
from recurra.train.learner import Learner
from recurra.train.run_log import stderr_is_terminal

T = TypeVar("T")
PLAIN_INTERVAL = 5.0  # seconds between two lines where there is no bar


def show_progress(items: Iterable[T], title: str, total: int | None = None) -> Iterator[T]:
    """Yield the items while a bar on standard error counts them.

    Shows plain lines where rich is not installed, and nothing where standard error is not a terminal.

    **Arguments**

    - `items`: what to iterate over.
    - `title`: the text in front of the bar.
    - `total`: how many items there are, where `len(items)` does not say.

    **Example**

    >>> list(rc.train.show_progress(range(3), "counting"))
    [0, 1, 2]
    """
    if not isinstance(items, Iterable):
        raise InputError("items", repr(items), "what can be iterated over")
    if not stderr_is_terminal():
        yield from items
    elif is_installed("rich"):
        from rich.console import Console
        from rich.progress import track

        yield from track(items, title, total, console=Console(stderr=True), transient=True)
    else:
        yield from _plain_lines(items, title, total)


def _plain_lines(items: Iterable[T], title: str, total: int | None) -> Iterator[T]:
    of, began = "" if total is None else f"/{total}", time.monotonic()
    last = began
    for done, item in enumerate(items):
        if time.monotonic() - last > PLAIN_INTERVAL:
            last = time.monotonic()
            left = "" if total is None or not done else f", {(last - began) * (total - done) / done:.0f} s left"
            print(f"{title}: {done}{of}{left}", file=sys.stderr, flush=True)
        yield item


def learn(learner: Learner, batches: Iterable[tuple[Tensor, ...]], total: int | None = None) -> list[float]:
    """Call `learner.step` on every batch, with progress on the terminal.

    **Arguments**

    - `learner`: any learner of `rc.train`.
    - `batches`: tuples `(x, target)` or `(x, target, mask)`, the arguments of `learner.step`.
    - `total`: how many batches there are, for the bar.

    **Returns** the loss of every batch.

    **Example**

    >>> model = rc.train.Predictor(rc.LSTM(2, 4), 1)
    >>> batches = [(torch.randn(5, 3, 2), torch.randn(5, 3, 1)) for _ in range(4)]
    >>> len(rc.train.learn(rc.train.BPTT(model, "mse"), batches))
    4
    """
    if not callable(getattr(learner, "step", None)):
        raise InputError("learner", repr(learner), "a learner of rc.train")
    return [learner.step(*batch) for batch in show_progress(batches, type(learner).__name__, total)]
