"""Cells against each other and against baselines, on one question, under one budget."""

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
