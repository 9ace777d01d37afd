"""A call of a kernel that is made again and again: all its words are kept, but for a few addresses.

What is left for Python is to say these. Nothing is written into what is kept, so several threads may make the call.
"""

import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from . import build
from .kernel import FIXED, Binding, Kernel
from .layout import Layout
from .packing import Packed
from .render import KERNELS

VECTORS, PACKS, SUMS, ROWSUMS, BOARD, BUFFERS = 1, 2, 3, 4, 5, 6 + len(FIXED)  # words of `Call` in kernels/loop.h


class Patch(NamedTuple):
    """A word that is an address: which of the given ones, and how many bytes further on."""

    word: int
    given: int
    offset: int = 0


class Copy(NamedTuple):
    """Of so many bytes after the call, from one of the given addresses, or further on, to another."""

    target: int
    source: int
    offset: int
    size: int


class Again:
    """`run(pack(*addresses))`: as many as are `given`, then those of `scratch`, zeros that a call needs for itself.

    Who makes the call keeps the packed weights, unless other ones are given.
    """

    def __init__(
        self,
        kernel: Kernel,
        packed: Packed,
        layout: Layout,
        binding: Binding,
        given: int,
        patches: Sequence[Patch],
        copies: Sequence[Copy],
    ):
        fixed = kernel.fixed(packed, layout)
        needed = {SUMS: (fixed.sums, kernel.dtype), ROWSUMS: (fixed.rowsums, kernel.dtype)}
        needed |= {BOARD: (fixed.board, torch.int64)}
        needed = {word: torch.zeros(count, dtype=dtype) for word, (count, dtype) in needed.items() if count}
        self.scratch = list(needed.values())
        patches = [*patches, *(Patch(word, given + i) for i, word in enumerate(needed))]
        call = [0, packed.vector_list[1], packed.pack_list[1], 0, 0, 0, *memoryview(fixed.numbers).cast("q")]
        words = [*call, *binding.numbers]
        counts = [_address(kernel.library.run), len(words), len(call), len(patches), len(copies)]
        kept = [*counts, *itertools.chain(*patches, *copies), *words]
        self.run: Callable[[bytes], None] = functools.partial(_again(), struct.pack(f"{len(kept)}q", *kept))
        self.pack = struct.Struct(f"{given + len(needed)}q").pack
        self.alive = kernel, fixed, binding  # what the words point to


@functools.cache
def _again() -> Callable[[bytes, bytes], None]:
    function = build.load((KERNELS / "again.h").read_text()).again
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], None
    return function


def _address(function: Callable) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyrefly: ignore
    assert address is not None
    return address
