"""One compiled program and how to call it: tables, packed weights, threads."""

import ctypes
import os
import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ..ir.buffers import BufferRef
from ..plan.program import Program
from ..plan.schedule import Schedule, schedule
from . import compiler
from .codegen import Rendered, products_source, render
from .layout import Layout, Table
from .packing import Packed, Packing, Split

REALS = {torch.float32: "float", torch.float64: "double"}
_HOME = os.getpid()  # the process whose threads exist; a forked child has none, and its OpenMP would wait for them

# Below this much work a call, in multiply-adds, waking threads takes longer than what they would share.
WORTH_THREADS = 400_000
# Threads share the units, not the batch, when each would have fewer rows than this and the weights outgrow its cache.
FEW_ROWS, CACHE = 12, 1 << 20
# Threads that share the units meet several times a step. With fewer multiply-adds in it that takes longest of all;
# and where other processes want the cores too, a meeting may take as long as the system lets one of them run.
WORTH_MEETING = 16_000
# Parts of a batch for each thread, turns in which a part is done, blocks of rows in a part if weights fill the cache,
# and multiply-adds a step without which a part, or that threads help each other out, is not worth while.
PARTS, STRETCHES, FAR_BLOCKS, WORTH_HELP = 2, 16, 4, 300_000
# A single row reads the weights where they are if they are as deep as this, and so many tiles of them are made one.
DEEP, ALONE = 48, 2


def threads_here() -> int:
    """As many as torch uses; one in a forked child."""
    return torch.get_num_threads() if os.getpid() == _HOME else 1


# The fields of `Call` in kernels/loop.h, after the six that differ from call to call.
FIXED = (
    "steps",
    "threads",
    "by_unit",
    "helping",
    "parts",
    "stretch",
    "bounds",
    "spans",
    "active",
    "widths",
    "tiles",
    "offsets",
    "constants",
    "sums_stride",
    "sum_offsets",
    "rowsum_parts",
    "rows",
    "far",
    "multiplies",
    "in_place",
)


class Kernel:
    """A program, compiled for one dtype. Nothing in it depends on the batch or the length."""

    def __init__(self, program: Program, dtype: torch.dtype, backward: bool, as_written: bool = False):
        """`as_written`: what backward computes again from what forward kept must come out as it did there."""
        self.schedule: Schedule = schedule(program)
        self.rendered: Rendered = render(self.schedule, backward)
        self.dtype, self.backward = dtype, backward
        self.library = compiler.load(self.rendered.source(REALS[dtype]), *([compiler.AS_WRITTEN] if as_written else []))
        self.common = compiler.load(products_source(REALS[dtype]))
        self.vector = ctypes.c_int64.in_dll(self.common, "vector_width").value
        self.tile = ctypes.c_int64.in_dll(self.common, "tile_width").value
        self.rows = ctypes.c_int64.in_dll(self.common, "tile_rows").value
        self.multiplies = ctypes.addressof(ctypes.c_void_p.in_dll(self.common, "multiplies"))
        self.in_place = ctypes.cast(self.common.in_place, ctypes.c_void_p).value
        self.library.run.argtypes, self.library.run.restype = [ctypes.c_char_p], None
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
        self.work, self.multiplications = self.schedule.work(), self.schedule.multiplications()
        self.deep = self.multiplications >= DEEP * sum(lane.width for group in tables.groups for lane in group.lanes)
        dense = [
            at + i
            for at, (_, n) in zip(self.sum_offsets.tolist(), self.schedule.sums, strict=False)
            for i in range(n.width)
        ]
        self.dense_sums = None if len(dense) == self.sums_stride else torch.tensor(dense, dtype=torch.int64)
        self.pack = Packing(tables, self.common, self.dtype, self._tiles)
        self.weight_bytes = self.pack.bytes

    def _padded(self, width: int) -> int:
        return -(-width // self.vector) * self.vector

    # ------------------------------------------------------------------------------------------ threads

    def split(self, layout: Layout, rows: int) -> Split:
        threads, alone = threads_here(), rows == 1 and self.deep
        if threads == 1 or self.work * layout.total < WORTH_THREADS:
            return Split(1, False, alone)
        few = rows < threads or (rows < FEW_ROWS * threads and self.weight_bytes > CACHE)
        if few and self.multiplications * rows < WORTH_MEETING:
            return Split(min(threads, rows), False, alone)
        return Split(threads, few, alone)

    def _parts(self, split: Split, rows: int) -> int:
        """Into how many the batch is cut: a few more than there are threads, so that the faster ones do more of them;
        but rows enough in each to make reading the weights worth while."""
        if split.by_unit or split.threads == 1:
            return 1
        blocks = FAR_BLOCKS if self.weight_bytes > CACHE // 2 else -(-WORTH_HELP // (self.work * self.rows))
        fewest = self.rows * blocks
        each = -(-rows // (PARTS * split.threads * fewest)) * fewest
        return max(split.threads, -(-rows // each))

    def far(self, split: Split) -> bool:
        """Whether a thread's weights outgrow its cache."""
        return self.weight_bytes // (split.threads if split.by_unit else 1) > CACHE

    def _tiles(self, split: Split) -> list[int]:
        """Vectors a tile of each group: few, so that the weights of one stay in cache while the rows pass by, but
        enough to fill the registers. Where a single row passes by, more of them lie side by side; but if they outgrow
        the cache, tiles are what is taken in turn from either end."""
        found = []
        for group in self.tables.groups:
            vectors, tile = -(-group.width // self.vector), 1
            while tile < self.tile and any(len(lanes) * tile % self.tile for _, lanes in group.classes()):
                tile *= 2
            tile = tile if group.lanes else self.tile
            if split.in_place:
                tile = self.tile if self.far(split) else ALONE * self.tile
            found.append(min(tile, -(-vectors // split.threads) if split.by_unit else vectors))
        return found

    # ------------------------------------------------------------------------------------------ the call

    def totals(self, sums: Tensor | None) -> Tensor:
        """The sums over all rows, one after the other as in `schedule.sums`, from what a call leaves of them."""
        if sums is None:
            return self.constants[:0]
        totals = sums[self.sums_stride : 2 * self.sums_stride]
        return totals if self.dense_sums is None else totals[self.dense_sums]

    def fixed(self, packed: Packed, layout: Layout) -> "Fixed":
        """What every call with this layout and these threads has in common."""
        split = packed.split
        parts = self._parts(split, layout.rows)
        bounds = layout.bounds(parts)
        spans = layout.spans(bounds, self.backward)
        active = layout.table(Layout.active_backward if self.backward else Layout.active_rows, reach=self.reach)
        shares = split.threads if split.by_unit else 1
        tiles = torch.tensor(packed.tiles, dtype=torch.int64)
        values = {
            "steps": layout.steps,
            "threads": split.threads,
            "by_unit": int(split.by_unit),
            "helping": int(split.by_unit and self.work * layout.rows > split.threads * WORTH_HELP),
            "parts": parts,
            "stretch": -(-layout.steps // STRETCHES) if parts > 1 else layout.steps,
            "bounds": bounds.data_ptr(),
            "spans": spans.data_ptr(),
            "active": active.pointer,
            "widths": self.widths.data_ptr(),
            "tiles": tiles.data_ptr(),
            "offsets": self.offsets.data_ptr(),
            "constants": self.constants.data_ptr(),
            "sums_stride": self.sums_stride,
            "sum_offsets": self.sum_offsets.data_ptr(),
            "rowsum_parts": shares,
            "rows": layout.rows,
            "far": int(self.far(split)),
            "multiplies": self.multiplies,
            "in_place": self.in_place if split.in_place else 0,
        }
        numbers = struct.pack(f"{len(FIXED)}q", *(values[name] for name in FIXED))
        count = len(self.schedule.rowsums) * shares * layout.rows
        return Fixed(
            numbers,
            sums=parts * 2 * self.sums_stride,
            rowsums=self._padded(count) + count * self.vector,
            board=0 if split.threads == 1 else 16 * split.threads if split.by_unit else 8 + 2 * parts,
            alive=(bounds, spans, active, tiles),
        )


FOUR, BEFORE = 4, 3  # numbers of a buffer, and which of them says where what was before the first step is


class Binding:
    """What a call says of a kernel's buffers but for their addresses: four numbers each."""

    def __init__(
        self, kernel: Kernel, tables: Mapping[BufferRef, Table], alike: Mapping[BufferRef, Tensor] | None = None
    ):
        """`alike`: buffers of one row that stands for all, which is always the same."""
        self.numbers, self.buffers, self.tables = array("q"), list(kernel.tables.buffers), dict(tables)
        self.alike = alike or {}
        for buffer in self.buffers:
            row, stride = self.alike.get(buffer), kernel.schedule.buffers[buffer].width
            address, stride = (0, stride) if row is None else (row.data_ptr(), 0)
            self.numbers.extend((address, stride, tables[buffer].pointer, 0))

    def place(self, buffer: BufferRef) -> int:
        """Where among the numbers the address of a buffer is."""
        return FOUR * self.buffers.index(buffer)


@dataclass(frozen=True)
class Fixed:
    """What calls with one layout and one split have in common."""

    numbers: bytes
    sums: int  # how many numbers a call needs for each
    rowsums: int
    board: int
    alive: tuple  # what the numbers point to
