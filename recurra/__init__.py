"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import cells, init
from .cell import Cell, register, registry
from .engine.explain import explain
from .engine.scan import set_backend
from .errors import RecurraError
from .interop.torch import accelerate, from_torch
from .layers import Readout, Recurrent, Trace, layer
from .modifiers import LayerNorm, RecurrentDropout, VariationalDropout, WeightDrop, Zoneout
from .named import *  # noqa: F403

if TYPE_CHECKING:
    from . import compare, data, dynamics, estimators, inspect, models, questions, reservoir, train
    from .dynamics import DynamicalSystem
    from .estimators import (
        Forecaster,
        LanguageModelEstimator,
        SequenceClassifier,
        SequenceRegressor,
        SequenceTagger,
    )
    from .inspect import diagram, report
    from .interop.onnx import export
    from .models import CRF, HMM, NARX, TDNN, BaldiBRNN, ClockworkRNN, ELMo, HierarchicalRNN, ScalarMix
    from .questions import Question, ask
    from .reservoir import EchoStateNetwork

__version__ = "0.1.0"

#: public name → the room it is in
_ROOMS = {
    "BaldiBRNN": "models",
    "CRF": "models",
    "ClockworkRNN": "models",
    "DynamicalSystem": "dynamics",
    "ELMo": "models",
    "EchoStateNetwork": "reservoir",
    "Forecaster": "estimators",
    "HMM": "models",
    "HierarchicalRNN": "models",
    "LanguageModelEstimator": "estimators",
    "NARX": "models",
    "Question": "questions",
    "ScalarMix": "models",
    "SequenceClassifier": "estimators",
    "SequenceRegressor": "estimators",
    "SequenceTagger": "estimators",
    "TDNN": "models",
    "ask": "questions",
    "diagram": "inspect",
    "export": "interop.onnx",
    "report": "inspect",
}

__all__ = [
    "BaldiBRNN",
    "CRF",
    "Cell",
    "ClockworkRNN",
    "DynamicalSystem",
    "ELMo",
    "EchoStateNetwork",
    "Forecaster",
    "HMM",
    "HierarchicalRNN",
    "LanguageModelEstimator",
    "LayerNorm",
    "NARX",
    "Question",
    "Readout",
    "RecurraError",
    "Recurrent",
    "RecurrentDropout",
    "ScalarMix",
    "SequenceClassifier",
    "SequenceRegressor",
    "SequenceTagger",
    "TDNN",
    "Trace",
    "VariationalDropout",
    "WeightDrop",
    "Zoneout",
    "accelerate",
    "ask",
    "cells",
    "compare",
    "data",
    "diagram",
    "dynamics",
    "estimators",
    "explain",
    "export",
    "from_torch",
    "init",
    "inspect",
    "layer",
    "models",
    "questions",
    "register",
    "registry",
    "report",
    "set_backend",
    "reservoir",
    "train",
    *cells.__all__,  # a layer for every cell
]


def __getattr__(name: str) -> Any:
    """Rooms that need more than torch are imported when first used."""
    if name in ("compare", "data", "dynamics", "estimators", "inspect", "models", "questions", "reservoir", "train"):
        return import_module(f".{name}", __name__)
    if name in _ROOMS:
        return getattr(import_module(f".{_ROOMS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
