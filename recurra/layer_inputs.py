"""Checks of what a layer is called with: its input and its resets."""

from typing import Any

import torch
from torch import Tensor, nn

from .errors import DeviceError, DtypeError, InputError, ShapeError
from .layer_states import check_dense, shape_of

_NO_PARAMETER = torch.empty(0)


def first_parameter(module: nn.Module) -> Tensor:
    """`next(module.parameters())`, but faster; an empty tensor if there is none."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for child in module._modules.values():
        found = _NO_PARAMETER if child is None else first_parameter(child)
        if found is not _NO_PARAMETER:
            return found
    return _NO_PARAMETER


def check_input(x: Any, ranks: tuple[int, ...], input_size: int, batch_first: bool, weight: Tensor) -> None:
    """Check the rank, features, device and dtype of x against a layer with this weight."""
    if not isinstance(x, Tensor) or x.dim() not in ranks or x.shape[-1] != input_size:
        layout = f"({'B, T' if batch_first else 'T, B'}, {input_size}) or (T, {input_size})"
        if isinstance(x, Tensor):
            raise ShapeError("x", f"shape {tuple(x.shape)}", layout)
        raise InputError("x", type(x).__name__, f"a tensor {layout}, a PackedSequence or a nested tensor")
    check_dense("x", x)
    if not weight.numel():  # a layer without parameters takes any floating-point x
        weight = torch.empty((), device=x.device, dtype=x.dtype if x.is_floating_point() else None)
    if x.device != weight.device:
        raise DeviceError("x", x.device, f"the layer's device, {weight.device}")
    if x.dtype != weight.dtype and not (x.is_floating_point() and torch.is_autocast_enabled(x.device.type)):
        raise DtypeError("x", x.dtype, f"the layer's dtype, {weight.dtype}")


def check_resets(resets: Any, x: Tensor, batched: bool, batch_first: bool) -> Tensor | None:
    """Resets as a boolean (T, B) on the device of x (T, B, D), or None."""
    if resets is None:
        return None
    steps, batch = x.shape[:2]
    expected = ((batch, steps) if batch_first else (steps, batch)) if batched else (steps,)
    if isinstance(resets, Tensor):
        check_dense("resets", resets)
    if not isinstance(resets, Tensor) or tuple(resets.shape) != expected:
        raise ShapeError("resets", shape_of(resets), f"a tensor {expected}, true where a sequence begins")
    if resets.is_floating_point() or resets.is_complex():
        raise DtypeError("resets", resets.dtype, "true or false")
    if resets.is_meta and x.device.type != "meta":
        raise DeviceError("resets", resets.device, f"values, best on x's device, {x.device}")
    resets = resets.to(device=x.device, dtype=torch.bool)
    return (resets.transpose(0, 1) if batch_first else resets) if batched else resets[:, None]
