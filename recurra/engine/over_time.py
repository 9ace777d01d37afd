"""What is left when the backward loop is done: products over the rows of all steps at once."""

import ctypes
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from . import build, workspace
from .kernel import REALS, WORTH_THREADS, threads_here
from .layout import Layout
from .memory import Buffers
from .packing import address_of
from .plan import Plan, Product
from .render import products_source


def runs(plan: Plan) -> list[list[Product]]:
    """Products of the same operand whose δ lie side by side: one matrix product takes them all."""
    groups: dict[object, list[Product]] = {}
    for product in plan.products:
        groups.setdefault((product.operand, product.delta.buffer, product.matrix.deep), []).append(product)
    found: list[list[Product]] = []
    for products in groups.values():
        last: Product | None = None
        for product in sorted(products, key=lambda p: p.delta.offset):
            if last is not None and last.delta.offset + last.delta.width == product.delta.offset:
                found[-1].append(product)
            else:
                found.append([product])
            last = product
    return found


class After:
    """The loop's buffers, and what they still have to give."""

    def __init__(
        self,
        plan: Plan,
        grouped: list[list[Product]],
        buffers: Buffers,
        before: dict[str, Tensor],
        given: dict[str, Tensor],
        layout: Layout,
    ):
        self.plan, self.runs, self.given, self.layout = plan, grouped, given, layout
        self.buffers, self.before = buffers, before  # `before`: what a buffer of a state held before the first step
        self.dtype = next(iter(given.values())).dtype

    def delta(self, run: list[Product]) -> Tensor:
        first, last = run[0].delta, run[-1].delta
        return self.buffers[first.buffer][:, first.offset : last.offset + last.width]

    # ------------------------------------------------------------------------------------------ matrices

    def stretches(self, run: list[Product]) -> list[int]:
        """Where the operand of each row of δ lies: (address, stride, first row of δ, rows), one after the other."""
        load, layout = run[0].operand, self.layout
        stride, size = self.buffers.width(load.buffer), self.dtype.itemsize
        data = self.buffers.addresses[load.buffer] + load.offset * size
        if run[0].state is None:
            return [data, stride, 0, layout.total]
        lag, rows = run[0].lag, layout.rows
        before = self.before[load.buffer].data_ptr() + load.offset * size
        starts, counts = (layout.starts.tolist(), layout.counts.tolist()) if layout.active is not None else ([], [])
        found = []
        for t in range(min(lag, layout.steps)):
            first, count = (starts[t], counts[t]) if starts else (t * rows, rows)
            found += [before + (lag - 1 - t) * rows * stride * size, stride, first, count]
        if not starts and layout.steps > lag:
            found += [data, stride, lag * rows, layout.total - lag * rows]
        for t in range(lag, len(starts)):
            found += [data + starts[t - lag] * stride * size, stride, starts[t], counts[t]]
        return found

    # ------------------------------------------------------------------------------------------ inputs

    def input(self) -> Tensor | None:
        if not self.plan.needs_x:
            return None
        width, fresh = self.buffers.width("x"), "dx" not in self.buffers
        total = self._input_start(None if fresh else self.buffers["dx"], width)
        for run in self.runs:
            if run[0].operand.buffer == "x":
                stacked = torch.cat([p.matrix.of(self.given) for p in run])
                low, high = run[0].operand.offset, run[0].operand.offset + run[0].matrix.deep
                if fresh and high - low == width:
                    torch.mm(self.delta(run), stacked, out=total)
                else:
                    total[:, low:high] += self.delta(run) @ stacked
                fresh = False
        return total

    def _input_start(self, given: Tensor | None, width: int) -> Tensor:
        """Zeros, or what the loop itself gave."""
        covered: set[int] = set()
        if given is not None:
            assert self.plan.backward is not None
            for out in self.plan.backward.outs:
                if out.buffer == "dx":
                    covered |= set(range(out.offset, out.offset + out.node.width))
            for column in set(range(width)) - covered:
                given[:, column] = 0
            return given
        whole = any(p.operand.buffer == "x" and p.matrix.deep == width for p in self.plan.products)
        shape = (self.layout.total, width)
        return workspace.empty(shape, self.dtype) if whole else workspace.zeros(shape, self.dtype)

    def initial(self, name: str, final: Tensor | None) -> Tensor:
        """The cotangent of a state's initial value."""
        state = next(s for s in self.plan.states if s.name == name)
        rows, steps = self.layout.rows, self.layout.steps
        total = torch.zeros(state.depth, rows, state.size, dtype=self.dtype)
        for lag in state.delays or (1,):
            for t in range(min(lag, steps)):
                place, at = total[lag - 1 - t], self.layout.rows_at(t)
                running = at.stop - at.start
                if (name, lag) in self.plan.carries:
                    slot = (steps - 1 - t) % (lag + 1) * rows
                    place[:running] += self.buffers[self.plan.carries[name, lag]][slot : slot + running]
                for product in self.plan.products:
                    if product.state == name and product.lag == lag:
                        low, delta = product.operand.offset, product.delta
                        here = self.buffers[delta.buffer][at, delta.offset : delta.offset + delta.width]
                        place[:running, low : low + product.matrix.deep] += here @ product.matrix.of(self.given)
        if final is not None:
            self._pass_through(total, final)
        return total.transpose(0, 1).contiguous() if state.delays else total[0]

    def _pass_through(self, total: Tensor, final: Tensor) -> None:
        """Of a sequence shorter than the state is deep, the last values are initial ones."""
        newest, row = self.layout.ends(), torch.arange(self.layout.rows)
        values = final if final.dim() == 3 else final[:, None]
        for j in range(values.shape[1]):
            slot = j - newest
            there = slot >= 0
            if there.any():
                total[slot[there], row[there]] += values[there, j]


class OverTime:
    """Gradients of matrices: δᵀ operand over all rows, for all runs at once."""

    def __init__(self, grouped: list[list[Product]], dtype: torch.dtype):
        self.dtype = dtype
        self.library = build.load(products_source(REALS[dtype]))
        whole = ctypes.c_int64
        self.library.sum_over_time.argtypes = [ctypes.c_char_p, whole, whole, ctypes.c_void_p, whole]
        self.library.sum_over_time.restype = None
        self.library.sum_room.argtypes, self.library.sum_room.restype = [ctypes.c_char_p, whole, whole], whole
        self.work = sum(p.matrix.wide * p.matrix.deep for run in grouped for p in run)  # multiplications a row
        self.shapes = [(sum(p.delta.width for p in run), run[0].matrix.deep) for run in grouped]
        self.groups: dict[tuple[str, int, int], list[int]] = {}  # runs of the same columns of δ
        for i, run in enumerate(grouped):
            first, last = run[0].delta, run[-1].delta
            self.groups.setdefault((first.buffer, first.offset, last.offset + last.width), []).append(i)

    def made_ready(self, after: After) -> "Ready":
        """All that can be done before the loop has run: when it has, what Python needs is no longer in the cache."""
        rows, size = after.layout.total, self.dtype.itemsize
        threads = threads_here() if self.work * rows >= WORTH_THREADS else 1
        found = [workspace.empty(shape, self.dtype) for shape in self.shapes]
        gradients, alive = [], []
        for (buffer, low, high), members in self.groups.items():
            targets = self._targets(after, members, [found[i] for i in members], alive)
            address, stride = after.buffers.addresses[buffer] + low * size, after.buffers.width(buffer)
            gradients += [address, stride, high - low, rows, targets, len(members)]
        numbers, count = struct.pack(f"{len(gradients)}q", *gradients), len(self.groups)
        room = self.library.sum_room(numbers, count, threads)
        place = workspace.empty((threads * room,), self.dtype)
        return Ready(self.library, (numbers, count, threads, place.data_ptr(), room), (place, alive, after), found)

    def _targets(self, after: After, members: list[int], outs: list, alive: list) -> int:
        numbers = []
        for i, out in zip(members, outs, strict=True):
            stretches = after.stretches(after.runs[i])
            alive.append(struct.pack(f"{len(stretches)}q", *stretches))
            numbers += [out.data_ptr(), out.shape[1], out.shape[1], address_of(alive[-1]), len(stretches) // 4]
        alive.append(struct.pack(f"{len(numbers)}q", *numbers))
        return address_of(alive[-1])


@dataclass(frozen=True)
class Ready:
    """Sums over time that wait for the loop."""

    library: ctypes.CDLL
    arguments: tuple
    alive: tuple  # what the arguments point to
    found: list[Tensor]  # one a run, (columns of δ, columns of the operand)

    def __call__(self) -> list[Tensor]:
        if self.found:
            self.library.sum_over_time(*self.arguments)
        return self.found
