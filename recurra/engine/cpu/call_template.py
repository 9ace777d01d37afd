"""A prebuilt argument block for a C call; only pointers are patched per call.

The block is copied before it is patched, so threads can share a template.
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

VECTORS, PACKS, SUMS, ROWSUMS, SYNC, BUFFERS = 1, 2, 3, 4, 5, 6 + len(FIXED)  # words of `Call` in kernels/loop.h
OWN = -1  # argument of a relocation: the block itself
ZEROS = -1  # source of a copy: zeros


class Relocation(NamedTuple):
    """A word of the block that is an address: number of the argument (or OWN), and an offset in bytes."""

    word: int
    given: int
    offset: int = 0


WEIGHTS = Relocation(VECTORS, 0), Relocation(PACKS, 1)  # the lists of packed weights are the first two arguments


def addresses(
    binding: Binding, where: Mapping[BufferRef, Place], before: Mapping[BufferRef, int] | None = None
) -> list[Relocation]:
    """Relocations of a kernel's buffers; `before`: the argument that holds a buffer's values before the first step."""
    words = {buffer: BUFFERS + binding.place(buffer) for buffer in binding.buffers if buffer not in binding.alike}
    early = [Relocation(words[buffer] + BEFORE, given) for buffer, given in (before or {}).items() if buffer in words]
    return [*(Relocation(word, *where[buffer]) for buffer, word in words.items()), *early]


class Copy(NamedTuple):
    """Copy `size` bytes between two arguments, at byte offsets; from ZEROS, clear them."""

    target: int
    to: int
    source: int
    offset: int
    size: int


class CallTemplate:
    """A C call with relocations: `run(pack(*addresses))` with `given` addresses.

    `function` takes a pointer to `call`, whose first word points to `rest`, the tables that other words point to.
    """

    def __init__(
        self,
        function: Callable,
        call: Sequence[int],
        rest: Sequence[int],
        given: int,
        relocations: Sequence[Relocation],
        before: Sequence[Copy] = (),
        after: Sequence[Copy] = (),
    ):
        words = [*call, *rest]
        counts = [_address(function), len(words), len(call), len(relocations), len(before), len(after)]
        kept = [*counts, *itertools.chain(*relocations, *before, *after), *words]
        self.run: Callable[[bytes], None] = functools.partial(load_template(), struct.pack(f"{len(kept)}q", *kept))
        self.pack = struct.Struct(f"{given}q").pack


class LoopCall(CallTemplate):
    """A kernel's loop over time. After the `given` addresses follow those of `scratch`: zeroed memory of each call,
    first for its sums over all rows if it has any. The caller keeps the packed weights alive, unless it passes others.
    """

    def __init__(
        self,
        kernel: Kernel,
        packed: Packed,
        layout: Layout,
        binding: Binding,
        given: int,
        relocations: Sequence[Relocation],
        before: Sequence[Copy] = (),
        after: Sequence[Copy] = (),
    ):
        fixed = kernel.fixed(packed, layout)
        needed = {SUMS: (fixed.sums, kernel.dtype), ROWSUMS: (fixed.rowsums, kernel.dtype)}
        needed |= {SYNC: (fixed.sync, torch.int64)}
        needed = {word: torch.zeros(count, dtype=dtype) for word, (count, dtype) in needed.items() if count}
        self.scratch = list(needed.values())
        relocations = [*relocations, *(Relocation(word, given + i) for i, word in enumerate(needed))]
        call = [0, *packed.addresses, 0, 0, 0, *memoryview(fixed.numbers).cast("q")]
        super().__init__(kernel.library.run, call, binding.numbers, given + len(needed), relocations, before, after)
        self.alive = kernel, fixed, binding  # keeps alive what the words point to


@functools.cache
def load_template() -> Callable[[bytes, bytes], None]:
    """The function that patches a template and calls it."""
    function = compiler.load((KERNELS / "call_template.h").read_text(encoding="utf-8")).run_template
    function.argtypes, function.restype = [ctypes.c_char_p, ctypes.c_char_p], None
    return function


def _address(function: Callable) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value  # pyrefly: ignore
    assert address is not None
    return address
