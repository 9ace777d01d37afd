"""A pass over a whole batch, prepared once for a layout.

What differs from one to the next are weights, which are packed where they are new, and addresses.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from . import workspace
from .again import WEIGHTS, ZEROS, Copy, Loop, addresses
from .layout import Layout, dense
from .memory import Place, Shelf
from .over_time import OverTime, Summing
from .plan import Plan
from .program import D_OUTPUT, D_X
from .ways import Way

_ADDRESS = Tensor.data_ptr


class Ran(NamedTuple):
    """What a forward pass leaves behind."""

    y: Tensor  # (T, B, size) if all sequences are equally long, else (rows of all steps, size)
    finals: Sequence[Tensor]
    named: Sequence[Tensor]  # laid out as y is
    kept: Tensor | None  # in training: the histories of the states that are not y and what the plan keeps, on one shelf


class Prepared:
    """A forward pass."""

    def __init__(self, plan: Plan, way: Way, kept: Shelf | None, layout: Layout, weights: Mapping[str, Tensor]):
        self.way, self.kept, self.dtype = way, kept, way.kernel.dtype
        self.shape = layout.shape(way.widths[plan.output])
        # Given are the lists of packed weights, x, the output, the two shelves, the states before, the final states.
        x, output, shelf, kept_shelf, before, finals = 2, 3, 4, 5, 6, 6 + len(plan.states)
        where = {"x": (x, 0), plan.output: (output, 0)} | way.shelf.at(shelf)
        where |= {} if kept is None else kept.at(kept_shelf)
        copies = []
        for i, state in enumerate(plan.states):
            given, offset = where[state.name]
            slots = state.depth + 1 if given == shelf else layout.steps  # of a ring, or of all
            rows = layout.rows * state.size * self.dtype.itemsize
            copies.append(Copy(finals + i, 0, given, offset + (layout.steps - 1) % slots * rows, rows))
        early = {state.name: before + i for i, state in enumerate(plan.states)}
        patches, count = [*WEIGHTS, *addresses(way.binding, where, early)], finals + len(plan.states)
        packed = way.kernel.pack(weights, way.split)
        self.loop = Loop(way.kernel, packed, layout, way.binding, count, patches, after=copies)
        self.ahead = None
        if (first := way.ahead) is not None:
            packed, rows = first.kernel.pack(weights, first.split), dense(1, layout.total)
            patches = [*WEIGHTS, *addresses(first.binding, where)]
            self.ahead = Loop(first.kernel, packed, rows, first.binding, before, patches)

    def __call__(self, x: Tensor, states: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Ran:
        """The final states are shaped as those before."""
        y = workspace.empty(self.shape, self.dtype)
        numbers = self.way.shelf.numbers
        shelf = workspace.empty((numbers,), self.dtype) if numbers else y  # which is never looked at
        kept = None if self.kept is None else workspace.empty((self.kept.numbers,), self.dtype)
        finals, given = (*map(torch.empty_like, states),), (x, y, shelf, y if kept is None else kept)
        if self.ahead is not None and self.way.ahead is not None:
            _run(self.ahead, self.way.ahead, weights, given)
        _run(self.loop, self.way, weights, (*given, *states, *finals))
        return Ran(y, finals, (), kept)


def _run(loop: Loop, way: Way, weights: Mapping[str, Tensor], given: Sequence[Tensor]) -> None:
    packed, scratch = way.kernel.pack(weights, way.split), [*map(torch.zeros_like, loop.scratch)]
    loop.run(loop.pack(packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, (*given, *scratch))))


class PreparedBackward:
    """A backward pass, of any layout."""

    def __init__(
        self,
        plan: Plan,
        way: Way,
        kept: Shelf,
        layout: Layout,
        sums: OverTime,
        missing: tuple[str, ...],
        weights: Mapping[str, Tensor],
    ):
        """`missing`: cotangents that are not there, and so are zero."""
        self.way, self.dtype = way, way.kernel.dtype
        self.dx = (layout.total, way.widths[D_X]) if D_X in way.widths else (0,)
        self.cotangents = [name for name in cotangents_of(plan) if name not in missing]
        # Given are the lists of packed weights, x, the masks, the states before, what the forward pass left, the
        # cotangents that are there, the shelf, and dx.
        before = [f"before:{state.name}" for state in plan.states]
        given = ["=vectors", "=packs", "x", *plan.masks, *before, plan.output, *plan.named.values(), "=kept"]
        given += [*self.cotangents, "=shelf", D_X]
        place = {name: i for i, name in enumerate(given)}
        where = {name: (i, 0) for name, i in place.items()} | kept.at(place["=kept"]) | way.shelf.at(place["=shelf"])
        histories = histories_read(plan)
        where |= {name: where[state] for name, state in histories.items()}
        early = {name: place[f"before:{state}"] for name, state in histories.items()}
        packed, patches = way.kernel.pack(weights, way.split), [*WEIGHTS, *addresses(way.binding, where, early)]
        carries = [*self._carries(plan, layout, where, place)]
        self.loop = Loop(way.kernel, packed, layout, way.binding, len(given), patches, before=carries)
        self.sums = Summing(sums, layout, where, early, len(given))

    def _carries(
        self, plan: Plan, layout: Layout, where: Mapping[str, Place], place: Mapping[str, int]
    ) -> Iterator[Copy]:
        """A carry starts from the cotangent of the final state; that of a delayed one meets it on the way."""
        states = {state.name: state for state in plan.states}
        for (name, lag), buffer in plan.carries.items():
            shelf, start = where[buffer]
            size = layout.rows * states[name].size * self.dtype.itemsize
            final = place.get(f"dfinal:{name}")
            if final is None or states[name].delays:
                yield Copy(shelf, start, ZEROS, 0, (lag + 1) * size)
                continue
            for slot in range(lag + 1):
                yield Copy(shelf, start + slot * size, final, 0, size)

    def __call__(
        self,
        x: Tensor,
        masks: Sequence[Tensor],
        before: Sequence[Tensor],
        ran: Ran,
        cotangents: Mapping[str, Tensor | None],
        weights: Mapping[str, Tensor],
    ) -> "RanBackward":
        assert ran.kept is not None
        shelf, dx = workspace.empty((self.way.shelf.numbers,), self.dtype), workspace.empty(self.dx, self.dtype)
        there = [d for d in cotangents.values() if d is not None]
        given = x, *masks, *before, ran.y, *ran.named, ran.kept, *there, shelf, dx
        # All that can be done before the loop runs: when it has, what Python needs is no longer in the cache.
        scratch, results = [*map(torch.zeros_like, self.loop.scratch)], self.sums.results()
        packed = self.way.kernel.pack(weights, self.way.split)
        given = packed.vector_list[1], packed.pack_list[1], *map(_ADDRESS, given)
        first, then = self.loop.pack(*given, *map(_ADDRESS, scratch)), self.sums.pack(*given, *map(_ADDRESS, results))
        self.loop.run(first)
        if len(results) > 1:
            self.sums.run(then)
        totals = self.way.kernel.totals(scratch[0] if self.way.kernel.sums_stride else None)
        return RanBackward(shelf, dx, [*results[:-1], totals])


class RanBackward(NamedTuple):
    """What a backward pass leaves behind."""

    shelf: Tensor
    dx: Tensor  # (rows, inputs), what the loop gave of it
    pieces: list[Tensor]  # of the weights' gradients


def cotangents_of(plan: Plan) -> list[str]:
    """The names by which the backward program knows what comes in."""
    named, finals = (f"d{name}" for name in plan.named.values()), (f"dfinal:{s.name}" for s in plan.states)
    return [D_OUTPUT, *named, *finals]


def histories_read(plan: Plan) -> dict[str, str]:
    """The backward program's names for states of earlier steps, and the states."""
    assert plan.backward is not None
    return {name: buffer.source for name, buffer in plan.backward.buffers.items() if buffer.source}
