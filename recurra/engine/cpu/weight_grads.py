"""Gradients of matrices on the CPU: products δᵀ operand over the rows of all steps, after the backward loop."""

import ctypes
from array import array
from collections.abc import Mapping

import torch

from ..ir.buffers import BufferRef
from ..plan.program import Plan
from .arena import Place
from .call_template import OWN, CallTemplate, Relocation
from .kernel import WORTH_THREADS, load_products, threads_here
from .layout import Layout

WORD, HEAD, GRADIENT = 8, 5, 6  # bytes of a word; words of `GradientCall` and `Gradient` in kernels/products.h


class MatrixGradients:
    """The sums over time of all runs of a plan: what does not depend on the layout."""

    def __init__(self, plan: Plan, dtype: torch.dtype):
        self.dtype, self.runs = dtype, plan.runs
        assert plan.backward is not None
        self.buffers = plan.forward.buffers | plan.backward.buffers
        self.library = load_products(dtype)
        self.library.sum_room.argtypes, self.library.sum_room.restype = [ctypes.c_void_p], ctypes.c_int64
        self.work = sum(p.matrix.wide * p.matrix.deep for run in self.runs for p in run)  # multiplications a row
        self.shapes = [(sum(p.delta.width for p in run), run[0].matrix.deep) for run in self.runs]
        self.groups: dict[tuple[BufferRef, int, int], list[int]] = {}  # runs of the same columns of δ
        for i, run in enumerate(self.runs):
            first, last = run[0].delta, run[-1].delta
            self.groups.setdefault((first.buffer, first.offset, last.offset + last.width), []).append(i)


class MatrixGradientCall(CallTemplate):
    """One call that makes them for a layout. Its arguments are those of the backward call, the results, and scratch."""

    def __init__(
        self,
        sums: MatrixGradients,
        layout: Layout,
        where: Mapping[BufferRef, Place],
        initial: Mapping[BufferRef, int],
        arguments: int,
    ):
        """`where`: the places of all buffers. `initial`: the arguments that hold the initial values of past states.
        `arguments`: how many the backward call has."""
        self.dtype, self.shapes = sums.dtype, sums.shapes
        self.alive: list[object] = [sums.library]  # what the words point to
        self.threads = threads_here() if sums.work * layout.total >= WORTH_THREADS else 1
        gradients, targets, relocations = [], [], []
        first_target = HEAD + GRADIENT * len(sums.groups)
        for (buffer, low, high), members in sums.groups.items():
            word = HEAD + len(gradients)
            relocations += [self._relocation(word, where[buffer], low)]
            relocations += [Relocation(word + 4, OWN, (first_target + len(targets)) * WORD)]
            gradients += [0, sums.buffers[buffer].width, high - low, layout.total, 0, len(members)]
            for i in members:
                word, product, deep = first_target + len(targets), sums.runs[i][0], sums.shapes[i][1]
                load = product.operand
                relocations += [
                    Relocation(word, arguments + i),
                    self._relocation(word + 3, where[load.buffer], load.offset),
                ]
                if product.lag:
                    relocations += [self._relocation(word + 4, (initial[load.buffer], 0), load.offset)]
                spans = layout.lagged_spans(product.lag)
                targets += [0, deep, deep, 0, 0, sums.buffers[load.buffer].width, spans.data_ptr(), len(spans)]
                self.alive.append(spans)
        head, rest = [0, len(sums.groups), self.threads, 0, 0], [*gradients, *targets]
        head[4] = self.scratch_size = _scratch_size(sums.library, head, rest, relocations)
        relocations += [Relocation(3, arguments + len(sums.runs))]
        super().__init__(sums.library.sum_over_time, head, rest, arguments + len(sums.runs) + 1, relocations)

    def _relocation(self, word: int, place: Place, column: int) -> Relocation:
        return Relocation(word, place[0], place[1] + column * self.dtype.itemsize)

    @property
    def scratch_numbers(self) -> int:
        """Numbers of scratch memory of all threads."""
        return self.threads * self.scratch_size


def _scratch_size(library: ctypes.CDLL, head: list[int], rest: list[int], relocations: list[Relocation]) -> int:
    """Numbers of scratch memory that a thread needs."""
    words = array("q", [*head, *rest])
    own, _ = words.buffer_info()
    words[0] = own + HEAD * WORD
    for relocation in relocations:
        if relocation.given == OWN:
            words[relocation.word] = own + relocation.offset
    return library.sum_room(ctypes.c_void_p(own))
