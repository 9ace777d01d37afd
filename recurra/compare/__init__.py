"""Cells against each other and against baselines, on one question, under one budget.

`recurra.compare(...)` is `recurra.compare.compare(...)`: the module itself can be called.
"""

import inspect
import sys
from types import ModuleType

from recurra.optional import optional_imports

with optional_imports("cli", what="recurra.compare"):
    from recurra.compare.leaderboard import Leaderboard, Standing
    from recurra.compare.plan import DOZEN, chosen_cells, families
    from recurra.compare.run import compare
    from recurra.compare.run_errors import RunFolderError, Stopped, WorkerError

__all__ = [
    "DOZEN",
    "Leaderboard",
    "RunFolderError",
    "Standing",
    "Stopped",
    "WorkerError",
    "chosen_cells",
    "compare",
    "families",
]


class _CallableModule(ModuleType):
    __call__ = staticmethod(compare)


sys.modules[__name__].__class__ = _CallableModule
__signature__ = inspect.signature(compare)  # of the call, for help() and editors
