"""Memory that is used again: fresh pages cost more than the arithmetic that fills them.

A lease is an ordinary tensor. When torch lets go of its storage (whoever held the last view of it), the memory goes
back to the pool; so two forward passes before a backward pass can never share a buffer.
"""

import ctypes
import functools
import itertools
import mmap
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

SMALL = 1 << 21  # below this the system's own allocator is as good, and quicker to ask
LIMIT = 1 << 30  # bytes kept for later at most
# Buffers whose rows lie the same way in their pages drive each other out of the first cache, and a processor takes a
# load for one of the other's stores: each begins at another place of its page.
PLACES, APART = 11, 320

_lock = threading.RLock()  # a storage may be let go of at any moment, even while this lock is held
_free: OrderedDict[int, list[mmap.mmap]] = OrderedDict()  # size → regions, the longest unused first
_state = {"bytes": 0, "process": os.getpid()}
_turn = itertools.cycle(range(PLACES))


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Like `torch.empty` on the CPU, in memory that is mapped already if possible."""
    count = prod(shape)
    if count * dtype.itemsize < SMALL:
        return torch.empty(tuple(shape), dtype=dtype)
    size = _rounded(count * dtype.itemsize + PLACES * APART)
    region = _take(size)
    lease = _bytes(size).from_buffer(region)
    weakref.finalize(lease, _give_back, size, region).atexit = False  # pyrefly: ignore
    place = next(_turn) * APART
    return torch.frombuffer(lease, dtype=dtype, count=count, offset=place).resize_(tuple(shape))  # not a view


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return empty(shape, dtype).zero_()


@functools.lru_cache(maxsize=256)
def _bytes(size: int) -> type[ctypes.Array]:
    return ctypes.c_char * size  # making a type takes longer than all the rest


def _rounded(size: int) -> int:
    """Eight sizes an octave, so that lengths that vary a little meet the same region."""
    unit = 1 << max(12, size.bit_length() - 4)
    return -(-size // unit) * unit


def _take(size: int) -> mmap.mmap:
    with _lock:
        if _state["process"] != os.getpid():  # a forked child: what its parent leased is not ours to hand out
            _free.clear()
            _state.update(bytes=0, process=os.getpid())
        regions = _free.get(size)
        if regions:
            _state["bytes"] -= size
            return regions.pop()
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        region.madvise(mmap.MADV_HUGEPAGE)
    return region


def _give_back(size: int, region: mmap.mmap) -> None:
    with _lock:
        _free.setdefault(size, []).append(region)
        _free.move_to_end(size)
        _state["bytes"] += size
        while _state["bytes"] > LIMIT:
            oldest = next(iter(_free))
            if _free[oldest]:
                _free[oldest].pop()
                _state["bytes"] -= oldest
            else:
                del _free[oldest]
