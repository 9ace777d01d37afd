"""A window over a few steps: memory of its own, and the kernels of those steps, captured once as a CUDA graph.

A sequence passes through window by window. No address of a caller's tensor is part of a graph: kernels find them in a
table, which is written anew for each sequence. So a graph serves every caller and every length.
"""

import functools
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...ir.buffers import LENGTHS, BufferRef, Role
from .stages import CLOCK, ENDS, ROWS, TABLE, Multiplication, Shelf, ShelfRef, ShelfRole, Stepwise

STEPS = 32  # of a window, if they are not too large
BYTES = 128 << 20  # for the steps of a window
WARPS = 4

_arenas: dict[torch.device, weakref.ref[Tensor]] = {}


def arena(size: int, device: torch.device) -> Tensor:
    """Memory that all windows of a device share, for only one of them is in use at a time. It goes with the last."""
    known = _arenas[device]() if device in _arenas else None
    if known is None or known.numel() < size:
        known = torch.empty(1 << (size - 1).bit_length(), dtype=torch.uint8, device=device)
        _arenas[device] = weakref.ref(known)
    return known


@functools.cache
def _for_graphs(device: torch.device) -> tuple[Any, torch.cuda.Stream]:
    """One pool and one stream for the graphs of a device: the room a library works in is then theirs together."""
    return torch.cuda.graph_pool_handle(), torch.cuda.Stream(device)


@functools.cache
def _beside(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """More streams, on which products of one step run side by side."""
    return [*_beside(device, count - 1), torch.cuda.Stream(device)] if count else []


def _matrix_of(product: Multiplication) -> ShelfRef:
    """The shelf of a product's matrix."""
    return ShelfRef(ShelfRole.MATRIX, numbers=product.into.numbers)


def _lay(place: Tensor, pieces: list[Tensor], side: int, flipped: bool) -> None:
    """Matrices one after the other into a place that lies in memory the other way round if `flipped`."""
    if flipped:
        place, pieces, side = place.t(), [piece.t() for piece in pieces], 1 - side
    torch.cat(pieces, dim=side, out=place)


class Window:
    def __init__(
        self, made: Stepwise, kernels: ModuleType, backward: bool, batch: int, dtype: torch.dtype, like: Tensor
    ):
        """`like` is on the device; while a graph of the caller's is being captured, the memory belongs to that."""
        self.made, self.kernels, self.backward, self.batch, self.dtype = made, kernels, backward, batch, dtype
        each = sum(self._bytes(shelf) for shelf in made.shelves.values() if not shelf.slots)
        self.steps = STEPS
        while self.steps > 1 and self.steps * each > BYTES:
            self.steps //= 2
        self.shared = like.is_cuda and not torch.cuda.is_current_stream_capturing()
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._take_room(like.device)

    def _bytes(self, shelf: Shelf) -> int:
        return shelf.width * self.batch * (4 if shelf.wide else self.dtype.itemsize)

    def _take_room(self, device: torch.device) -> None:
        kinds = {name: torch.float32 if s.wide else self.dtype for name, s in self.made.shelves.items()}
        shapes = {name: (s.count(self.steps), self.batch, s.width) for name, s in self.made.shelves.items()}
        for product in self.products():
            shape = (product.deep, product.wide) if product.flipped else (product.wide, product.deep)
            shapes[_matrix_of(product)], kinds[_matrix_of(product)] = (1, *shape), self.dtype
        shapes |= {TABLE: (1, 1, len(self.made.arguments)), CLOCK: (1, 1, 2), ENDS: (1, 1, self.batch)}
        kinds |= {TABLE: torch.int64, CLOCK: torch.int32, ENDS: torch.int32}
        sizes = {n: -(-kinds[n].itemsize * a * b * c // 256) * 256 for n, (a, b, c) in shapes.items()}
        total = sum(sizes.values())
        self.memory = arena(total, device) if self.shared else torch.empty(total, dtype=torch.uint8, device=device)
        self.room: dict[ShelfRef, Tensor] = {}
        at = 0
        for name, (a, b, c) in shapes.items():
            piece = self.memory[at : at + a * b * c * kinds[name].itemsize]
            self.room[name] = piece.view(kinds[name]).view(a, b, c)
            at += sizes[name]

    def products(self) -> list[Multiplication]:
        return [product for stage in self.made.stages for product in stage.products]

    # ------------------------------------------------------------------------------------------ a sequence

    def begin(self, bound: Mapping[BufferRef, Tensor], steps: int) -> None:
        """What is the same at all steps, and the states before the first."""
        self.kernels.addresses[(1,)](*(bound[buffer] for buffer in self.made.arguments), self.room[TABLE])
        weights = {buffer.name: v for buffer, v in bound.items() if buffer.role is Role.WEIGHT}
        for product in self.products():
            self._put_together(product, weights)
        for ring, buffer, offset, width in self.made.carried:
            start = bound[BufferRef.d_final(buffer.name) if self.backward else BufferRef.initial(buffer.name)]
            self.room[ring][0, :, offset : offset + width].copy_(start[:, offset : offset + width])
        self.room[CLOCK][..., 1].fill_(steps)
        ends = self.room[ENDS].view(-1)
        ends.copy_(bound[LENGTHS]) if LENGTHS in bound else ends.fill_(steps)

    def _put_together(self, product: Multiplication, weights: Mapping[str, Tensor]) -> None:
        whole, row = self._matrix(product), 0  # (wide, deep)
        lanes = [[matrix.of(weights) for matrix in blocks] for blocks in product.blocks]
        if len(lanes[0]) == 1:
            _lay(whole, [pieces[0] for pieces in lanes], 0, product.flipped)
            return
        for pieces in lanes:
            wide = pieces[0].shape[0]
            _lay(whole[row : row + wide], pieces, 1, product.flipped)
            row += wide

    def _matrix(self, product: Multiplication) -> Tensor:
        whole = self.room[_matrix_of(product)][0]
        return whole.t() if product.flipped else whole

    def end(self, bound: Mapping[BufferRef, Tensor]) -> None:
        for ring, buffer, offset, width in self.made.carried:
            final = bound[BufferRef.d_initial(buffer.name) if self.backward else BufferRef.final(buffer.name)]
            final[:, offset : offset + width].copy_(self.room[ring][0, :, offset : offset + width])

    # ------------------------------------------------------------------------------------------ some steps

    def bring(self, bound: Mapping[BufferRef, Tensor], first: int, count: int, steps: int) -> None:
        """What steps `first` and on multiply and did not make themselves."""
        self.room[CLOCK][..., 0].fill_(first)
        for name, shelf in self.made.shelves.items():
            for buffer, column, width in shelf.holds if not shelf.slots else ():
                room = self.room[name][..., column : column + width]
                early, late = range(first - shelf.before, first), range(first + count, first + count + shelf.after)
                both = (early, late) if buffer in self.made.written else (range(early.start, late.stop),)
                for times in both:
                    self._copy(bound, buffer, room[shelf.before - first + times.start :][: len(times)], times, steps)

    def _copy(
        self, bound: Mapping[BufferRef, Tensor], buffer: BufferRef, room: Tensor, times: range, steps: int
    ) -> None:
        """The steps `times`: of those before the first of all, initial values; of those after the last, zeros."""
        low, high = max(times.start, 0), min(times.stop, steps)
        if low < high:
            outside = bound[buffer].view(steps, self.batch, -1)
            room[low - times.start : high - times.start].copy_(outside[low:high])
        for t in range(times.start, min(0, times.stop)):
            start = bound[BufferRef.initial(buffer.name)]
            room[t - times.start].copy_(start[-1 - t] if start.dim() == 3 else start)
        if max(times.start, steps) < times.stop:
            room[max(0, steps - times.start) :].zero_()

    def pass_on(self, count: int) -> None:
        """After so many steps, the carried states to where the next window looks for them."""
        if count % 2:
            for ring in {ring for ring, *_ in self.made.carried}:
                self.room[ring][0].copy_(self.room[ring][1])

    def run(self, count: int) -> None:
        """The first `count` steps of the window."""
        if not self.shared:
            self._launch(count, self.batch)
            return
        if count not in self.graphs:
            self.graphs[count] = self._captured(count)
        self.graphs[count].replay()

    def prepare(self) -> None:
        """Compile and load everything, which must not happen while a graph is captured; a library's choice may depend
        on how an address is aligned, and that repeats after eight steps."""
        if self.shared and not self.graphs:
            self._launch(min(8, self.steps), rows=0)

    def _captured(self, count: int) -> torch.cuda.CUDAGraph:
        graph, (pool, stream) = torch.cuda.CUDAGraph(), _for_graphs(self.memory.device)
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            self._launch(count, self.batch)
        return graph

    def _launch(self, count: int, rows: int) -> None:
        tiles = -(-self.batch // ROWS)
        for done in range(count):
            k = count - 1 - done if self.backward else done
            for stage in self.made.stages:
                self._multiply_all(stage.products, k)
                pointers = [self.room[name] for name in (*stage.arguments, TABLE, CLOCK, ENDS)]
                kernel = getattr(self.kernels, stage.name)
                kernel[tiles, stage.programs](*pointers, k, done % 2, rows, num_warps=WARPS)

    def _multiply_all(self, products: list[Multiplication], k: int) -> None:
        """None of them fills a card, and none waits for another: they run side by side, branches of the graph."""
        if len(products) < 2 or not self.shared:
            for product in products:
                self._multiply(product, k)
            return
        here, beside = torch.cuda.current_stream(), _beside(self.memory.device, len(products) - 1)
        for product, stream in zip(products[1:], beside, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                self._multiply(product, k)
        self._multiply(products[0], k)
        for stream in beside:
            here.wait_stream(stream)

    def _multiply(self, product: Multiplication, k: int) -> None:
        shelf, into = self.made.shelves[product.shelf], self.room[product.into][0]
        slot = 0 if shelf.slots else shelf.before + k + product.shift
        operand = self.room[product.shelf][slot][:, product.offset : product.offset + product.deep]
        if operand.dtype == into.dtype:
            torch.mm(operand, self._matrix(product).t(), out=into)
        else:  # sums of products stay in 32 bits
            torch.mm(operand, self._matrix(product).t(), out_dtype=torch.float32, out=into)
