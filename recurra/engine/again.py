"""A call of a kernel that is made again and again: all its words are kept, but for a few addresses.

What is left for Python is to say these. Nothing is written into what is kept, so several threads may make the call.
"""

import ctypes
import functools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from . import build
from .kernel import Binding, Kernel, Packed
from .layout import Layout
from .render import KERNELS


class Copy(NamedTuple):
    """Of so many bytes after the call, between the places of two addresses."""

    source: int
    target: int
    size: int


class Again:
    """`run(bytes of the addresses)`, those of `places` first, then of `scratch`: zeros that a call needs for itself.

    A place is a number of the binding's; the one after the last is nobody's, for where something is copied to.
    """

    def __init__(
        self, kernel: Kernel, packed: Packed, layout: Layout, binding: Binding, places: Sequence[int], copy: Copy | None
    ):
        fixed = kernel.fixed(packed, layout)
        needed = {3: (fixed.sums, kernel.dtype), 4: (fixed.rowsums, kernel.dtype), 5: (fixed.board, torch.int64)}
        self.scratch = [torch.zeros(count, dtype=dtype) for count, dtype in needed.values() if count]
        call = [0, packed.vector_list[1], packed.pack_list[1], 0, 0, 0, *memoryview(fixed.numbers).cast("q")]
        words = [*call, *binding.numbers, 0]
        changing = [*(len(call) + place for place in places), *(at for at, (count, _) in needed.items() if count)]
        copied = (len(call) + copy.source, len(call) + copy.target, copy.size) if copy else (0, 0, 0)
        kept = [_address(kernel.library.run), len(words), len(call), len(changing), *copied, *changing, *words]
        self.run: Callable[[bytes], None] = functools.partial(_again(), struct.pack(f"{len(kept)}q", *kept))
        self.pack = struct.Struct(f"{len(changing)}q").pack
        self.alive = kernel, packed, fixed, binding  # what the words point to


@functools.cache
def _again() -> Callable[[bytes, bytes], None]:
    function = build.load((KERNELS / "again.h").read_text()).again
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], None
    return function


def _address(function: Callable) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyrefly: ignore
    assert address is not None
    return address
