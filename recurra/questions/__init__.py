"""From a file to a question an estimator can answer: `ask("data.csv")` finds task, columns, and what to hold out."""

from recurra.questions.again import Found, read_again
from recurra.questions.asking import ask
from recurra.questions.keeping import keep, kept
from recurra.questions.question import METRICS, TASKS, Question

__all__ = ["METRICS", "TASKS", "Found", "Question", "ask", "keep", "kept", "read_again"]
