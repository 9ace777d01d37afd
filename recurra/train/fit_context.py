"""What surrounds a fit that someone else calls: a folder for its checkpoints, and those who listen to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from recurra.train.checkpoint import Checkpoints
from recurra.train.run import Callback


@dataclass
class Surroundings:
    """Where checkpoints go, who listens, and how many fits there have been."""

    checkpoints: Checkpoints | None = None
    callbacks: tuple[Callback, ...] = ()
    fits: int = 0

    def place(self) -> Checkpoints | None:
        """A folder for each fit: in the same order, they find theirs again."""
        if self.checkpoints is None:
            return None
        self.fits += 1
        return replace(self.checkpoints, folder=Path(self.checkpoints.folder) / f"fit-{self.fits}")


_CURRENT: ContextVar[Surroundings | None] = ContextVar("recurra.train.fit_context", default=None)


@contextmanager
def surrounded(
    checkpoints: Checkpoints | str | Path | None = None, callbacks: Sequence[Callback] = ()
) -> Iterator[None]:
    """Inside, `fit` keeps checkpoints here, unless it is given a place of its own, and tells these callbacks as well.

    Every call of `fit` has a folder of its own below this one. An estimator's `fit` inside goes on where an interrupted
    one stopped:

    >>> with surrounded("runs/vowels"):
    ...     classifier.fit(X, y)
    """
    kept = checkpoints if isinstance(checkpoints, Checkpoints | None) else Checkpoints(checkpoints)
    token = _CURRENT.set(Surroundings(kept, tuple(callbacks)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def surroundings() -> Surroundings:
    return _CURRENT.get() or Surroundings()
