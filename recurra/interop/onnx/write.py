"""The file: written beside its place, compared with the model, and only then renamed into it."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...engine.trace import first_parameter
from ...errors import DtypeError, InputError
from ...layers import Recurrent
from .check import TOLERANCE, check_layer
from .errors import ExportError
from .layer import layer_model

LARGEST = 2**31 - 1  # bytes of a protobuf message


def export(layer: Recurrent, path: str | os.PathLike[str]) -> Path:
    """Write a layer as an ONNX file that is right for every batch and every length, and say where it is.

    Inputs: `x` as the layer takes it; `lengths` (B,) and the initial states (`h_0`, …) may be left out. Outputs: `y`
    and the final states (`h_n`, …). The layer is exported as it evaluates: without dropout, masks at their mean. The
    file is run in onnxruntime at three sizes, full and ragged, and appears only if it gives what the layer gives.
    """
    if not isinstance(layer, Recurrent):
        raise InputError("layer", type(layer).__name__, "a recurra layer")
    plain = _plain(layer)
    return _write(layer_model(plain), Path(path), lambda written: check_layer(written, plain))


def _plain(layer: Recurrent) -> Recurrent:
    """A copy on the CPU, in evaluation, that remembers no earlier call."""
    dtype = first_parameter(layer).dtype
    if dtype not in TOLERANCE:
        raise DtypeError("layer", dtype, "float32 or float64; layer.float() gives a float32 one")
    plain = copy.deepcopy(layer).cpu().eval()
    plain.reset_state()
    plain.initial = "zeros" if plain.initial == "carried" else plain.initial
    return plain


def _write(model: Any, path: Path, check: Callable[[Path], object]) -> Path:
    if not path.parent.is_dir():
        raise InputError("path", path, "a file in a folder that exists")
    if (size := model.ByteSize()) > LARGEST:
        raise ExportError(f"the model has {size} bytes, and one ONNX file holds at most {LARGEST}")
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        beside.write_bytes(model.SerializeToString())
        check(beside)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    return path
