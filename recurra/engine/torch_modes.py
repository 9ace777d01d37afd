"""Modes that stand over a call and are shown every function of torch.

What the engine does inside is not for them. A default device is such a mode: a table that it put on a GPU, or on no
device at all, would not be where a kernel looks for it.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch._C import DisableTorchFunction, _get_function_stack_at, _len_torch_function_stack
from torch.utils._device import DeviceContext


def looked_at() -> bool:
    """Whether a mode is there that wants to see what is called, and not only to say where tensors are made."""
    there = _len_torch_function_stack()
    return there > 0 and any(type(_get_function_stack_at(i)) is not DeviceContext for i in range(there))


def unseen(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, shown to no mode."""

    @functools.wraps(function)
    def alone(*args: Any, **kwargs: Any) -> Any:
        if not _len_torch_function_stack():
            return function(*args, **kwargs)
        with DisableTorchFunction():
            return function(*args, **kwargs)

    return alone
