"""One compiled program and how to call it: tables, packed weights, threads."""

import ctypes
import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from . import build, workspace
from .layout import Layout, Table
from .nodes import Matrix, Vector
from .plan import Program
from .render import Rendered, products_source, render
from .schedule import Schedule, schedule

REALS = {torch.float32: "float", torch.float64: "double"}
_HOME = os.getpid()  # the process whose threads exist; a forked child has none, and its OpenMP would wait for them

# Below this many multiply-adds a call, waking threads takes longer than what they would share.
WORTH_THREADS = 400_000
# Threads share the units, not the batch, when each would have fewer rows than this and the weights outgrow its cache.
FEW_ROWS, CACHE = 12, 1 << 20


class _Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("before", ctypes.c_void_p),
    ]


class _Piece(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p if name == "data" else ctypes.c_int64) for name in ("data", "unit", "deep", "depth")
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


_NUMBERS = {"steps", "threads", "by_unit", "parts", "sums_stride", "rowsum_parts", "rows"}


class _Call(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64 if name in _NUMBERS else ctypes.c_void_p)
        for name in [
            "steps",
            "threads",
            "by_unit",
            "parts",
            "bounds",
            "active",
            "buffers",
            "widths",
            "tiles",
            "offsets",
            "constants",
            "vectors",
            "packs",
            "sums",
            "sums_stride",
            "sum_offsets",
            "rowsums",
            "rowsum_parts",
            "rows",
            "meeting",
            "multiplies",
        ]
    ]


@dataclass(frozen=True)
class Bound:
    """A buffer bound to memory."""

    data: Tensor
    table: Table
    before: Tensor | None = None
    stride: int | None = None


@dataclass(frozen=True)
class Split:
    """How threads share a call."""

    threads: int
    by_unit: bool


class Kernel:
    """A program, compiled for one dtype. Nothing in it depends on the batch or the length."""

    def __init__(self, program: Program, dtype: torch.dtype, backward: bool):
        self.schedule: Schedule = schedule(program)
        self.rendered: Rendered = render(self.schedule, backward)
        self.dtype, self.backward = dtype, backward
        self.library = build.load(self.rendered.source(REALS[dtype]))
        self.common = build.load(products_source(REALS[dtype]))
        self.vector = ctypes.c_int64.in_dll(self.common, "vector_width").value
        self.tile = ctypes.c_int64.in_dll(self.common, "tile_width").value
        self.multiplies = ctypes.addressof(ctypes.c_void_p.in_dll(self.common, "multiplies"))
        self.tables = self.rendered.tables
        self.reach = max(self.tables.lags, default=0)
        self._fix_tables()

    def _fix_tables(self) -> None:
        """What depends on the sizes of the cell alone."""
        tables, depths = self.tables, {}
        for i, lanes in enumerate(tables.packs):
            for q, matrix in enumerate(lanes[0]):
                depths["depth", i, q] = matrix.deep
        offsets = [depths[key] if key[0] == "depth" else key[2] for key in tables.offsets]  # pyrefly: ignore
        self.widths = torch.tensor([g.width for g in tables.groups], dtype=torch.int64)
        self.offsets = torch.tensor([*offsets, 0], dtype=torch.int64)
        self.constants = torch.tensor([*tables.constants, 0.0], dtype=self.dtype)
        padded = [self._padded(node.width) for _, node in self.schedule.sums]
        self.sum_offsets = torch.tensor([sum(padded[:i]) for i in range(len(padded) + 1)], dtype=torch.int64)
        self.sums_stride = sum(padded)
        self.weight_bytes = sum(m.wide * m.deep for m in self.schedule.matrices()) * self.dtype.itemsize

    def _padded(self, width: int) -> int:
        return -(-width // self.vector) * self.vector

    # ------------------------------------------------------------------------------------------ threads

    def split(self, layout: Layout, rows: int) -> Split:
        threads = torch.get_num_threads() if os.getpid() == _HOME else 1
        if threads == 1 or self.schedule.multiplications() * layout.total < WORTH_THREADS:
            return Split(1, False)
        few = rows < threads or (rows < FEW_ROWS * threads and self.weight_bytes > CACHE)
        return Split(threads, few)

    def _tiles(self, split: Split) -> list[int]:
        """Vectors a tile of each group: few, so that the weights of one stay in cache while the rows pass by, but
        enough to fill the registers."""
        found = []
        for group in self.tables.groups:
            vectors, tile = -(-group.width // self.vector), 1
            while tile < self.tile and any(len(lanes) * tile % self.tile for _, lanes in group.classes()):
                tile *= 2
            tile = tile if group.lanes else self.tile
            found.append(min(tile, -(-vectors // split.threads) if split.by_unit else vectors))
        return found

    # ------------------------------------------------------------------------------------------ weights

    def pack(self, weights: Mapping[str, Tensor], split: Split) -> "Packed":
        """Copy the weights into the order in which the products read them."""
        tiles = self._tiles(split)
        outs, packs, alive = [], (_Pack * max(1, len(self.tables.packs)))(), []
        for i, lanes in enumerate(self.tables.packs):
            group = self.tables.pack_group[i]
            width = self.tables.groups[group].width
            depth = sum(m.deep for m in lanes[0])
            out = workspace.empty((len(lanes) * self._padded(width) * depth,), self.dtype)
            pieces = (_Piece * (len(lanes) * len(lanes[0])))(*(_piece(weights, m) for lane in lanes for m in lane))
            address = ctypes.addressof(pieces)
            packs[i] = _Pack(address, len(lanes), len(lanes[0]), width, tiles[group], out.data_ptr())
            outs.append(_aligned(out))
            alive.append(pieces)
        self.common.pack(packs, ctypes.c_int64(len(self.tables.packs)), ctypes.c_int64(split.threads))
        return Packed(split, tiles, outs, self._vectors(weights))

    def _vectors(self, weights: Mapping[str, Tensor]) -> list[Tensor]:
        widths = [v.rows[1] - v.rows[0] for v in self.tables.vectors]
        ends = [0]
        for width in widths:
            ends.append(ends[-1] + self._padded(width))
        flat = torch.zeros(ends[-1] + 1, dtype=self.dtype)
        parts = [flat[at : at + width] for at, width in zip(ends, widths, strict=False)]
        for part, vector in zip(parts, self.tables.vectors, strict=True):
            part.copy_(_numbers(weights, vector))
        return parts

    # ------------------------------------------------------------------------------------------ the call

    def run(self, packed: "Packed", layout: Layout, buffers: Mapping[str, Bound]) -> Tensor:
        """Run the loop over time. Gives the sums over all rows, one after the other as in `schedule.sums`."""
        split = packed.split
        parts = split.threads if not split.by_unit else 1
        bounds = layout.bounds(parts)
        active = layout.table("active", int(self.backward), self.reach)
        sums = torch.zeros(max(split.threads, parts), 2, self.sums_stride, dtype=self.dtype)
        shares = split.threads if split.by_unit else 1
        rowsums = torch.zeros(len(self.schedule.rowsums) * shares * layout.rows, dtype=self.dtype)
        bound = [buffers[name] for name in self.tables.buffers]
        meeting, tiles = torch.zeros(2, dtype=torch.int64), torch.tensor(packed.tiles, dtype=torch.int64)
        array = (_Buffer * len(bound))(*(_entry(b) for b in bound))
        vectors = (ctypes.c_void_p * (len(packed.vectors) + 1))(*(v.data_ptr() for v in packed.vectors))
        packs = (ctypes.c_void_p * (len(packed.matrices) + 1))(*(m.data_ptr() for m in packed.matrices))
        call = _Call(
            steps=layout.steps,
            threads=split.threads,
            by_unit=int(split.by_unit),
            parts=parts,
            bounds=bounds.data_ptr(),
            active=active.pointer,
            buffers=ctypes.addressof(array),
            widths=self.widths.data_ptr(),
            tiles=tiles.data_ptr(),
            offsets=self.offsets.data_ptr(),
            constants=self.constants.data_ptr(),
            vectors=ctypes.addressof(vectors),
            packs=ctypes.addressof(packs),
            sums=sums.data_ptr(),
            sums_stride=self.sums_stride,
            sum_offsets=self.sum_offsets.data_ptr(),
            rowsums=rowsums.data_ptr(),
            rowsum_parts=shares,
            rows=layout.rows,
            meeting=meeting.data_ptr(),
            multiplies=self.multiplies,
        )
        self.library.run(ctypes.byref(call))
        totals = sums[:, 1].sum(0)
        at = self.sum_offsets.tolist()
        parts = [totals[at[i] : at[i] + node.width] for i, (_, node) in enumerate(self.schedule.sums)]
        return torch.cat(parts) if parts else totals


@dataclass(frozen=True)
class Packed:
    split: Split
    tiles: list[int]
    matrices: list[Tensor]
    vectors: list[Tensor]


def _aligned(tensor: Tensor) -> Tensor:
    assert tensor.data_ptr() % 64 == 0, "torch's allocator aligns to 64 bytes"
    return tensor


def _entry(bound: Bound) -> tuple[int, int, int, int | None]:
    stride = bound.data.shape[-1] if bound.stride is None else bound.stride
    return bound.data.data_ptr(), stride, bound.table.pointer, None if bound.before is None else bound.before.data_ptr()


def _piece(weights: Mapping[str, Tensor], matrix: Matrix) -> tuple[int, int, int, int]:
    weight = weights[matrix.weight]
    down, across = weight.stride()
    first = weight.data_ptr() + (matrix.rows[0] * down + matrix.cols[0] * across) * weight.element_size()
    return (first, across, down, matrix.deep) if matrix.flipped else (first, down, across, matrix.deep)


def _numbers(weights: Mapping[str, Tensor], vector: Vector) -> Tensor:
    low, high = vector.rows
    weight = weights[vector.weight]
    return weight[low:high, vector.col] if vector.col is not None else weight.reshape(-1)[low:high]
