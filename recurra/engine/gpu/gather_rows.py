"""Rows of a matrix in another order. Torch moves large ones number by number."""

import contextlib
import functools
from typing import Any

import torch
from torch import Tensor

AT_ONCE = 4096  # numbers that a program moves at a time


def gather_rows(value: Tensor, index: Tensor) -> Tensor:
    """`value[index]` for value (N, n) and index (M,)."""
    value = value.contiguous()
    if not value.is_cuda:
        return value.index_select(0, index)
    result = value.new_empty(len(index), value.shape[1])
    columns = min(1024, 1 << (value.shape[1] - 1).bit_length())
    rows = AT_ONCE // columns
    there = torch.cuda.current_device() == value.device.index
    with contextlib.nullcontext() if there else torch.cuda.device(value.device):
        _kernel()[(-(-len(index) // rows),)](value, index, result, len(index), value.shape[1], rows, columns)
    return result


@functools.cache
def _kernel() -> Any:
    """Made when first used: machines without a GPU need no Triton."""
    from . import gather_rows_kernel

    return gather_rows_kernel.kernel
