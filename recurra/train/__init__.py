"""Training: the fit loop with its checkpoints, and the learning algorithms."""

from recurra.train.checkpoint import Checkpoints, load_weights
from recurra.train.errors import (
    CheckpointError,
    CheckpointWarning,
    Interrupted,
    KeyboardInterrupted,
    LogWarning,
    MismatchError,
    NonFiniteError,
    OutOfMemoryError,
    RankError,
)
from recurra.train.evaluate import evaluate
from recurra.train.fit import fit
from recurra.train.objective import MeanLoss, Objective
from recurra.train.report import Bar, JsonLines
from recurra.train.run import Callback, FitResult, Run
from recurra.train.schedule import constant, cosine, exponential, linear

__all__ = [
    "Bar",
    "Callback",
    "CheckpointError",
    "CheckpointWarning",
    "Checkpoints",
    "FitResult",
    "Interrupted",
    "JsonLines",
    "KeyboardInterrupted",
    "LogWarning",
    "MeanLoss",
    "MismatchError",
    "NonFiniteError",
    "Objective",
    "OutOfMemoryError",
    "RankError",
    "Run",
    "constant",
    "cosine",
    "evaluate",
    "exponential",
    "fit",
    "linear",
    "load_weights",
]
