"""A window of a few steps: its own memory, and the kernels of these steps captured as CUDA graphs.

A sequence is processed window by window. Graphs contain no address of a caller's tensor: kernels read them from a
table that is rewritten for each sequence, so one graph serves all calls and lengths.
"""

import functools
import weakref
from collections.abc import Mapping
from types import ModuleType

import torch
from torch import Tensor

from ...ir.buffers import LENGTHS, BufferRef, Role
from ..graph_pool import GraphPool
from ..persistent.launch import rounding
from .stages import (
    CLOCK,
    ENDS,
    LITERALS,
    MAPS,
    ROWS,
    TABLE,
    Multiplication,
    StepSource,
    WindowBuffer,
    WindowBufferRef,
    WindowBufferRole,
)

STEPS = 32  # of a window, unless they exceed BYTES
BYTES = 128 << 20  # of the operands of a window
WARPS = 4

_arenas: dict[torch.device, weakref.ref[Tensor]] = {}


def arena(size: int, device: torch.device) -> Tensor:
    """Memory shared by all windows of a device, of which one runs at a time; freed with the last window."""
    known = _arenas[device]() if device in _arenas else None
    if known is None or known.numel() < size:
        known = torch.empty(1 << (size - 1).bit_length(), dtype=torch.uint8, device=device)
        _arenas[device] = weakref.ref(known)
    return known


@functools.cache
def _pool(device: torch.device) -> GraphPool:
    """One for the graphs of a device, so that they share cuBLAS workspaces."""
    return GraphPool(device)


@functools.cache
def _side_streams(device: torch.device, count: int) -> list[torch.cuda.Stream]:
    """Further streams, for products of one step that run concurrently."""
    return [*_side_streams(device, count - 1), torch.cuda.Stream(device)] if count else []


def _matrix_of(product: Multiplication) -> WindowBufferRef:
    """The window buffer of a product's matrix."""
    return WindowBufferRef(WindowBufferRole.MATRIX, numbers=product.into.numbers)


def _concat_into(place: Tensor, pieces: list[Tensor], side: int, flipped: bool) -> None:
    """Concatenate matrices into `place`, which is stored transposed if `flipped`."""
    if flipped:
        place, pieces, side = place.t(), [piece.t() for piece in pieces], 1 - side
    torch.cat(pieces, dim=side, out=place)


class Window:
    """Memory and graphs for `steps` steps of one batch size."""

    def __init__(
        self, made: StepSource, kernels: ModuleType, backward: bool, batch: int, dtype: torch.dtype, like: Tensor
    ):
        """`like` is on the device; while the caller captures a graph, the window allocates memory of its own."""
        self.made, self.kernels, self.backward, self.batch, self.dtype = made, kernels, backward, batch, dtype
        each = sum(self._bytes(spec) for spec in made.window_buffers.values() if not spec.slots)
        self.steps = STEPS
        while self.steps > 1 and self.steps * each > BYTES:
            self.steps //= 2
        self.shared = like.is_cuda and not torch.cuda.is_current_stream_capturing()
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._allocate(like.device)

    def _bytes(self, spec: WindowBuffer) -> int:
        return spec.width * self.batch * (4 if spec.wide else self.dtype.itemsize)

    def _allocate(self, device: torch.device) -> None:
        kinds = {name: torch.float32 if s.wide else self.dtype for name, s in self.made.window_buffers.items()}
        shapes = {name: (s.count(self.steps), self.batch, s.width) for name, s in self.made.window_buffers.items()}
        for product in self.products():
            shape = (product.deep, product.wide) if product.flipped else (product.wide, product.deep)
            shapes[_matrix_of(product)], kinds[_matrix_of(product)] = (1, *shape), self.dtype
        shapes |= {TABLE: (1, 1, len(self.made.arguments)), CLOCK: (1, 1, 2), ENDS: (1, 1, self.batch)}
        kinds |= {TABLE: torch.int64, CLOCK: torch.int32, ENDS: torch.int32}
        sizes = {n: -(-kinds[n].itemsize * a * b * c // 256) * 256 for n, (a, b, c) in shapes.items()}
        total = sum(sizes.values())
        self.memory = arena(total, device) if self.shared else torch.empty(total, dtype=torch.uint8, device=device)
        self.tensors: dict[WindowBufferRef, Tensor] = dict(
            zip((MAPS, LITERALS), self.made.tables.tensors(device), strict=True)
        )
        at = 0
        for name, (a, b, c) in shapes.items():
            piece = self.memory[at : at + a * b * c * kinds[name].itemsize]
            self.tensors[name] = piece.view(kinds[name]).view(a, b, c)
            at += sizes[name]

    def products(self) -> list[Multiplication]:
        return [product for stage in self.made.stages for product in stage.products]

    # ------------------------------------------------------------------------------------------ per sequence

    def begin(self, bound: Mapping[BufferRef, Tensor], steps: int) -> None:
        """Write the address table, the packed matrices, lengths and initial states."""
        self.kernels.addresses[(1,)](*(bound[buffer] for buffer in self.made.arguments), self.tensors[TABLE])
        weights = {buffer.name: v for buffer, v in bound.items() if buffer.role is Role.WEIGHT}
        for product in self.products():
            self._pack_matrix(product, weights)
        for ring, buffer, offset, width in self.made.carried:
            start = bound[BufferRef.d_final(buffer.name) if self.backward else BufferRef.initial(buffer.name)]
            self.tensors[ring][0, :, offset : offset + width].copy_(start[:, offset : offset + width])
        self.tensors[CLOCK][..., 1].fill_(steps)
        ends = self.tensors[ENDS].view(-1)
        ends.copy_(bound[LENGTHS]) if LENGTHS in bound else ends.fill_(steps)

    def _pack_matrix(self, product: Multiplication, weights: Mapping[str, Tensor]) -> None:
        whole, row = self._matrix(product), 0  # (wide, deep)
        lanes = [[matrix.of(weights) for matrix in blocks] for blocks in product.blocks]
        if len(lanes[0]) == 1:
            _concat_into(whole, [pieces[0] for pieces in lanes], 0, product.flipped)
            return
        for pieces in lanes:
            wide = pieces[0].shape[0]
            _concat_into(whole[row : row + wide], pieces, 1, product.flipped)
            row += wide

    def _matrix(self, product: Multiplication) -> Tensor:
        whole = self.tensors[_matrix_of(product)][0]
        return whole.t() if product.flipped else whole

    def end(self, bound: Mapping[BufferRef, Tensor]) -> None:
        for ring, buffer, offset, width in self.made.carried:
            final = bound[BufferRef.d_initial(buffer.name) if self.backward else BufferRef.final(buffer.name)]
            final[:, offset : offset + width].copy_(self.tensors[ring][0, :, offset : offset + width])

    # ------------------------------------------------------------------------------------------ per window

    def load_operands(self, bound: Mapping[BufferRef, Tensor], first: int, count: int, steps: int) -> None:
        """Copy operands that the kernels of the steps from `first` on do not store themselves."""
        self.tensors[CLOCK][..., 0].fill_(first)
        for name, spec in self.made.window_buffers.items():
            for buffer, column, width in spec.holds if not spec.slots else ():
                room = self.tensors[name][..., column : column + width]
                early, late = range(first - spec.before, first), range(first + count, first + count + spec.after)
                both = (early, late) if buffer in self.made.written else (range(early.start, late.stop),)
                for times in both:
                    self._copy(bound, buffer, room[spec.before - first + times.start :][: len(times)], times, steps)

    def _copy(
        self, bound: Mapping[BufferRef, Tensor], buffer: BufferRef, room: Tensor, times: range, steps: int
    ) -> None:
        """Copy the steps `times`: initial values before the first step, zeros after the last."""
        low, high = max(times.start, 0), min(times.stop, steps)
        if low < high:
            outside = bound[buffer].view(steps, self.batch, -1)
            room[low - times.start : high - times.start].copy_(outside[low:high])
        for t in range(times.start, min(0, times.stop)):
            start = bound[BufferRef.initial(buffer.name)]
            room[t - times.start].copy_(start[-1 - t] if start.dim() == 3 else start)
        if max(times.start, steps) < times.stop:
            room[max(0, steps - times.start) :].zero_()

    def copy_carried(self, count: int) -> None:
        """Copy carried states to slot 0, where the next window expects them."""
        if count % 2:
            for ring in {ring for ring, *_ in self.made.carried}:
                self.tensors[ring][0].copy_(self.tensors[ring][1])

    def run(self, count: int) -> None:
        """Run the first `count` steps of the window."""
        if not self.shared:
            self._launch(count, self.batch)
            return
        if count not in self.graphs:
            self.graphs[count] = self._capture(count)
        self.graphs[count].replay()

    def prepare(self) -> None:
        """Compile and load all kernels, which is not allowed during capture. cuBLAS chooses by alignment, which repeats
        after eight steps."""
        if self.shared and not self.graphs:
            self._launch(min(8, self.steps), rows=0)

    def _capture(self, count: int) -> torch.cuda.CUDAGraph:
        graph, pool = torch.cuda.CUDAGraph(), _pool(self.memory.device)
        with (
            pool.capture(graph) as handle,
            torch.cuda.graph(graph, pool=handle, stream=pool.stream, capture_error_mode="thread_local"),
        ):
            self._launch(count, self.batch)
        return graph

    def _launch(self, count: int, rows: int) -> None:
        tiles = -(-self.batch // ROWS)
        options = {"num_warps": WARPS} | rounding(self.made.as_written)
        for done in range(count):
            k = count - 1 - done if self.backward else done
            for stage in self.made.stages:
                self._multiply_all(stage.products, k)
                pointers = [self.tensors[name] for name in (*stage.arguments, TABLE, CLOCK, ENDS)]
                kernel = getattr(self.kernels, stage.name)
                kernel[tiles, stage.programs](*pointers, k, done % 2, rows, **options)

    def _multiply_all(self, products: list[Multiplication], k: int) -> None:
        """Run independent products concurrently, as branches of the graph: none of them fills a card."""
        if len(products) < 2 or not self.memory.is_cuda:
            for product in products:
                self._multiply(product, k)
            return
        here, beside = torch.cuda.current_stream(), _side_streams(self.memory.device, len(products) - 1)
        for product, stream in zip(products[1:], beside, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                self._multiply(product, k)
        self._multiply(products[0], k)
        for stream in beside:
            here.wait_stream(stream)

    def _multiply(self, product: Multiplication, k: int) -> None:
        spec, into = self.made.window_buffers[product.operand], self.tensors[product.into][0]
        slot = 0 if spec.slots else spec.before + k + product.shift
        operand = self.tensors[product.operand][slot][:, product.offset : product.offset + product.deep]
        if operand.dtype == into.dtype:
            torch.mm(operand, self._matrix(product).t(), out=into)
        else:  # accumulators stay float32
            torch.mm(operand, self._matrix(product).t(), out_dtype=torch.float32, out=into)
