"""The rows of a batch in another order at every step. Torch moves so many numbers one by one."""

import functools
from typing import Any

import torch
from torch import Tensor

from ..on_device import on_device

AT_ONCE = 4096  # numbers that a program moves at a time


def gather_rows(value: Tensor, order: Tensor, lengths: Tensor | None = None) -> Tensor:
    """`value[:, order]` for value (T, B, n). With the lengths (B,) of the rows in their new order, a row repeats its
    last step past its end, and one without steps is zero."""
    value = value.contiguous()
    if not value.is_cuda:
        return _by_torch(value, order, lengths)
    steps, batch, width = value.shape
    result = torch.empty_like(value)
    columns = min(1024, 1 << (width - 1).bit_length())
    rows = AT_ONCE // columns
    with on_device(value.device):
        ends = order if lengths is None else lengths
        sizes = steps * batch, batch, width, lengths is not None, rows, columns
        _kernel()[(-(-steps * batch // rows),)](value, order, ends, result, *sizes)
    return result


def _by_torch(value: Tensor, order: Tensor, lengths: Tensor | None) -> Tensor:
    if lengths is None:
        return value[:, order]
    step = torch.arange(len(value), device=value.device)[:, None].minimum((lengths - 1).clamp(min=0))
    return value[step, order].masked_fill((lengths < 1)[:, None], 0.0)


@functools.cache
def _kernel() -> Any:
    """Made when first used: machines without a GPU need no Triton."""
    from . import gather_rows_kernel

    return gather_rows_kernel.kernel
