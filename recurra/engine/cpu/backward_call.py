"""A backward pass over a whole batch, prepared once for a layout: the loop, then the sums over all steps."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..plan.planner import Plan
from ..plan.program import D_OUTPUT, D_X
from . import allocator
from .arena import Place, Shelf
from .call import Ran
from .call_template import WEIGHTS, ZEROS, Copy, Loop, addresses
from .launch_plan import Way
from .layout import Layout
from .weight_grads import OverTime, Summing

_ADDRESS = Tensor.data_ptr


class RanBackward(NamedTuple):
    """What a backward pass leaves behind."""

    shelf: Tensor
    dx: Tensor  # (rows, inputs), what the loop gave of it
    pieces: list[Tensor]  # of the weights' gradients


class PreparedBackward:
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
        cotangents = [name for name in cotangents_of(plan) if name not in missing]
        # Given are the lists of packed weights, x, the masks, the states before, what the forward pass left, the
        # cotangents that are there, the shelf, and dx.
        before = [f"before:{state.name}" for state in plan.states]
        given = ["=vectors", "=packs", "x", *plan.masks, *before, plan.output, *plan.named.values(), "=kept"]
        given += [*cotangents, "=shelf", D_X]
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
    ) -> RanBackward:
        assert ran.kept is not None
        shelf, dx = allocator.empty((self.way.shelf.numbers,), self.dtype), allocator.empty(self.dx, self.dtype)
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


def cotangents_of(plan: Plan) -> list[str]:
    """The names by which the backward program knows what comes in."""
    named, finals = (f"d{name}" for name in plan.named.values()), (f"dfinal:{s.name}" for s in plan.states)
    return [D_OUTPUT, *named, *finals]


def histories_read(plan: Plan) -> dict[str, str]:
    """The backward program's names for states of earlier steps, and the states."""
    assert plan.backward is not None
    return {name: buffer.source for name, buffer in plan.backward.buffers.items() if buffer.source}
