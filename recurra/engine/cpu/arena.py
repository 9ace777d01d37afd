"""The buffers of a loop: most of them side by side in one piece of memory, so that a call asks for memory once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .allocator import APART

LINE = 64  # bytes: where one buffer's last line ends, another's begins


def room(numbers: Any, size: int) -> Any:
    """Numbers a buffer takes with what sets it apart from the next (of `size` bytes each)."""
    return (-(-numbers * size // LINE) * LINE + APART) // size


Place = tuple[int, int]  # which of the addresses given to a call, and how many bytes further on


class Shelf:
    """Where each of some buffers, given as (rows, width), begins in one piece of memory."""

    def __init__(self, shapes: Mapping[str, tuple[int, int]], dtype: torch.dtype):
        self.dtype, self.numbers = dtype, 0
        self.places: dict[str, tuple[int, int, int]] = {}  # first number, rows, width
        for name, (rows, width) in shapes.items():
            self.places[name] = self.numbers, rows, width
            self.numbers += room(rows * width, dtype.itemsize)

    def at(self, given: int) -> dict[str, Place]:
        """Where its buffers lie if the piece of memory is that of the given address."""
        return {name: (given, first * self.dtype.itemsize) for name, (first, _, _) in self.places.items()}

    def clear_gaps(self, piece: Tensor) -> None:
        """Zeros where no buffer lies: a result may not hold what was left in the memory."""
        ends = [first + rows * width for first, rows, width in self.places.values()]
        starts = [first for first, _, _ in self.places.values()]
        for end, start in zip(ends, [*starts, piece.numel()][1:], strict=True):
            piece[end:start] = 0


class Buffers:
    """The buffers of one call: their addresses, and as (rows, width) where somebody wants the numbers."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}
        self._whole: dict[str, Tensor] = {}
        self._shelved: dict[str, tuple[Tensor, tuple[int, int, int]]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self.addresses

    def put(self, name: str, tensor: Tensor) -> None:
        self.addresses[name] = tensor.data_ptr()
        self._whole[name] = tensor

    def lay_out(self, shelf: Shelf, piece: Tensor) -> None:
        base, size = piece.data_ptr(), shelf.dtype.itemsize
        for name, place in shelf.places.items():
            self.addresses[name] = base + place[0] * size
            self._shelved[name] = piece, place

    def alias(self, name: str, other: str) -> None:
        self.addresses[name] = self.addresses[other]
        if other in self._whole:
            self._whole[name] = self._whole[other]
        if other in self._shelved:
            self._shelved[name] = self._shelved[other]

    def given(self, name: str) -> Tensor:
        """What was put there, in its own shape."""
        return self._whole[name]

    def __getitem__(self, name: str) -> Tensor:
        found = self._whole.get(name)
        if found is None:
            piece, (first, rows, width) = self._shelved[name]
            found = self._whole[name] = piece.as_strided((rows, width), (width, 1), piece.storage_offset() + first)
        return found if found.dim() == 2 else found.reshape(-1, found.shape[-1])

    def width(self, name: str) -> int:
        return self._shelved[name][1][2] if name in self._shelved else self._whole[name].shape[-1]


def whole(value: Tensor) -> Tensor:
    """In one piece, and with the signs that its numbers have: a view may say that they are all turned."""
    return value.contiguous().resolve_neg()
