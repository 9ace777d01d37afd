"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients.

Its names are imported when they are first used: torch takes a second or two, and `recurra --help` answers without it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .extensions import PROVIDERS

if TYPE_CHECKING:  # the names below once more, for type checkers and editors
    from . import cells as cells
    from . import compare as compare
    from . import data as data
    from . import dynamics as dynamics
    from . import estimators as estimators
    from . import init as init
    from . import inspect as inspect
    from . import models as models
    from . import problem as problem
    from . import reservoir as reservoir
    from . import train as train
    from .cell import Cell as Cell
    from .cells import register as register
    from .cells import registry as registry
    from .dynamics import DynamicalSystem as DynamicalSystem
    from .engine.dispatch import set_backend as set_backend
    from .engine.explain import explain as explain
    from .errors import RecurraError as RecurraError
    from .estimators import Forecaster as Forecaster
    from .estimators import LanguageModelEstimator as LanguageModelEstimator
    from .estimators import SequenceClassifier as SequenceClassifier
    from .estimators import SequenceRegressor as SequenceRegressor
    from .estimators import SequenceTagger as SequenceTagger
    from .inspect import diagram as diagram
    from .inspect import report as report
    from .interop.onnx import export as export
    from .interop.torch import accelerate as accelerate
    from .interop.torch import from_torch as from_torch
    from .layers import Recurrent as Recurrent
    from .layers import Trace as Trace
    from .layers import layer as layer
    from .models import CRF as CRF
    from .models import HMM as HMM
    from .models import NARX as NARX
    from .models import TDNN as TDNN
    from .models import BaldiBRNN as BaldiBRNN
    from .models import ClockworkRNN as ClockworkRNN
    from .models import ELMo as ELMo
    from .models import HierarchicalRNN as HierarchicalRNN
    from .models import ScalarMix as ScalarMix
    from .modifiers import LayerNorm as LayerNorm
    from .modifiers import RecurrentDropout as RecurrentDropout
    from .modifiers import VariationalDropout as VariationalDropout
    from .modifiers import WeightDrop as WeightDrop
    from .modifiers import Zoneout as Zoneout
    from .problem import Question as Question
    from .problem import ask as ask
    from .readout import Readout as Readout
    from .reservoir import EchoStateNetwork as EchoStateNetwork

__version__ = "0.1.0"

#: room → the public names in it; those of the first row are rooms themselves
_PLACES = {
    "": "cells compare data dynamics estimators init inspect models problem reservoir train",
    "cell": "Cell",
    "cells": "register registry",
    "dynamics": "DynamicalSystem",
    "engine.explain": "explain",
    "engine.dispatch": "set_backend",
    "errors": "RecurraError",
    "estimators": "Forecaster LanguageModelEstimator SequenceClassifier SequenceRegressor SequenceTagger",
    "inspect": "diagram report",
    "interop.onnx": "export",
    "interop.torch": "accelerate from_torch",
    "layers": "Recurrent Trace layer",
    "models": "CRF HMM NARX TDNN BaldiBRNN ClockworkRNN ELMo HierarchicalRNN ScalarMix",
    "modifiers": "LayerNorm RecurrentDropout VariationalDropout WeightDrop Zoneout",
    "problem": "Question ask",
    "readout": "Readout",
    "reservoir": "EchoStateNetwork",
}
#: methods that a class of an earlier room takes from a later one, and where they are defined
PROVIDERS.update(
    {
        "bind_step": f"{__name__}.engine.traced_step",
        "equations": f"{__name__}.engine.latex",
        "to_torch": f"{__name__}.interop.torch",
        "export": f"{__name__}.interop.onnx",
    }
)
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A name that nobody has used yet."""
    found = globals()[name] = _imported(name)
    return found


def _imported(name: str) -> Any:
    if name == "__all__":
        return sorted([*_PLACE_OF, *import_module(".cells", __name__).__all__])
    if place := _PLACE_OF.get(name):
        return getattr(import_module(f".{place}", __name__), name)
    if not name.startswith("_"):
        if find_spec(f".{name}", __name__):  # a room
            return import_module(f".{name}", __name__)
        if name in (layers := import_module(".named_layers", __name__)).__all__:  # a layer for every cell
            return getattr(layers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
