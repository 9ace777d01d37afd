"""From a file to a question an estimator can answer: `ask("data.csv")` finds task, columns, and what to hold out."""

from recurra.optional import optional_imports

with optional_imports("cli", what="recurra.problem"):
    from recurra.problem.infer import ask
    from recurra.problem.problem import METRICS, TASKS, Question
    from recurra.problem.reread import Found, read_again
    from recurra.problem.saved import keep, kept

__all__ = ["METRICS", "TASKS", "Found", "Question", "ask", "keep", "kept", "read_again"]
