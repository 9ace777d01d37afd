"""`rc.export`: write an ONNX file, compare it with the model, then rename it into place."""

import copy
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ...argument_checks import path_of
from ...dilation import refuse_dilation
from ...errors import DtypeError, InputError
from ...layer_inputs import first_parameter
from ...layers import Recurrent
from .check import TOLERANCE, check_layer, check_module
from .export_errors import ExportError
from .layer import layer_model
from .module import arguments_of, module_model

LARGEST = 2**31 - 1  # bytes of a protobuf message


def export(model: nn.Module, path: str | os.PathLike[str], example: Any = None) -> Path:
    """Write a model as an ONNX file for any batch size and any sequence length.

    The model is exported in evaluation mode: without dropout, masks at their mean. The file is run in onnxruntime at
    three sizes that the export has not seen; it is written only if its results match those of the model.

    **Arguments**

    - `model`: a layer, or any module that contains layers, in float32 or float64.
    - `path`: the file to write, in a folder that exists.
    - `example`: for a module that is not a layer, the arguments of a call: a tensor, a tuple, or a dictionary by name.

    The inputs of a layer's file are `x`, as the layer takes it, and optionally `lengths` (B,) and the initial states
    (`h_0`, …); the outputs are `y` and the final states (`h_n`, …). Those of any other module are those of the call.
    Noise that a cell declares is an optional input under its own name, in the layout of x (`u.0`, `u.1`, … if the layer
    has several cells); if it is not given, the runtime draws it.

    **Returns** the path of the file.

    **Example**

        >>> import tempfile
        >>> import recurra as rc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = rc.export(rc.GRU(3, 4), f"{folder}/gru.onnx")
        >>> path.name
        'gru.onnx'
    """
    if not isinstance(model, nn.Module):
        raise InputError("model", type(model).__name__, "a recurra layer, or a module with such layers inside")
    target = _check_path(path)
    copied = _evaluation_copy(model)
    if isinstance(copied, Recurrent) and example is None:
        return _write(layer_model(copied), target, lambda written: check_layer(written, copied))
    arguments = tree_map(_on_cpu, arguments_of(copied, example))
    return _write(module_model(copied, arguments), target, lambda written: check_module(written, copied, arguments))


def _check_path(path: str | os.PathLike[str]) -> Path:
    target = path_of("path", path)
    if target.is_dir() or not target.parent.is_dir():
        raise InputError("path", path, "a file in a folder that exists")
    return target


def _on_cpu(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, Tensor) else value


def _evaluation_copy(model: nn.Module) -> nn.Module:
    """A copy on the CPU in evaluation mode, without carried states."""
    dtype = first_parameter(model).dtype
    if dtype not in TOLERANCE:
        raise DtypeError("model", dtype, "float32 or float64; model.float() gives a float32 one")
    copied = copy.deepcopy(model).cpu().eval()
    for layer in copied.modules():
        if isinstance(layer, Recurrent):
            refuse_dilation("model", layer)
            layer.reset_state()
            layer.initial = "zeros" if layer.initial == "carried" else layer.initial
    return copied


def _write(model: Any, path: Path, check: Callable[[Path], object]) -> Path:
    if (size := model.ByteSize()) > LARGEST:
        raise ExportError(f"the model has {size} bytes, an ONNX file at most {LARGEST}")
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        draft.write_bytes(model.SerializeToString())
        check(draft)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    return path
