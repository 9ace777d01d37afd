"""Pack the weights of a program in the order in which its products read them.

Packed weights are cached under a hash of the weights' contents: a tensor's version counter does not notice writes
through `.data` or through an array that shares its memory. Hashing takes as long as a few steps of a single row, so
calls of a single row read the weights unpacked, by address.
"""

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...errors import DtypeError, ShapeError
from ..ir.nodes import Matrix, Vector
from . import allocator
from .codegen import Tables

WORTH_THREADS = 1 << 18  # bytes whose hash takes longer than waking a thread
REMEMBERED, REMEMBERED_BYTES = 4, 1 << 25  # packed weights cached per kernel: entries, bytes
_KIND = attrgetter("shape", "dtype")


class Split(NamedTuple):
    """How threads share a call."""

    threads: int
    by_unit: bool
    in_place: bool = False  # a single row, whose products read unpacked weights
    by_column: bool = False  # threads share columns that do not depend on each other, each for all steps


@dataclass(frozen=True)
class Packed:
    """The weights of a program, as its kernel reads them."""

    split: Split
    tiles: list[int]
    addresses: tuple[int, int]  # of the lists of vectors and of matrices
    alive: tuple  # what the lists point to, but for weights that are read where they are


class Packing:
    """Packs the weights of one program, for one dtype."""

    def __init__(self, tables: Tables, common: ctypes.CDLL, dtype: torch.dtype, tiles: Callable[[Split], list[int]]):
        """`common`: the library of products.h; `tiles`: vectors per tile of each group."""
        self.tables, self.common, self.dtype, self.tiles = tables, common, dtype, tiles
        matrices = [m for lanes in tables.packs for lane in lanes for m in lane]
        self.bytes = sum(m.wide * m.deep for m in matrices) * dtype.itemsize
        self.used = tuple(dict.fromkeys((*(v.weight for v in tables.vectors), *(m.weight for m in matrices))))
        self.copied = tuple(dict.fromkeys(v.weight for v in tables.vectors if v.col is not None))  # always
        common.fingerprint.restype = ctypes.c_uint64
        common.fingerprint.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
        self._shapes: dict[str, torch.Size] = {}  # of the weights, at the first packing
        self._kept: dict[Any, Packed] = {}

    def __call__(self, weights: Mapping[str, Tensor], split: Split) -> Packed:
        """The packed weights, cached if an earlier call had the same contents."""
        used = [weights[name] for name in self.used]
        if not all(map(Tensor.is_contiguous, used)):
            return self._packed(weights, split)
        if split.in_place:
            copied = [weights[name] for name in self.copied]
            numbers = self.prepare_fingerprint(copied, 1)() if copied else 0
            told = *map(Tensor.data_ptr, used), *map(_KIND, used), numbers
        else:
            told = self.prepare_fingerprint(used, split.threads)()
        key = told, split
        found = self._kept.get(key)
        if found is None:
            room = max(1, min(REMEMBERED, REMEMBERED_BYTES // (self.bytes + 1)))
            for oldest in list(self._kept)[: 1 - room or None]:
                self._kept.pop(oldest, None)
            found = self._kept[key] = self._packed(weights, split)
        return found

    def prepare_fingerprint(self, weights: Sequence[Tensor], threads: int) -> Callable[[], int]:
        """A function that returns a hash of the contents of contiguous weights, as they are when it is called."""
        words = self.dtype.itemsize // 4
        flat = [number for w in weights for number in (w.data_ptr(), w.numel() * words)]
        threads = threads if self.bytes > WORTH_THREADS else 1
        return functools.partial(self.common.fingerprint, struct.pack(f"{len(flat)}q", *flat), len(weights), threads)

    # ------------------------------------------------------------------------------------------ packing

    def _packed(self, weights: Mapping[str, Tensor], split: Split) -> Packed:
        self._check_kinds(weights)
        tiles = self.tiles(split)
        pieces = [_pieces(weights, lanes) for lanes in self.tables.packs]
        if split.in_place:
            copies = [_copy(vector, weights) for vector in self.tables.vectors]
            pairs = zip(self.tables.vectors, copies, strict=True)
            places = _listed(_place(v, weights) if copy is None else copy.data_ptr() for v, copy in pairs)
            listed = _listed(map(ctypes.addressof, pieces))
            return Packed(split, tiles, (places[1], listed[1]), (pieces, copies, places, listed))
        packs, vectors = self._matrices(pieces, tiles, split.threads), self._vectors(weights)
        places, listed = _listed(map(Tensor.data_ptr, vectors)), _listed(map(Tensor.data_ptr, packs))
        return Packed(split, tiles, (places[1], listed[1]), (packs, vectors, places, listed))

    def _check_kinds(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse weights whose `.data` was replaced by another shape or dtype: kernels would read past their end, or
        other numbers."""
        for name in self.used:
            if weights[name].dtype is not self.dtype:
                raise DtypeError(name, weights[name].dtype, f"{self.dtype}, as when it was planned")
        for name, shape in self._shapes.items():
            if weights[name].shape != shape:
                raise ShapeError(name, f"shape {tuple(weights[name].shape)}", f"{tuple(shape)}, as when it was planned")
        self._shapes = self._shapes or {name: weights[name].shape for name in self.used}

    def _matrices(self, pieces: list[ctypes.Array], tiles: list[int], threads: int) -> list[Tensor]:
        width = ctypes.c_int64.in_dll(self.common, "vector_width").value
        packs, made = (_Pack * max(1, len(pieces)))(), []
        for i, (lanes, group) in enumerate(zip(self.tables.packs, self.tables.pack_group, strict=True)):
            wide, depth = self.tables.groups[group].width, sum(m.deep for m in lanes[0])
            out = allocator.empty((len(lanes) * -(-wide // width) * width * depth,), self.dtype)
            assert out.data_ptr() % 64 == 0, "torch's allocator aligns to 64 bytes"
            packs[i] = _Pack(ctypes.addressof(pieces[i]), len(lanes), len(lanes[0]), wide, tiles[group], out.data_ptr())
            made.append(out)
        self.common.pack(packs, ctypes.c_int64(len(pieces)), ctypes.c_int64(threads))
        return made

    def _vectors(self, weights: Mapping[str, Tensor]) -> list[Tensor]:
        if not self.tables.vectors:
            return []
        sizes = [vector.rows[1] - vector.rows[0] for vector in self.tables.vectors]
        return list(torch.cat([vector.of(weights) for vector in self.tables.vectors]).split(sizes))


# ---------------------------------------------------------------------------------------------------- places


class _Piece(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p)] + [
        (name, ctypes.c_int64)
        for name in ("unit", "deep", "depth", "first_unit", "block_units", "first_depth", "block_depth")
    ]


class _Pack(ctypes.Structure):
    _fields_ = [
        ("pieces", ctypes.c_void_p),
        ("lanes", ctypes.c_int64),
        ("segments", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("tile", ctypes.c_int64),
        ("out", ctypes.c_void_p),
    ]


def _pieces(weights: Mapping[str, Tensor], lanes: Sequence[Sequence[Matrix]]) -> ctypes.Array:
    """Addresses and strides of the matrices of all lanes, segment by segment."""
    return (_Piece * (len(lanes) * len(lanes[0])))(*(_piece(weights, m) for lane in lanes for m in lane))


def _piece(weights: Mapping[str, Tensor], matrix: Matrix) -> tuple[int, ...]:
    weight = weights[matrix.weight]
    down, across = weight.stride()
    first = weight.data_ptr() + (matrix.rows[0] * down + matrix.cols[0] * across) * weight.element_size()
    strides = (across, down) if matrix.flipped else (down, across)
    return (first, *strides, matrix.deep, *matrix.bands)


def _copy(vector: Vector, weights: Mapping[str, Tensor]) -> Tensor | None:
    """A contiguous copy of a vector; None if it is contiguous already."""
    apart = vector.col is not None or not weights[vector.weight].is_contiguous()
    return vector.of(weights).contiguous() if apart else None


def _place(vector: Vector, weights: Mapping[str, Tensor]) -> int:
    weight = weights[vector.weight]
    return weight.data_ptr() + vector.rows[0] * weight.element_size()


def _listed(addresses: Iterable[int]) -> tuple[bytes, int]:
    content = struct.pack(f"{len(listed := [*addresses, 0])}q", *listed)
    return content, address_of(content)


def address_of(content: bytes) -> int:
    address = ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value
    assert address is not None
    return address
