"""Parts of a fit that are kept on disk while it runs in a `rc.train.fit_context`, so that a stopped fit goes on.

A part is found again by the numbers it was computed from, so that none is taken for that of other data or options.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ..train.fit_context import current_context

Arrays = dict[str, np.ndarray]


class KeptParts:
    """Results of functions in a folder of the run; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None):
        self.folder = folder

    @classmethod
    def of_run(cls, name: str) -> "KeptParts":
        """Those of the surrounding `fit_context`, if it has checkpoints."""
        checkpoints = current_context().checkpoints
        return cls(None if checkpoints is None else Path(checkpoints.folder) / name)

    def get(self, given: Iterable[np.ndarray], compute: Callable[[], Arrays]) -> Arrays:
        """What was kept for the same numbers, or what `compute` gives, which is kept."""
        if self.folder is None:
            return compute()
        digest = hashlib.sha256()
        for array in given:
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        path = self.folder / f"{digest.hexdigest()[:32]}.npz"
        try:
            with np.load(path, allow_pickle=False) as found:
                return dict(found)
        except (OSError, ValueError, EOFError):  # none, or one that was being written when the machine stopped
            found = compute()
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}.draft")
        with draft.open("wb") as file:
            np.savez(file, **found)  # pyrefly: ignore  (its stubs take the names for options)
        draft.replace(path)
        return found

    def clear(self) -> None:
        """Remove them: the fit is done."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
