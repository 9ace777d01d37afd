"""Checkpoints and callbacks for calls of `fit` that other code makes, such as an estimator's."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from recurra.train.checkpoint import Checkpoints
from recurra.train.run import Callback


@dataclass
class FitContext:
    """Checkpoints and callbacks that `fit` uses beside its own arguments, and the number of fits so far."""

    checkpoints: Checkpoints | None = None
    callbacks: tuple[Callback, ...] = ()
    fits: int = 0

    def next_checkpoints(self) -> Checkpoints | None:
        """The folder of the next fit: `fit-1`, `fit-2`, …. The same sequence of fits finds its folders again."""
        if self.checkpoints is None:
            return None
        self.fits += 1
        return replace(self.checkpoints, folder=Path(self.checkpoints.folder) / f"fit-{self.fits}")


_CURRENT: ContextVar[FitContext | None] = ContextVar("recurra.train.fit_context", default=None)


@contextmanager
def fit_context(
    checkpoints: Checkpoints | str | Path | None = None, callbacks: Sequence[Callback] = ()
) -> Iterator[None]:
    """Give every `fit` inside the block checkpoints and additional callbacks.

    A `fit` with its own `checkpoints` keeps them. Each call gets a subfolder, so an interrupted estimator resumes when
    the same block runs again:

        with fit_context("runs/vowels"):
            classifier.fit(X, y)
    """
    given = checkpoints if isinstance(checkpoints, Checkpoints | None) else Checkpoints(checkpoints)
    token = _CURRENT.set(FitContext(given, tuple(callbacks)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_context() -> FitContext:
    return _CURRENT.get() or FitContext()
