"""Where a number stopped being finite."""

from typing import Any

import torch
from torch import Tensor, nn

from recurra.data.sequences import Batch
from recurra.train.objective import Objective


def finite(*tensors: Tensor) -> bool:
    return all(
        bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point() or tensor.is_complex()
    )


def culprit(model: nn.Module, objective: Objective, batch: Batch, state: Any) -> tuple[str | None, Any]:
    """The first thing not finite on the way from the weights and the batch to the loss; and the state after it."""
    for name, parameter in model.named_parameters():
        if not finite(parameter):
            return f"the weights {name}", None
    if not finite(batch.inputs):
        return "the inputs of the batch", None
    if not finite(batch.targets):
        return "the targets of the batch", None
    found, loss, state = _rerun(model, objective, batch, state)
    if found:
        return f"the output of layer {found[0]}", state
    return None if finite(loss) else "the loss function", state


def _rerun(model: nn.Module, objective: Objective, batch: Batch, state: Any) -> tuple[list[str], Tensor, Any]:
    """The modules, innermost first, that put out something not finite when the batch runs once more."""
    found: list[str] = []

    def hook(name: str):
        def look(module: nn.Module, arguments: Any, output: Any) -> None:
            if not finite(*_tensors(output)):
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


def bad_gradient(model: nn.Module) -> str | None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not finite(parameter.grad):
            return f"the gradient of {name}"
    return None


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, (tuple, list)) else []
