"""A call that is made again and again: all its words are kept, but for a few addresses.

What is left for Python is to say these. Nothing is written into what is kept, so several threads may make the call.
"""

import ctypes
import functools
import itertools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

from ..ir.buffers import BufferRef
from . import compiler
from .arena import Place
from .codegen import KERNELS
from .kernel import BEFORE, FIXED, Binding, Kernel
from .layout import Layout
from .packing import Packed

VECTORS, PACKS, SUMS, ROWSUMS, BOARD, BUFFERS = 1, 2, 3, 4, 5, 6 + len(FIXED)  # words of `Call` in kernels/loop.h
OWN = -1  # the address of the call itself, where one of its words points to another
ZEROS = -1  # in place of what is copied


class Patch(NamedTuple):
    """A word that is an address: which of the given ones, or the call's own, and how many bytes further on."""

    word: int
    given: int
    offset: int = 0


WEIGHTS = Patch(VECTORS, 0), Patch(PACKS, 1)  # where the lists of packed ones are given first


def addresses(
    binding: Binding, where: Mapping[BufferRef, Place], before: Mapping[BufferRef, int] | None = None
) -> list[Patch]:
    """Of a kernel's buffers, and which of the given addresses is that of what was `before` the first step."""
    words = {buffer: BUFFERS + binding.place(buffer) for buffer in binding.buffers if buffer not in binding.alike}
    early = [Patch(words[buffer] + BEFORE, given) for buffer, given in (before or {}).items() if buffer in words]
    return [*(Patch(word, *where[buffer]) for buffer, word in words.items()), *early]


class Copy(NamedTuple):
    """Of so many bytes, from one of the given addresses and further on, to another; or that many zeros."""

    target: int
    to: int
    source: int
    offset: int
    size: int


class Again:
    """`run(pack(*addresses))`: as many as are `given`.

    `function` takes the address of `call`, whose first word says where `rest` is: whatever else its words point to.
    """

    def __init__(
        self,
        function: Callable,
        call: Sequence[int],
        rest: Sequence[int],
        given: int,
        patches: Sequence[Patch],
        before: Sequence[Copy] = (),
        after: Sequence[Copy] = (),
    ):
        words = [*call, *rest]
        counts = [_address(function), len(words), len(call), len(patches), len(before), len(after)]
        kept = [*counts, *itertools.chain(*patches, *before, *after), *words]
        self.run: Callable[[bytes], None] = functools.partial(_again(), struct.pack(f"{len(kept)}q", *kept))
        self.pack = struct.Struct(f"{given}q").pack


class Loop(Again):
    """A kernel's loop over time. After the addresses that are `given` come those of `scratch`: zeros that each call
    needs for itself, first those for its sums over all rows if it has any.

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
        before: Sequence[Copy] = (),
        after: Sequence[Copy] = (),
    ):
        fixed = kernel.fixed(packed, layout)
        needed = {SUMS: (fixed.sums, kernel.dtype), ROWSUMS: (fixed.rowsums, kernel.dtype)}
        needed |= {BOARD: (fixed.board, torch.int64)}
        needed = {word: torch.zeros(count, dtype=dtype) for word, (count, dtype) in needed.items() if count}
        self.scratch = list(needed.values())
        patches = [*patches, *(Patch(word, given + i) for i, word in enumerate(needed))]
        call = [0, packed.vector_list[1], packed.pack_list[1], 0, 0, 0, *memoryview(fixed.numbers).cast("q")]
        super().__init__(kernel.library.run, call, binding.numbers, given + len(needed), patches, before, after)
        self.alive = kernel, fixed, binding  # what the words point to


@functools.cache
def _again() -> Callable[[bytes, bytes], None]:
    function = compiler.load((KERNELS / "call_template.h").read_text(encoding="utf-8")).again
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], None
    return function


def _address(function: Callable) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyrefly: ignore
    assert address is not None
    return address
