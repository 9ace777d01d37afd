"""Compares cells with each other and with baselines on one problem, under one budget.

`recurra.compare(...)` is `recurra.compare.compare(...)`: the module itself can be called.
"""

import inspect
import sys
from types import ModuleType

from recurra.optional import optional_imports

with optional_imports("cli", what="recurra.compare"):
    from recurra.compare.leaderboard import Leaderboard, LeaderboardEntry
    from recurra.compare.plan import DEFAULT_CELLS, cell_families, resolve_cells
    from recurra.compare.run import compare
    from recurra.compare.run_errors import RunFolderError, RunInterrupted, WorkerError

__all__ = [
    "DEFAULT_CELLS",
    "Leaderboard",
    "LeaderboardEntry",
    "RunFolderError",
    "RunInterrupted",
    "WorkerError",
    "cell_families",
    "compare",
    "resolve_cells",
]


class _CallableModule(ModuleType):
    __call__ = staticmethod(compare)


sys.modules[__name__].__class__ = _CallableModule
__signature__ = inspect.signature(compare)  # of the call, for help() and editors
