"""`linear_scan` of diagonal systems on a GPU: three kernels, whatever the number of steps."""

import functools
from typing import Any

import torch
from torch import Tensor

from ..on_device import on_device

STEPS, COLUMNS = 64, 32  # of a program
WARPS = 4


def device_scan(a: Tensor, b: Tensor, backward: bool) -> Tensor:
    """`δ_t = a_t δ_{t-1} + b_t` for a and b (T, n); `backward`: from the last step to the first."""
    a, b = a.contiguous(), b.contiguous()
    steps, width = b.shape
    chunks, blocks = -(-steps // STEPS), -(-width // COLUMNS)
    ends, result = b.new_empty(3, chunks, width), torch.empty_like(b)
    with on_device(b.device):
        kernels, options = _kernels(), {} if b.device.type == "cpu" else {"num_warps": WARPS}
        tile = STEPS, COLUMNS
        kernels.chunk_ends[chunks, blocks](a, b, ends[0], ends[1], steps, width, backward, *tile, **options)
        kernels.chunk_starts[(blocks,)](ends[0], ends[1], ends[2], chunks, width, *tile, **options)
        kernels.all_steps[chunks, blocks](a, b, ends[2], result, steps, width, backward, *tile, **options)
    return result


@functools.cache
def is_available() -> bool:
    """Whether Triton is installed."""
    try:
        _kernels()
    except ImportError:
        return False
    return True


@functools.cache
def _kernels() -> Any:
    """Imported when first used: machines without a GPU need no Triton."""
    from . import scan_kernels

    return scan_kernels
