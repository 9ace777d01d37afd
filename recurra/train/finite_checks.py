"""Finding the first weight, input, layer output or gradient that is not finite."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.data.sequences import Batch
from recurra.train.objective import Objective


def all_finite(*tensors: Tensor) -> bool:
    """Whether every floating or complex tensor has only finite values."""
    return all(
        bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()
    )


def first_non_finite(model: nn.Module, objective: Objective, batch: Batch, state: Any) -> tuple[str | None, Any]:
    """Name the first non-finite value between the weights, the batch and the loss; and the state after the batch."""
    for name, parameter in model.named_parameters():
        if not all_finite(parameter):
            return f"the weights {name}", None
    if not all_finite(batch.inputs):
        return "the inputs of the batch", None
    if not all_finite(batch.targets):
        return "the targets of the batch", None
    found, loss, state = _rerun(model, objective, batch, state)
    if found:
        return f"the output of layer {found[0]}", state
    return None if all_finite(loss) else "the loss function", state


def _rerun(model: nn.Module, objective: Objective, batch: Batch, state: Any) -> tuple[list[str], Tensor, Any]:
    """Run the batch again; the names of modules with non-finite outputs, in call order."""
    found: list[str] = []

    def hook(name: str):
        def look(module: nn.Module, arguments: Any, output: Any) -> None:
            if not all_finite(*_tensors(output)):
                found.append(name or type(model).__name__)

        return look

    handles = [module.register_forward_hook(hook(name)) for name, module in model.named_modules()]
    try:
        with torch.no_grad():
            sums, state = objective(model, batch, state)
    finally:
        for handle in handles:
            handle.remove()
    return found, sums["loss"], state


def non_finite_gradient(model: nn.Module) -> str | None:
    """The first parameter whose gradient is not finite."""
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not all_finite(parameter.grad):
            return f"the gradient of {name}"
    return None


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, (tuple, list)) else []
