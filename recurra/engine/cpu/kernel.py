"""A compiled program: its tables, the split into threads, and the fixed part of its calls."""

import ctypes
import functools
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
from .codegen import KERNELS, Rendered, products_source, render
from .index_tables import IndexTables, LiteralTables
from .layout import Layout, Table
from .packing import Packed, Packing, Split

REALS = {torch.float32: "float", torch.float64: "double"}
_HOME = os.getpid()

# Multiply-adds of a call below which waking threads takes longer than the work they would share.
WORTH_THREADS = 400_000
# Threads share the units, not the batch, if each would have fewer rows than this and the weights exceed its cache.
FEW_ROWS, CACHE = 12, 1 << 20
# Threads that share the units have several barriers per step. With fewer multiply-adds per step these dominate; and on
# a busy machine a barrier can take as long as a time slice of another process.
WORTH_BARRIERS = 16_000
# Parts of the batch per thread, work items per part, blocks of rows per part if the weights fill the cache, and
# multiply-adds per step from which on a part, or work stealing, pays.
PARTS, ITEMS_PER_PART, BLOCKS_PER_PART, WORTH_STEALING = 2, 16, 4, 300_000
# Vectors of a step, of all rows, that a thread with some of the columns has at least: a step of fewer is all overhead.
VECTORS_PER_SHARE = 8
MOST_TILES = 1 << 24  # that work stealing can count
# A single row reads unpacked weights if their depth is at least this; so many tiles are then merged into one.
DEEP, SINGLE_ROW_TILES = 48, 2


def threads_here() -> int:
    """The number of threads of a call: torch's; one in a forked child. OpenMP's threads stay in the parent, and a child
    that asks for them waits forever: so do torch's own operations, unless torch is told to use one thread, too."""
    threads = torch.get_num_threads()
    if threads == 1 or os.getpid() == _HOME:
        return threads
    torch.set_num_threads(1)
    return 1


@functools.cache
def free_cores() -> ctypes.CDLL:
    """The library that limits threads to the cores that other processes leave free."""
    return compiler.load((KERNELS / "free_cores.h").read_text(encoding="utf-8"))


def load_products(dtype: torch.dtype) -> ctypes.CDLL:
    """The library of products.h."""
    library = compiler.load(products_source(REALS[dtype]))
    address = ctypes.cast(free_cores().free_threads, ctypes.c_void_p)
    ctypes.c_void_p.in_dll(library, "free_threads").value = address.value
    return library


# The fields of `Call` in kernels/loop.h, after the six that differ from call to call.
FIXED = (
    "steps",
    "threads",
    "by_unit",
    "work_stealing",
    "parts",
    "steps_per_item",
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
    "exceeds_cache",
    "multiplies",
    "in_place",
    "free_threads",
    "maps",
    "literals",
    "by_column",
)


class Kernel:
    """A program compiled for one dtype, for any batch size and length."""

    def __init__(self, program: Program, dtype: torch.dtype, backward: bool, as_written: bool = False):
        """`as_written`: without contraction, so that a value that is computed again has the same bits."""
        self.schedule: Schedule = schedule(program, nested=True)
        self.rendered: Rendered = render(self.schedule, backward)
        self.dtype, self.backward = dtype, backward
        self.library = compiler.load(self.rendered.source(REALS[dtype]), *([compiler.AS_WRITTEN] if as_written else []))
        self.common = load_products(dtype)
        self.vector = ctypes.c_int64.in_dll(self.common, "vector_width").value
        self.tile = ctypes.c_int64.in_dll(self.common, "tile_width").value
        self.rows = ctypes.c_int64.in_dll(self.common, "tile_rows").value
        self.multiplies = ctypes.addressof(ctypes.c_void_p.in_dll(self.common, "multiplies"))
        self.in_place = ctypes.cast(self.common.in_place, ctypes.c_void_p).value
        self.free_threads = ctypes.c_void_p.in_dll(self.common, "free_threads").value
        self.library.run.argtypes, self.library.run.restype = [ctypes.c_char_p], None
        self.tables = self.rendered.tables
        self.reach = max(self.tables.lags, default=0)
        self._fix_tables()

    def _fix_tables(self) -> None:
        """Compute the tables that depend on the sizes of the cell alone."""
        tables, depths = self.tables, {}
        for i, lanes in enumerate(tables.packs):
            for q, matrix in enumerate(lanes[0]):
                depths["depth", i, q] = matrix.deep
                depths |= {("band", i, q, n): value for n, value in enumerate(matrix.bands)}
        offsets = [depths[key] if key[0] in ("depth", "band") else key[2] for key in tables.offsets]  # pyrefly: ignore
        widths = [g.heads * self.vector if g.axes else g.width for g in tables.groups]
        self.widths = torch.tensor(widths, dtype=torch.int64)
        self.offsets = torch.tensor([*offsets, 0], dtype=torch.int64)
        self.constants = torch.tensor([*tables.constants, 0.0], dtype=self.dtype)
        padded = [self._padded(node.width) for _, node in self.schedule.sums]
        self.sum_offsets = torch.tensor([sum(padded[:i]) for i in range(len(padded) + 1)], dtype=torch.int64)
        self.sums_stride = sum(padded)
        self.maps, self.literals = IndexTables(tables.maps, self.vector), LiteralTables(tables.literals, self.dtype)
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
        if rows < threads and self.schedule.has_independent_columns:
            shares = min(threads, self._vectors * rows // VECTORS_PER_SHARE)
            return Split(shares, False, alone, by_column=True) if shares > 1 else Split(1, False, alone)
        few = rows < threads or (rows < FEW_ROWS * threads and self.weight_bytes > CACHE)
        if few and self.multiplications * rows < WORTH_BARRIERS:
            return Split(min(threads, rows), False, alone)
        return Split(threads, few, alone)

    @property
    def _vectors(self) -> int:
        """Vectors of the widest group."""
        return max(-(-group.width // self.vector) for group in self.tables.groups)

    def _parts(self, split: Split, rows: int) -> int:
        """Parts of the batch: more than threads, so that faster threads run more of them, but with enough rows each to
        amortise reading the weights."""
        if split.by_unit or split.threads == 1:
            return 1
        if split.by_column:
            return split.threads
        blocks = BLOCKS_PER_PART if self.weight_bytes > CACHE // 2 else -(-WORTH_STEALING // (self.work * self.rows))
        fewest = self.rows * blocks
        each = -(-rows // (PARTS * split.threads * fewest)) * fewest
        return max(split.threads, -(-rows // each))

    def exceeds_cache(self, split: Split) -> bool:
        """Whether the weights of a thread exceed its cache."""
        return self.weight_bytes // (split.threads if split.by_unit else 1) > CACHE

    def _tiles(self, split: Split) -> list[int]:
        """Vectors per tile of each group: few, so that the weights of a tile stay cached for all rows, but enough to
        fill the registers. For a single row tiles are merged, unless the weights exceed the cache: tiles are then
        visited in alternating order."""
        found = []
        for group in self.tables.groups:
            if group.axes:
                found.append(1)
                continue
            vectors, tile = -(-group.width // self.vector), 1
            while tile < self.tile and any(len(lanes) * tile % self.tile for _, lanes in group.classes()):
                tile *= 2
            tile = tile if group.lanes else self.tile
            if split.in_place:
                tile = self.tile if self.exceeds_cache(split) else SINGLE_ROW_TILES * self.tile
            shared = split.by_unit or split.by_column
            found.append(min(tile, -(-vectors // split.threads) if shared else vectors))
        return found

    # ------------------------------------------------------------------------------------------ the call

    def totals(self, sums: Tensor | None) -> Tensor:
        """The sums over all rows, concatenated as in `schedule.sums`, from the scratch memory of a call."""
        if sums is None:
            return self.constants[:0]
        totals = sums[self.sums_stride : 2 * self.sums_stride]
        return totals if self.dense_sums is None else totals[self.dense_sums]

    def _worth_stealing(self, split: Split, layout: Layout, tiles: list[int]) -> bool:
        most = max(
            -(-group.width // self.vector) // tile for group, tile in zip(self.tables.groups, tiles, strict=True)
        )
        return self.work * layout.rows > split.threads * WORTH_STEALING and most < MOST_TILES

    def fixed(self, packed: Packed, layout: Layout) -> "Fixed":
        """Build the fixed part of calls with this layout and split."""
        split = packed.split
        parts = self._parts(split, layout.rows)
        bounds = layout.bounds(1 if split.by_column else parts)
        spans = layout.spans(bounds, self.backward)
        if split.by_column:  # every part has all rows
            spans = spans.repeat(parts, 1)
        active = layout.table(Layout.active_backward if self.backward else Layout.active_rows, reach=self.reach)
        shares = split.threads if split.by_unit else 1
        tiles = torch.tensor(packed.tiles, dtype=torch.int64)
        values = {
            "steps": layout.steps,
            "threads": split.threads,
            "by_unit": int(split.by_unit),
            "work_stealing": int(split.by_unit and self._worth_stealing(split, layout, packed.tiles)),
            "parts": parts,
            "steps_per_item": -(-layout.steps // ITEMS_PER_PART) if parts > 1 else layout.steps,
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
            "exceeds_cache": int(self.exceeds_cache(split)),
            "multiplies": self.multiplies,
            "in_place": self.in_place if split.in_place else 0,
            "free_threads": self.free_threads,
            "maps": self.maps.address,
            "literals": self.literals.address,
            "by_column": int(split.by_column),
        }
        numbers = struct.pack(f"{len(FIXED)}q", *(values[name] for name in FIXED))
        count = len(self.schedule.rowsums) * shares * layout.rows
        return Fixed(
            numbers,
            sums=parts * 2 * self.sums_stride,
            rowsums=self._padded(count) + count * self.vector,
            sync=0 if split.threads == 1 else 16 * split.threads if split.by_unit else 8 + 2 * parts,
            alive=(bounds, spans, active, tiles),
        )


FOUR, BEFORE = 4, 3  # numbers of a buffer; index of the address of the values before the first step


class Binding:
    """The buffer table of a call without addresses: four numbers per buffer."""

    def __init__(
        self, kernel: Kernel, tables: Mapping[BufferRef, Table], alike: Mapping[BufferRef, Tensor] | None = None
    ):
        """`alike`: constant buffers whose single row serves all rows."""
        self.numbers, self.buffers, self.tables = array("q"), list(kernel.tables.buffers), dict(tables)
        self.alike = alike or {}
        for buffer in self.buffers:
            row, stride = self.alike.get(buffer), kernel.schedule.buffers[buffer].width
            address, stride = (0, stride) if row is None else (row.data_ptr(), 0)
            self.numbers.extend((address, stride, tables[buffer].pointer, 0))

    def place(self, buffer: BufferRef) -> int:
        """Index of a buffer's address in `numbers`."""
        return FOUR * self.buffers.index(buffer)


@dataclass(frozen=True)
class Fixed:
    """The fixed part of calls with one layout and one split."""

    numbers: bytes
    sums: int  # elements of scratch memory per call
    rowsums: int
    sync: int
    alive: tuple  # keeps alive what the numbers point to
