"""A pool of large CPU buffers: page faults of fresh memory cost more than the arithmetic that fills it.

A buffer is an ordinary tensor. Its memory returns to the pool when torch frees the storage, so two forward passes
before a backward pass never share a buffer. No Python code runs at that moment: an interrupt in it would be lost.
"""

import ctypes
import functools
import itertools
import mmap
import operator
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from .. import caches

SMALL = 1 << 21  # bytes below which the system allocator is as good, and faster
LIMIT = 1 << 31  # bytes of all regions of the pool, in use or free; further ones are unmapped when freed
# Buffers with the same page offset evict each other from the L1 cache and suffer from 4K aliasing of loads and stores:
# each starts at another offset in its page.
OFFSETS, OFFSET_STEP = 11, 320


class _Region(mmap.mmap):
    """Mapped pages. `watch` is the weak reference that returns them to the pool."""

    watch: weakref.ref | None = None


_lock = threading.Lock()
_free: OrderedDict[int, dict[_Region, weakref.ref]] = OrderedDict()  # size → free regions, longest unused first
_state = {"bytes": 0, "process": os.getpid()}  # of all regions of the pool
_turn = itertools.cycle(range(OFFSETS))


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Like `torch.empty` on the CPU, from the pool if possible."""
    count = prod(shape)
    if count * dtype.itemsize < SMALL:
        return torch.empty(tuple(shape), dtype=dtype)
    size = _rounded(count * dtype.itemsize + OFFSETS * OFFSET_STEP)
    region, free_list = _take_region(size)
    buffer = _bytes(size).from_buffer(region)
    if free_list is not None:
        region.watch = weakref.ref(buffer, functools.partial(operator.setitem, free_list, region))
    place = next(_turn) * OFFSET_STEP
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=place).resize_(tuple(shape))  # not a view


def zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return empty(shape, dtype).zero_()


class Allocation:
    """Uninitialised tensors of fixed shapes, allocated together at each call."""

    def __init__(self, shapes: Sequence[Sequence[int]], dtype: torch.dtype):
        self.shapes, self.dtype = shapes, dtype
        small = all(prod(shape) * dtype.itemsize < SMALL for shape in shapes)
        self.like = [torch.empty(1, dtype=dtype).expand(tuple(shape)) for shape in shapes] if small else None

    def __call__(self) -> tuple[Tensor, ...]:
        if self.like is not None:
            return (*map(torch.empty_like, self.like),)
        return tuple(empty(shape, self.dtype) for shape in self.shapes)


@functools.lru_cache(maxsize=256)
def _bytes(size: int) -> type[ctypes.Array]:
    return ctypes.c_char * size  # creating the type is the slowest part


def _rounded(size: int) -> int:
    """Round up to one of eight sizes per octave, so that slightly different lengths share regions."""
    unit = 1 << max(12, size.bit_length() - 4)
    return -(-size // unit) * unit


def _take_region(size: int) -> tuple[_Region, dict[_Region, weakref.ref] | None]:
    """(region, free list it returns to; None: it is unmapped)."""
    with _lock:
        if _state["process"] != os.getpid():  # a forked child: the parent's regions are not its own
            _free.clear()
            _state.update(bytes=0, process=os.getpid())
        free_list = _free.setdefault(size, {})
        _free.move_to_end(size)
        if free_list:
            return free_list.popitem()[0], free_list
        region, pooled = _map(size), _make_room(size)
        if pooled:
            _state["bytes"] += size
        return region, free_list if pooled else None


def _map(size: int) -> _Region:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows: anonymous memory by default
        return _Region(-1, size)
    region = _Region(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        region.madvise(mmap.MADV_HUGEPAGE)
    return region


def _make_room(size: int) -> bool:
    """Unmap least recently used regions until one of this size fits into LIMIT; whether it does."""
    for other, free_list in _free.items():
        while free_list and _state["bytes"] + size > LIMIT:
            free_list.popitem()
            _state["bytes"] -= other
    return _state["bytes"] + size <= LIMIT


def free_pool() -> None:
    """Return the free regions of the pool to the system."""
    with _lock:
        for size, regions in _free.items():
            while regions:
                regions.popitem()
                _state["bytes"] -= size


caches.register("memory pool", free_pool, lambda: sum(map(len, _free.values())))
