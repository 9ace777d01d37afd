"""Training: the fit loop with its checkpoints, and the learning algorithms."""

from recurra.train.bptt import BPTT, leaks
from recurra.train.by_hand import HandGradients, gradients_by_hand
from recurra.train.checkpoint import Checkpoints, load_weights
from recurra.train.computed_readouts import KernelReadout, LeastSquares, SupportVectors
from recurra.train.cost import CostError
from recurra.train.dekf import DEKF
from recurra.train.errata import Errata, errata
from recurra.train.erratum import Erratum
from recurra.train.evaluate import evaluate
from recurra.train.evolino import Evoke, Evolino, EvolinoCell
from recurra.train.evolve_cells import Evolution, Language, Trial, evolve_cells
from recurra.train.fit import fit
from recurra.train.fit_context import fit_context
from recurra.train.fit_errors import (
    CheckpointError,
    CheckpointWarning,
    Interrupted,
    KeyboardInterrupted,
    LogWarning,
    MismatchError,
    NonFiniteError,
    OutOfMemoryError,
    RankError,
    RunInUseError,
)
from recurra.train.genome import Genome, lstm_genome, rnn_genome
from recurra.train.genome_of_cell import genome_of
from recurra.train.learner import Learner, Predictor
from recurra.train.nesterov import Nesterov
from recurra.train.objective import MeanLoss, Objective
from recurra.train.online.dni import DNI
from recurra.train.online.eprop import EProp
from recurra.train.online.force import FORCE
from recurra.train.online.forward_gradient import ForwardGradient
from recurra.train.online.fptt import FPTT
from recurra.train.online.kfrtrl import KFRTRL
from recurra.train.online.learner import OnlineLearner
from recurra.train.online.rflo import RFLO
from recurra.train.online.snap import SnAp
from recurra.train.online.ukf import UKF
from recurra.train.online.uoro import UORO
from recurra.train.original_lstm_rule import OriginalLSTMRule
from recurra.train.pretrain import PretrainedELMo, pretrain_elmo
from recurra.train.progress import learn, show_progress
from recurra.train.rtrl import RTRL
from recurra.train.run import Callback, FitResult, Run
from recurra.train.run_log import Bar, JsonLines, Lines
from recurra.train.schedule import constant, cosine, exponential, linear
from recurra.train.teacher_forcing import TeacherForcing

__all__ = [
    "BPTT",
    "DEKF",
    "DNI",
    "FORCE",
    "FPTT",
    "KFRTRL",
    "RFLO",
    "RTRL",
    "UKF",
    "UORO",
    "Bar",
    "Callback",
    "CheckpointError",
    "CheckpointWarning",
    "Checkpoints",
    "CostError",
    "EProp",
    "Errata",
    "Erratum",
    "Evoke",
    "Evolino",
    "EvolinoCell",
    "Evolution",
    "FitResult",
    "ForwardGradient",
    "Genome",
    "HandGradients",
    "Interrupted",
    "JsonLines",
    "KernelReadout",
    "KeyboardInterrupted",
    "Language",
    "Learner",
    "LeastSquares",
    "Lines",
    "LogWarning",
    "MeanLoss",
    "MismatchError",
    "Nesterov",
    "NonFiniteError",
    "Objective",
    "OnlineLearner",
    "OriginalLSTMRule",
    "OutOfMemoryError",
    "Predictor",
    "PretrainedELMo",
    "RankError",
    "Run",
    "RunInUseError",
    "SnAp",
    "SupportVectors",
    "TeacherForcing",
    "Trial",
    "constant",
    "cosine",
    "errata",
    "evaluate",
    "evolve_cells",
    "exponential",
    "fit",
    "fit_context",
    "genome_of",
    "gradients_by_hand",
    "leaks",
    "learn",
    "linear",
    "load_weights",
    "lstm_genome",
    "pretrain_elmo",
    "rnn_genome",
    "show_progress",
]
