"""Arenas: one block of memory that holds several buffers, so that a call allocates once."""

from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from .allocator import OFFSET_STEP

LINE = 64  # bytes of a cache line: no two buffers share one

Key = TypeVar("Key", bound=Hashable)
Place = tuple[int, int]  # an argument of a call by its index, and an offset in bytes


def padded_size(numbers: Any, itemsize: int) -> Any:
    """Numbers that a buffer takes in an arena, with the gap to the next one."""
    return (-(-numbers * itemsize // LINE) * LINE + OFFSET_STEP) // itemsize


class Arena(Generic[Key]):
    """The places of some buffers, given as (rows, width), in one block of memory."""

    def __init__(self, shapes: Mapping[Key, tuple[int, int]], dtype: torch.dtype):
        self.dtype, self.numbers = dtype, 0
        self.places: dict[Key, tuple[int, int, int]] = {}  # first number, rows, width
        for buffer, (rows, width) in shapes.items():
            self.places[buffer] = self.numbers, rows, width
            self.numbers += padded_size(rows * width, dtype.itemsize)

    def at(self, argument: int) -> dict[Key, Place]:
        """The places of the buffers if the block is this argument of a call."""
        return {buffer: (argument, first * self.dtype.itemsize) for buffer, (first, _, _) in self.places.items()}

    def view(self, block: Tensor, buffer: Key) -> Tensor:
        """A buffer in a block, (rows, width)."""
        first, rows, width = self.places[buffer]
        return block.as_strided((rows, width), (width, 1), block.storage_offset() + first)

    def clear_gaps(self, block: Tensor) -> None:
        """Set to zero what lies between buffers and behind the last: results contain no leftover memory."""
        ends = [first + rows * width for first, rows, width in self.places.values()]
        starts = [first for first, _, _ in self.places.values()]
        for end, start in zip(ends, [*starts, block.numel()][1:], strict=True):
            block[end:start] = 0
