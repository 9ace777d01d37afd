"""The buffers of a loop: most of them side by side in one piece of memory, so that a call asks for memory once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..ir.buffers import BufferRef
from .allocator import OFFSET_STEP

LINE = 64  # bytes: where one buffer's last line ends, another's begins


def room(numbers: Any, size: int) -> Any:
    """Numbers a buffer takes with what sets it apart from the next (of `size` bytes each)."""
    return (-(-numbers * size // LINE) * LINE + OFFSET_STEP) // size


Place = tuple[int, int]  # which of the addresses given to a call, and how many bytes further on


class Shelf:
    """Where each of some buffers, given as (rows, width), begins in one piece of memory."""

    def __init__(self, shapes: Mapping[BufferRef, tuple[int, int]], dtype: torch.dtype):
        self.dtype, self.numbers = dtype, 0
        self.places: dict[BufferRef, tuple[int, int, int]] = {}  # first number, rows, width
        for buffer, (rows, width) in shapes.items():
            self.places[buffer] = self.numbers, rows, width
            self.numbers += room(rows * width, dtype.itemsize)

    def at(self, given: int) -> dict[BufferRef, Place]:
        """Where its buffers lie if the piece of memory is that of the given address."""
        return {buffer: (given, first * self.dtype.itemsize) for buffer, (first, _, _) in self.places.items()}

    def clear_gaps(self, piece: Tensor) -> None:
        """Zeros where no buffer lies: a result may not hold what was left in the memory."""
        ends = [first + rows * width for first, rows, width in self.places.values()]
        starts = [first for first, _, _ in self.places.values()]
        for end, start in zip(ends, [*starts, piece.numel()][1:], strict=True):
            piece[end:start] = 0


class Buffers:
    """The buffers of one call: their addresses, and as (rows, width) where somebody wants the numbers."""

    def __init__(self) -> None:
        self.addresses: dict[BufferRef, int] = {}
        self._whole: dict[BufferRef, Tensor] = {}
        self._shelved: dict[BufferRef, tuple[Tensor, tuple[int, int, int]]] = {}

    def __contains__(self, buffer: BufferRef) -> bool:
        return buffer in self.addresses

    def put(self, buffer: BufferRef, tensor: Tensor) -> None:
        self.addresses[buffer] = tensor.data_ptr()
        self._whole[buffer] = tensor

    def lay_out(self, shelf: Shelf, piece: Tensor) -> None:
        base, size = piece.data_ptr(), shelf.dtype.itemsize
        for buffer, place in shelf.places.items():
            self.addresses[buffer] = base + place[0] * size
            self._shelved[buffer] = piece, place

    def given(self, buffer: BufferRef) -> Tensor:
        """What was put there, in its own shape."""
        return self._whole[buffer]

    def __getitem__(self, buffer: BufferRef) -> Tensor:
        found = self._whole.get(buffer)
        if found is None:
            piece, (first, rows, width) = self._shelved[buffer]
            found = self._whole[buffer] = piece.as_strided((rows, width), (width, 1), piece.storage_offset() + first)
        return found if found.dim() == 2 else found.reshape(-1, found.shape[-1])

    def width(self, buffer: BufferRef) -> int:
        return self._shelved[buffer][1][2] if buffer in self._shelved else self._whole[buffer].shape[-1]


def whole(value: Tensor) -> Tensor:
    """In one piece, and with the signs that its numbers have: a view may say that they are all turned."""
    return value.contiguous().resolve_neg()
