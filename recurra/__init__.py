"""recurra: write a recurrent cell as its equations; get a fast layer with exact gradients.

Public names are imported at first use: importing torch takes a second or two, and `recurra --help` does not need it.
Type checkers read the names from `__init__.pyi`, which `scripts/write_stubs.py` writes.
"""

from importlib import import_module
from typing import Any

from .extensions import PROVIDERS
from .optional import is_installed

__version__ = "0.1.0"

#: module → its public names; the names of the first row are public subpackages and modules
_PLACES = {
    "": "cells compare data dynamics errors estimators init inspect models problem reservoir train",
    "cell": "Cell",
    "cells": "register registry",
    "dynamics": "DynamicalSystem",
    "engine.backend": "EngineWarning set_backend",
    "engine.caches": "clear_caches",
    "engine.explain": "explain",
    "errors": "ConversionError DeviceError DtypeError InputError LengthsError MissingPackageError ModelFileError"
    " OptionError RecurraError ShapeError TraceError UnknownNameError WeightsMismatchError",
    "estimators": "Forecaster LanguageModelEstimator OnlineClassifier OnlineForecaster SequenceClassifier"
    " SequenceRegressor SequenceTagger SequenceToSequence StepClassifier"
    " StepRegressor load",
    "gated_output": "GatedOutput",
    "guide": "survey",
    "inspect": "diagram report",
    "interop.onnx": "export",
    "interop.torch": "accelerate from_torch",
    "layer_trace": "Trace",
    "layers": "Recurrent layer",
    "models": "CRF HMM NARX TDNN BaldiBRNN ClockworkRNN ELMo EncoderDecoder HierarchicalRNN ScalarMix",
    "modifiers": "LayerNorm Modifier RecurrentDropout VariationalDropout WeightDrop Zoneout",
    "problem": "Problem infer_problem",
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
        "lyapunov": f"{__name__}.inspect.exponents",
    }
)
#: rooms that need packages of an extra; without these, `import *` and `help` leave their names out
_NEEDS = {
    "compare": ("pyarrow", "pydantic", "rich", "sklearn"),
    "estimators": ("sklearn",),
    "problem": ("pyarrow", "pydantic", "sklearn"),
    "reservoir": ("scipy", "sklearn"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import a public name; it is a module attribute from then on."""
    found = globals()[name] = _load(name)
    return found


def _load(name: str) -> Any:
    if name == "__all__":
        here = [name for name, place in _PLACE_OF.items() if all(map(is_installed, _NEEDS.get(place or name, ())))]
        return sorted([*here, *import_module(".cells", __name__).__all__])
    place = _PLACE_OF.get(name)
    if place == "":
        return import_module(f".{name}", __name__)
    if place is not None:
        return getattr(import_module(f".{place}", __name__), name)
    if not name.startswith("_") and name in (layers := import_module(".named_layers", __name__)).__all__:
        return getattr(layers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(name for name in globals() if name.startswith("__")), *__getattr__("__all__")])
