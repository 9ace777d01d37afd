"""Memory that is used again: fresh pages cost more than the arithmetic that fills them.

A lease is an ordinary tensor. When torch lets go of its storage (whoever held the last view of it), the memory goes
back to the pool; so two forward passes before a backward pass can never share a buffer. No line of Python runs at that
moment: an interrupt that fell into it would be lost.
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

SMALL = 1 << 21  # below this the system's own allocator is as good, and quicker to ask
LIMIT = 1 << 31  # bytes that come back to the pool at most, those on lease among them; what is beyond is let go of
# Buffers whose rows lie the same way in their pages drive each other out of the first cache, and a processor takes a
# load for one of the other's stores: each begins at another place of its page.
PLACES, APART = 11, 320


class _Region(mmap.mmap):
    """Pages. If they are to come back, `watch` looks after the lease they are on."""

    watch: weakref.ref | None = None


_lock = threading.Lock()
_free: OrderedDict[int, dict[_Region, weakref.ref]] = OrderedDict()  # by size, that longest unused first
_state = {"bytes": 0, "process": os.getpid()}  # of all regions that come back
_turn = itertools.cycle(range(PLACES))


def empty(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Like `torch.empty` on the CPU, in memory that is mapped already if possible."""
    count = prod(shape)
    if count * dtype.itemsize < SMALL:
        return torch.empty(tuple(shape), dtype=dtype)
    size = _rounded(count * dtype.itemsize + PLACES * APART)
    region, shelf = _taken(size)
    lease = _bytes(size).from_buffer(region)
    if shelf is not None:
        region.watch = weakref.ref(lease, functools.partial(operator.setitem, shelf, region))
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


def _taken(size: int) -> tuple[_Region, dict[_Region, weakref.ref] | None]:
    """A region, and where it goes when its lease ends; None: back to the system."""
    with _lock:
        if _state["process"] != os.getpid():  # a forked child: what its parent leased is not ours to hand out
            _free.clear()
            _state.update(bytes=0, process=os.getpid())
        shelf = _free.setdefault(size, {})
        _free.move_to_end(size)
        if shelf:
            return shelf.popitem()[0], shelf
        region, comes_back = _mapped(size), _make_room(size)
        if comes_back:
            _state["bytes"] += size
        return region, shelf if comes_back else None


def _mapped(size: int) -> _Region:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows: anonymous memory by default
        return _Region(-1, size)
    region = _Region(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux
        region.madvise(mmap.MADV_HUGEPAGE)
    return region


def _make_room(size: int) -> bool:
    """Let go of what has been unused for longest, until a region of this size may come back as well."""
    for other, shelf in _free.items():
        while shelf and _state["bytes"] + size > LIMIT:
            shelf.popitem()
            _state["bytes"] -= other
    return _state["bytes"] + size <= LIMIT
