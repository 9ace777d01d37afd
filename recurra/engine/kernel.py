"""One compiled program and how to call it: tables, packed weights, threads."""

import ctypes
import os
import struct
from array import array
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ShapeError
from . import build, workspace
from .layout import Layout, Table
from .nodes import Matrix
from .plan import Program
from .render import Rendered, products_source, render
from .schedule import Schedule, schedule

REALS = {torch.float32: "float", torch.float64: "double"}
_HOME = os.getpid()  # the process whose threads exist; a forked child has none, and its OpenMP would wait for them

# Below this many multiply-adds a call, waking threads takes longer than what they would share.
WORTH_THREADS = 400_000
# Threads share the units, not the batch, when each would have fewer rows than this and the weights outgrow its cache.
FEW_ROWS, CACHE = 12, 1 << 20
# Threads that share the units meet several times a step. With fewer multiply-adds in it that takes longest of all;
# and where other processes want the cores too, a meeting may take as long as the system lets one of them run.
WORTH_MEETING = 16_000
# Parts of a batch for each thread, turns in which a part is done, blocks of rows in a part if weights fill the cache,
# and multiply-adds a step without which a part, or that threads help each other out, is not worth while.
PARTS, STRETCHES, FAR_BLOCKS, WORTH_HELP = 2, 16, 4, 300_000
REMEMBERED, REMEMBERED_BYTES = 4, 1 << 25  # packed weights a kernel keeps: of so many calls, and no more than this


def threads_here() -> int:
    """As many as torch uses; one in a forked child."""
    return torch.get_num_threads() if os.getpid() == _HOME else 1


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
)


class Split(NamedTuple):
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
        self.rows = ctypes.c_int64.in_dll(self.common, "tile_rows").value
        self.multiplies = ctypes.addressof(ctypes.c_void_p.in_dll(self.common, "multiplies"))
        self.common.fingerprint.restype = ctypes.c_uint64
        self.common.fingerprint.argtypes = [ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64]
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
        self.work = self.schedule.multiplications()
        taken = {v.weight: None for v in tables.vectors} | {m.weight: None for m in self.schedule.matrices()}
        self._used, self._packed = tuple(taken), dict[tuple[int, Split], Packed]()
        self._numbers = struct.Struct(f"{2 * len(taken)}q")  # where each weight is, and how many words it has
        self._shapes: dict[str, torch.Size] = {}  # of the weights, when they were first packed
        dense = [
            at + i
            for at, (_, n) in zip(self.sum_offsets.tolist(), self.schedule.sums, strict=False)
            for i in range(n.width)
        ]
        self.dense_sums = None if len(dense) == self.sums_stride else torch.tensor(dense, dtype=torch.int64)
        self.weight_bytes = sum(m.wide * m.deep for m in self.schedule.matrices()) * self.dtype.itemsize

    def _padded(self, width: int) -> int:
        return -(-width // self.vector) * self.vector

    # ------------------------------------------------------------------------------------------ threads

    def split(self, layout: Layout, rows: int) -> Split:
        threads = threads_here()
        if threads == 1 or self.work * layout.total < WORTH_THREADS:
            return Split(1, False)
        few = rows < threads or (rows < FEW_ROWS * threads and self.weight_bytes > CACHE)
        if few and self.work * rows < WORTH_MEETING:
            return Split(min(threads, rows), False)
        return Split(threads, few)

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
        """The weights in the order in which the products read them; those of an earlier call if they are the same.

        Whether they are is seen from the numbers themselves: a tensor's version counter does not notice what is
        written through `.data` or an array that shares its memory.
        """
        mark = self._mark(weights, split.threads if self.weight_bytes > CACHE else 1)
        if mark is None:
            return self._pack(weights, split)
        key = (mark, split)
        packed = self._packed.get(key)
        if packed is None:
            room = max(1, min(REMEMBERED, REMEMBERED_BYTES // (self.weight_bytes + 1)))
            for oldest in list(self._packed)[: 1 - room or None]:
                self._packed.pop(oldest, None)
            packed = self._packed[key] = self._pack(weights, split)
        return packed

    def _mark(self, weights: Mapping[str, Tensor], threads: int) -> int | None:
        """A number that tells the contents of the weights apart; none if they do not lie in one piece each."""
        used = [weights[name] for name in self._used]
        if not all(map(Tensor.is_contiguous, used)):
            return None
        words = self.dtype.itemsize // 4
        flat = [number for w in used for number in (w.data_ptr(), w.numel() * words)]
        return self.common.fingerprint(self._numbers.pack(*flat), len(used), threads)

    def _pack(self, weights: Mapping[str, Tensor], split: Split) -> "Packed":
        self._check_shapes(weights)
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
        vectors = self._vectors(weights)
        return Packed(
            split,
            tiles,
            outs,
            vectors,
            _listed(outs),
            _listed(vectors),
        )

    def _check_shapes(self, weights: Mapping[str, Tensor]) -> None:
        """`.data` may be set to something else; beyond its end there would be other people's numbers."""
        for name, shape in self._shapes.items():
            if weights[name].shape != shape:
                raise ShapeError(name, f"shape {tuple(weights[name].shape)}", f"{tuple(shape)}, as when it was planned")
        self._shapes = self._shapes or {name: weights[name].shape for name in self._used}

    def _vectors(self, weights: Mapping[str, Tensor]) -> list[Tensor]:
        widths = [v.rows[1] - v.rows[0] for v in self.tables.vectors]
        ends = [0]
        for width in widths:
            ends.append(ends[-1] + self._padded(width))
        flat = torch.zeros(ends[-1] + 1, dtype=self.dtype)
        parts = [flat[at : at + width] for at, width in zip(ends, widths, strict=False)]
        for part, vector in zip(parts, self.tables.vectors, strict=True):
            part.copy_(vector.of(weights))
        return parts

    # ------------------------------------------------------------------------------------------ the call

    def run(self, packed: "Packed", layout: Layout, numbers: array) -> Tensor:
        """Run the loop over time. Gives the sums over all rows, one after the other as in `schedule.sums`."""
        sums = self.launch(packed, self.fixed(packed, layout), numbers)
        if sums is None:
            return self.constants[:0]
        totals = sums[self.sums_stride : 2 * self.sums_stride]
        return totals if self.dense_sums is None else totals[self.dense_sums]

    def launch(self, packed: "Packed", fixed: "Fixed", numbers: array) -> Tensor | None:
        """Run, each buffer given as four numbers: address, stride, where its table is, where what was before is."""
        sums, places = None, [0, 0, 0]
        if fixed.sums:
            sums = torch.zeros(fixed.sums, dtype=self.dtype)
            places[0] = sums.data_ptr()
        if fixed.rowsums:
            rowsums = torch.empty(fixed.rowsums, dtype=self.dtype)
            places[1] = rowsums.data_ptr()
        if fixed.board:
            board = torch.zeros(fixed.board, dtype=torch.int64)
            places[2] = board.data_ptr()
        lists = packed.vector_list[1], packed.pack_list[1]
        self.library.run(_SIX.pack(numbers.buffer_info()[0], *lists, *places) + fixed.numbers)
        return sums

    def fixed(self, packed: "Packed", layout: Layout) -> "Fixed":
        found = layout.calls.get((self, packed.split))
        if found is None:
            found = layout.calls[self, packed.split] = self._fixed(packed, layout)
        return found

    def _fixed(self, packed: "Packed", layout: Layout) -> "Fixed":
        """What every call with this layout and these threads has in common."""
        split = packed.split
        parts = self._parts(split, layout.rows)
        bounds = layout.bounds(parts)
        spans = layout.spans(bounds, self.backward)
        active = layout.table("active", int(self.backward), self.reach)
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

    def __init__(self, kernel: Kernel, tables: Mapping[str, Table], alike: Container[str] = ()):
        """`alike`: buffers of one row that stands for all."""
        self.numbers, self.names, self.tables = array("q"), list(kernel.tables.buffers), dict(tables)
        for name in self.names:
            stride = 0 if name in alike else kernel.schedule.buffers[name].width
            self.numbers.extend((0, stride, tables[name].pointer, 0))

    def place(self, name: str) -> int:
        """Where among the numbers the address of a buffer is."""
        return FOUR * self.names.index(name)

    def __call__(self, addresses: Mapping[str, int], before: Mapping[str, Tensor]) -> array:
        numbers = self.numbers[:]
        for i, name in enumerate(self.names):
            numbers[FOUR * i] = addresses[name]
            if name in before:
                numbers[FOUR * i + BEFORE] = before[name].data_ptr()
        return numbers


@dataclass(frozen=True)
class Fixed:
    """What calls with one layout and one split have in common."""

    numbers: bytes
    sums: int  # how many numbers a call needs for each
    rowsums: int
    board: int
    alive: tuple  # what the numbers point to


_SIX = struct.Struct("6q")  # the fields of `Call` that differ from call to call


@dataclass(frozen=True)
class Packed:
    split: Split
    tiles: list[int]
    matrices: list[Tensor]
    vectors: list[Tensor]
    pack_list: tuple[bytes, int]  # their addresses, and where those are
    vector_list: tuple[bytes, int]


def _listed(tensors: list[Tensor]) -> tuple[bytes, int]:
    addresses = struct.pack(f"{len(tensors) + 1}q", *(t.data_ptr() for t in tensors), 0)
    return addresses, _address(addresses)


def _address(content: bytes) -> int:
    address = ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value
    assert address is not None
    return address


def _aligned(tensor: Tensor) -> Tensor:
    assert tensor.data_ptr() % 64 == 0, "torch's allocator aligns to 64 bytes"
    return tensor


def _piece(weights: Mapping[str, Tensor], matrix: Matrix) -> tuple[int, int, int, int]:
    weight = weights[matrix.weight]
    down, across = weight.stride()
    first = weight.data_ptr() + (matrix.rows[0] * down + matrix.cols[0] * across) * weight.element_size()
    return (first, across, down, matrix.deep) if matrix.flipped else (first, down, across, matrix.deep)
