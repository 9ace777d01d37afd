"""Cells against each other and against baselines, on one question, under one budget."""

from recurra.compare.errors import RunFolderError, Stopped, WorkerError
from recurra.compare.leaderboard import Leaderboard, Standing
from recurra.compare.plan import DOZEN, chosen_cells, families
from recurra.compare.run import compare

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
