"""Which axis a model takes for time: batches are (T, B, D), and a layer inside may read (B, T, D)."""

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from recurra.errors import InputError

_SEEN: "weakref.WeakSet[nn.Module]" = weakref.WeakSet()  # models whose axes a call has shown to be right


@contextlib.contextmanager
def time_comes_first(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Raise an `InputError` if a layer with batch_first=True gets the steps of x as its batch.

    Only calls up to the first that can tell pay for it: where T = B, a layer must read x itself.
    """
    shape = x.shape[:2]
    readers = [] if model in _SEEN or hasattr(model, "_orig_mod") else _batch_first(model)
    if not readers:
        _SEEN.add(model)
        yield
        return

    def look(layer: nn.Module, given: tuple[Any, ...]) -> None:
        read = given[0] if given else None
        if not isinstance(read, Tensor) or read.dim() < 3 or read.shape[:2] != shape:
            return
        if shape[0] != shape[1] or (read.data_ptr() == x.data_ptr() and read.stride() == x.stride()):
            inside = f"{type(layer).__name__} of batch_first=True that takes steps for the batch"
            got = f"{type(model).__name__} with a {inside}"
            raise InputError("model", got, "a model that reads (T, B, D)")

    hooks = [layer.register_forward_pre_hook(look) for layer in readers]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
    if shape[0] != shape[1]:
        _SEEN.add(model)


def _batch_first(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if getattr(module, "batch_first", None) is True]
