"""From a data file to a learning problem: `infer_problem("data.csv")` finds task, columns and train/test split."""

from recurra.optional import optional_imports

with optional_imports("cli", what="recurra.problem"):
    from recurra.problem.infer import infer_problem
    from recurra.problem.problem import METRICS, TASKS, LoadedData, Problem
    from recurra.problem.reread import read_like_training
    from recurra.problem.saved import load_problem, save_problem

__all__ = [
    "METRICS",
    "TASKS",
    "LoadedData",
    "Problem",
    "infer_problem",
    "load_problem",
    "read_like_training",
    "save_problem",
]
