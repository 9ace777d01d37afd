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
    """Give every `fit` inside the block checkpoints and additional callbacks: an interrupted estimator resumes when the
    same block runs again.

    **Arguments**

    - `checkpoints`: a folder, or `Checkpoints`. Each `fit` gets a subfolder, in the order of the calls; one with its
      own `checkpoints` keeps them. The base forecast of `rc.Forecaster` is kept there too while its fit is unfinished.
    - `callbacks`: called with an event name and the `Run`, beside those of each `fit`.

    **Example**

        >>> import tempfile
        >>> X = torch.randn(8, 5, 2).numpy()
        >>> model = rc.SequenceClassifier("gru", hidden_size=4, epochs=2, random_state=0)
        >>> with tempfile.TemporaryDirectory() as folder, rc.train.fit_context(folder):
        ...     len(model.fit(X, [0, 1] * 4).history_)
        2
    """
    given = checkpoints if isinstance(checkpoints, Checkpoints | None) else Checkpoints(checkpoints)
    token = _CURRENT.set(FitContext(given, tuple(callbacks)))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_context() -> FitContext:
    return _CURRENT.get() or FitContext()
