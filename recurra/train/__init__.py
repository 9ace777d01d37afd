"""Training: the fit loop with its checkpoints, and the learning algorithms."""

from recurra.train.bptt import BPTT, leaks
from recurra.train.by_hand import HandGradients, gradients_by_hand
from recurra.train.checkpoint import Checkpoints, load_weights
from recurra.train.cost import CostError
from recurra.train.dekf import DEKF
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
from recurra.train.evolino import Evolino, EvolinoCell
from recurra.train.fit import fit
from recurra.train.learner import Learner, Predictor
from recurra.train.nesterov import Nesterov
from recurra.train.objective import MeanLoss, Objective
from recurra.train.original_lstm_rule import OriginalLSTMRule
from recurra.train.report import Bar, JsonLines
from recurra.train.rtrl import RTRL
from recurra.train.run import Callback, FitResult, Run
from recurra.train.schedule import constant, cosine, exponential, linear

__all__ = [
    "BPTT",
    "DEKF",
    "RTRL",
    "Bar",
    "Callback",
    "CheckpointError",
    "CheckpointWarning",
    "Checkpoints",
    "CostError",
    "Evolino",
    "EvolinoCell",
    "FitResult",
    "HandGradients",
    "Interrupted",
    "JsonLines",
    "KeyboardInterrupted",
    "Learner",
    "LogWarning",
    "MeanLoss",
    "MismatchError",
    "Nesterov",
    "NonFiniteError",
    "Objective",
    "OriginalLSTMRule",
    "OutOfMemoryError",
    "Predictor",
    "RankError",
    "Run",
    "constant",
    "cosine",
    "evaluate",
    "exponential",
    "fit",
    "gradients_by_hand",
    "leaks",
    "linear",
    "load_weights",
]
