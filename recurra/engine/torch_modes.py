"""What is active around a call: torch modes, transforms, autocast, tensor subclasses.

A compiled engine reads memory by address, so it must know when a tensor is not plain memory or when something observes
the operations of a call. Modes must not see what the engine does inside: a default device, for example, is a mode that
would put the engine's own index tables on a GPU.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C import (
    DisableTorchFunction,
    _get_function_stack_at,
    _is_any_autocast_enabled,
    _is_tracing,
    _len_torch_dispatch_stack,
    _len_torch_function_stack,
)
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn import Parameter
from torch.utils._device import DeviceContext

_PLAIN_TYPES = {Tensor, Parameter}


def hide_from_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: active `TorchFunctionMode`s do not see the torch calls of this function."""

    @functools.wraps(function)
    def hidden(*args: Any, **kwargs: Any) -> Any:
        if not _len_torch_function_stack():
            return function(*args, **kwargs)
        with DisableTorchFunction():
            return function(*args, **kwargs)

    return hidden


def has_function_mode() -> bool:
    """Whether a `TorchFunctionMode` other than a default device is active."""
    count = _len_torch_function_stack()
    return count > 0 and any(type(_get_function_stack_at(i)) is not DeviceContext for i in range(count))


def needs_dispatcher(tensors: Iterable[Tensor]) -> bool:
    """Whether the operation must be called by name: under torch.compile, a mode, or with a tensor subclass."""
    return is_compiling() or _is_observed(tensors)


def _is_observed(tensors: Iterable[Tensor]) -> bool:
    has_mode = _len_torch_dispatch_stack() > 0 or has_function_mode()
    return has_mode or not _PLAIN_TYPES.issuperset(map(type, tensors))


def is_transformed() -> bool:
    """Whether a functorch transform or a level of forward-mode differentiation is active."""
    return peek_interpreter_stack() is not None or forward_ad._current_level >= 0


def is_exporting() -> bool:
    """Whether torch.export or torch.jit.trace records the call. torch.compiler.is_exporting is always true while
    torch.compile of torch 2.11 and 2.12 traces, hence the flag behind it."""
    return torch.compiler._is_exporting_flag or torch.jit.is_tracing()


def is_plain_call(tensors: Sequence[Tensor]) -> bool:
    """Whether nothing observes, transforms or recasts the call, and no tensor has its negative bit set. Not to be asked
    under torch.compile."""
    if _is_observed(tensors) or any(map(Tensor.is_neg, tensors)):
        return False
    return not (_is_any_autocast_enabled() or _is_tracing() or is_transformed())


def has_saved_tensor_hooks() -> bool:
    """Whether hooks see what autograd saves: an activation checkpoint counts it."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
