"""Run a plan on the CPU: forward, backward, and the products that were left for after the loop."""

import ctypes
import functools
import itertools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from ..ir.buffers import D_X, BufferRef, X
from ..plan.epilogue import Assembly
from ..plan.input_projection import Hoisted, hoisted
from ..plan.program import Plan, Product, Program
from ..torch_modes import hide_from_modes
from . import allocator
from .arena import Buffers, Shelf, room
from .backward_call import PreparedBackward
from .call import Prepared, Ran
from .cotangents import Cotangents
from .kernel import Kernel, threads_here
from .launch_plan import Way, backward_way, forward_way
from .layout import Layout, dense
from .ragged_rows import Rows, rows_of
from .weight_grads import OverTime, runs

FEWEST_ROWS = 3  # up to which a product reads a weight for next to nothing


class CpuExecutor:
    """A plan with its kernels. Compiled when first used, for the dtype it is used with."""

    def __init__(self, plan: Plan, dtype: torch.dtype, key: str = ""):
        self.plan, self.dtype, self.key = plan, dtype, key
        self.is_built = False  # whether its kernels were compiled
        self.weight_names = tuple(plan.equations.hoisted)
        states = (BufferRef.state(state.name) for state in plan.states)
        self.histories = tuple(state for state in states if state != plan.output)

    def _kernel(self, program: Program, backward: bool) -> Kernel:
        return Kernel(program, self.dtype, backward, as_written=self.plan.seeks_largest)

    @functools.cached_property
    def forward_kernel(self) -> Kernel:
        return self._kernel(self.plan.forward, backward=False)

    @functools.cached_property
    def hoisted(self) -> Hoisted:
        return hoisted(self.plan.forward)

    @functools.cached_property
    def hoisted_kernels(self) -> tuple[Kernel, Kernel]:
        """For the products ahead of the loop, and for the loop."""
        programs = self.hoisted.ahead, self.hoisted.loop
        with ThreadPoolExecutor(2) as pool:
            ahead, loop = pool.map(lambda program: self._kernel(program, backward=False), programs)
        return ahead, loop

    def _worth_hoisting(self, layout: Layout) -> bool:
        """Whether the weights a step need no longer read outweigh the memory in between. They do not where they are at
        hand, unless rows are so few that reading them is all that a step does."""
        split = self.forward_kernel.split(layout, layout.rows)
        if not self.forward_kernel.far(split) and layout.rows > FEWEST_ROWS:
            return False
        readers = 1 if split.by_unit else split.threads
        return 16 * layout.total * self.hoisted.width < readers * layout.steps * self.hoisted.numbers

    @functools.cached_property
    def backward_kernel(self) -> Kernel:
        assert self.plan.backward is not None
        return self._kernel(self.plan.backward, backward=True)

    @functools.cached_property
    def runs(self) -> list[list[Product]]:
        return runs(self.plan)

    @functools.cached_property
    def summed(self) -> OverTime:
        return OverTime(self.plan, self.runs, self.dtype)

    @functools.cached_property
    def _assembly(self) -> Assembly:
        return Assembly(self.plan, self.weight_names, self.runs)

    def gradients(self, pieces: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        """Weight gradients from what `backward` gives."""
        return self._assembly(pieces, weights)

    @property
    def trains(self) -> bool:
        return self.plan.backward is not None

    @functools.cached_property
    def can_step(self) -> bool:
        """Whether a single step can be prepared: the step reads x, and weights as they are."""
        derived = any(name.startswith("=") for name in self.weight_names)
        return not derived and X in self.forward_kernel.tables.buffers

    def prologue(self, weights: dict[str, Tensor]) -> list[Tensor]:
        """What the loop reads: weights, and what is computed from weights alone."""
        if all(name in weights for name in self.weight_names):
            return [weights[name] for name in self.weight_names]
        return list(self.plan.equations.prologue(*(weights[name] for name in self.plan.equations.weights)))

    def kept_numbers(self, rows: Any) -> Any:
        """Numbers that are kept for backward, of so many rows."""
        buffers = self.plan.forward.buffers
        return sum(room(rows * buffers[n].width, self.dtype.itemsize) for n in (*self.histories, *self.plan.kept))

    def _kept(self, layout: Layout) -> Shelf:
        if (self, "kept") not in layout.calls:
            buffers = self.plan.forward.buffers
            shapes = {name: (layout.total, buffers[name].width) for name in (*self.histories, *self.plan.kept)}
            layout.calls[self, "kept"] = Shelf(shapes, self.dtype)
        return layout.calls[self, "kept"]

    # ------------------------------------------------------------------------------------------ forward

    @hide_from_modes
    def forward(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        padded: bool = False,
    ) -> list[Tensor]:
        """[y, final states, named values, what backward needs, sized for all rows of the batch if `padded`]."""
        rows = rows_of(x, lengths)
        inputs = rows.gather(x), rows.sort(states), self._masks(masks, rows), weights
        ran = self._forward(*inputs, rows.layout, x.shape[0] * x.shape[1] if padded else None)
        kept = [] if ran.kept is None else [ran.kept]
        if self.trains and lengths is not None:  # backward reads y in the order of its rows
            packed = ran.y if rows.ragged else torch.zeros_like(ran.y).flatten(0, 1) if padded else ran.y[:0]
            kept.append(rows.pad(packed) if padded else packed)
        outputs = [rows.scatter(v) for v in (ran.y, *ran.named)]
        return [outputs[0], *rows.unsort(ran.finals), *outputs[1:], *kept]

    def kept_shapes(self, rows: Any, ragged: bool) -> list[tuple]:
        """Shapes of what `forward` adds for backward, if padded."""
        output = self.plan.forward.buffers[self.plan.output].width
        return [(self.kept_numbers(rows),), *([(rows, output)] if ragged else [])]

    def _masks(self, masks: Sequence[Tensor], rows: Rows) -> list[Tensor]:
        kinds = self.plan.masks.values()
        return [rows.gather(m) if each == "step" else rows.sort([m])[0] for each, m in zip(kinds, masks, strict=True)]

    def _forward(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        layout: Layout,
        most: int | None = None,
    ) -> Ran:
        """`most`: rows to make room for in what is kept, if not just those of the layout."""
        given = dict(zip(self.weight_names, weights, strict=True))
        if self._plain and layout.active is None and most is None:
            return self.prepared(layout, given)(x, states, given)
        plan, way, buffers = self.plan, self._forward_way(layout), Buffers()
        self._put_inputs(buffers, x, masks)
        for name, width in way.widths.items():
            buffers.put(name, allocator.empty(layout.shape(width), self.dtype))
        if way.shelf.numbers:
            buffers.lay_out(way.shelf, self._empty(way.shelf.numbers))
        kept = None
        if self.trains:
            shelf = self._kept(layout)
            kept = self._empty(shelf.numbers if most is None else self.kept_numbers(most))
            buffers.lay_out(shelf, kept)
            if most is not None:
                shelf.clear_gaps(kept)
        if way.ahead is not None:
            ahead, rows = way.ahead, dense(1, layout.total)
            ahead.kernel.run(ahead.kernel.pack(given, ahead.split), rows, ahead.binding(buffers.addresses, {}))
        before = {BufferRef.state(s.name): _slots(initial) for s, initial in zip(plan.states, states, strict=True)}
        packed = way.kernel.pack(given, way.split)
        way.kernel.run(packed, layout, way.binding(buffers.addresses, before))
        finals = [
            self._final(s, buffers, initial, layout) for s, initial in zip(plan.states, before.values(), strict=True)
        ]
        outputs = [buffers.given(name) for name in way.widths]
        return Ran(outputs[0], finals, outputs[1:], kept)

    @functools.cached_property
    def _plain(self) -> bool:
        """Whether a pass gives outputs and final states, and nothing else is asked for or given."""
        return not (self.plan.named or self.plan.masks or any(s.delays for s in self.plan.states))

    def prepared(self, layout: Layout, weights: dict[str, Tensor]) -> Prepared:
        key = (self, "prepared", threads_here())
        found = layout.calls.get(key)
        if found is None:
            kept = self._kept(layout) if self.trains else None
            found = layout.calls[key] = Prepared(self.plan, self._forward_way(layout), kept, layout, weights)
        return found

    def _empty(self, numbers: int) -> Tensor:
        return allocator.empty((numbers,), self.dtype)

    def _put_inputs(self, buffers: Buffers, x: Tensor, masks: Sequence[Tensor]) -> None:
        buffers.put(X, x)
        for name, mask in zip(self.plan.masks, masks, strict=True):
            buffers.put(BufferRef.mask(name), mask)

    def _forward_way(self, layout: Layout) -> Way:
        key = (self, "forward", threads_here())
        if key not in layout.calls:
            ahead, loop = self.hoisted_kernels if self._worth_hoisting(layout) else (None, self.forward_kernel)
            layout.calls[key] = forward_way(self.plan, loop, layout, self._is_whole, ahead)
        return layout.calls[key]

    def _is_whole(self, state: str) -> bool:
        """Whether all values of a state are kept, or only its last."""
        return self.trains or BufferRef.state(state) == self.plan.output

    def _final(self, state: Any, buffers: Buffers, before: Tensor, layout: Layout) -> Tensor:
        """The last values of each sequence, newest first."""
        whole, depth, buffer = self._is_whole(state.name), state.depth, BufferRef.state(state.name)
        if layout.active is None and not state.delays:
            last = layout.total - layout.rows if whole else (layout.steps - 1) % (depth + 1) * layout.rows
            bytes_a_row = state.size * self.dtype.itemsize
            final = torch.empty((layout.rows, state.size), dtype=self.dtype)
            start = buffers.addresses[buffer] + last * bytes_a_row
            ctypes.memmove(final.data_ptr(), start, layout.rows * bytes_a_row)
            return final
        if not state.delays and layout.counts[0] == layout.rows:
            return buffers[buffer].index_select(0, layout.last(0 if whole else depth + 1))
        if layout.total == 0:
            return before.view(depth, layout.rows, -1).transpose(0, 1).clone() if state.delays else before.clone()
        newest, row, rows = layout.ends() - 1, torch.arange(layout.rows), buffers[buffer]
        values = []
        for j in range(depth):
            t = newest - j
            there = layout.starts[t.clamp(min=0)] if whole else t % (depth + 1) * layout.rows
            data = rows[torch.where(t >= 0, there + row, 0)]
            early = before.view(-1, rows.shape[1])[((-1 - t).clamp(min=0) * layout.rows + row)]
            values.append(torch.where((t >= 0)[:, None], data, early))
        return torch.stack(values, 1) if state.delays else values[0]

    # ------------------------------------------------------------------------------------------ backward

    @hide_from_modes
    def backward(
        self,
        cotangents: Sequence[Tensor | None],
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        needed: Sequence[Tensor],
        wants_states: bool,
    ) -> list[Tensor]:
        """[cotangent of x (empty if the plan has none), of the states if wanted, pieces of those of the weights].

        `needed`: y, the named values and what else `forward` returned for backward."""
        rows = rows_of(x, lengths)
        count, named = 1 + len(states), len(self.plan.named)
        y, names, kept = needed[0], needed[1 : 1 + named], needed[1 + named :]
        if rows.ragged:
            y = kept[1][: rows.layout.total]
        # torch.autograd.graph.saved_tensors_hooks may return saved tensors with other strides.
        ran = Ran(y.contiguous(), [], [rows.gather(v) for v in names], kept[0].contiguous())
        dy, dfinals, dnamed = cotangents[0], cotangents[1:count], cotangents[count : count + named]
        dx, dstates, pieces = self._backward(
            None if dy is None else rows.gather(dy),
            [None if d is None else rows.sort([d])[0] for d in dfinals],
            [None if d is None else rows.gather(d) for d in dnamed],
            rows.gather(x),
            rows.sort(states),
            self._masks(masks, rows),
            weights,
            ran,
            rows.layout,
            wants_states,
        )
        dx = x.new_empty(0) if dx is None else rows.scatter(dx).view(x.shape)
        return [dx, *rows.unsort(dstates), *pieces]

    def _backward(
        self,
        dy: Tensor | None,
        dfinals: Sequence[Tensor | None],
        dnamed: Sequence[Tensor | None],
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        ran: Ran,
        layout: Layout,
        wants_states: bool = True,
    ) -> tuple[Tensor | None, list[Tensor], list[Tensor]]:
        """Cotangents of x (if the plan gives one), of the initial states, and the pieces `gradients` puts together."""
        plan, before = self.plan, [*map(_slots, states)]
        finals = zip(plan.states, dfinals, strict=True)
        spread = (_spread(d, layout) if d is not None and state.delays else d for state, d in finals)
        cotangents = (dy, *dnamed, *spread)
        given = dict(zip(self.weight_names, weights, strict=True))
        call = self._prepared_backward(layout, tuple(d is None for d in cotangents), given)
        way, done = call.way, call(x, masks, before, ran, cotangents, given)
        if not plan.needs_x and not wants_states:
            return None, [], done.pieces
        buffers = Buffers()
        buffers.put(X, x)
        buffers.lay_out(way.shelf, done.shelf)
        if D_X in way.widths:
            buffers.put(D_X, done.dx)
        left = Cotangents(plan, self.runs, buffers, given, layout)
        dx = left.input() if plan.needs_x else None
        dstates = [left.initial(s.name, d) for s, d in zip(plan.states, dfinals, strict=True) if wants_states]
        return dx, dstates, done.pieces

    def _prepared_backward(
        self, layout: Layout, is_missing: tuple[bool, ...], weights: dict[str, Tensor]
    ) -> PreparedBackward:
        """`is_missing`: of each of the plan's cotangents."""
        key = (self, "backward", is_missing, threads_here())
        if key not in layout.calls:
            missing = [*itertools.compress(self.plan.cotangents(), is_missing)]
            way = backward_way(self.plan, self.backward_kernel, layout, missing)
            kept, sums = self._kept(layout), self.summed
            layout.calls[key] = PreparedBackward(self.plan, way, kept, layout, sums, missing, weights)
        return layout.calls[key]


def _slots(initial: Tensor) -> Tensor:
    """(B, depth, size), newest first → (depth, B, size)."""
    return initial.transpose(0, 1).contiguous() if initial.dim() == 3 else initial.contiguous()


def _spread(final: Tensor, layout: Layout) -> Tensor:
    """The cotangent of each sequence's last values (B, depth, size), at the rows of the steps they are of."""
    spread = final.new_zeros(layout.total, final.shape[2])
    newest, row = layout.ends() - 1, torch.arange(layout.rows)
    for j in range(final.shape[1]):
        t = newest - j
        there = t >= 0
        spread[layout.starts[t[there]] + row[there]] += final[there, j]
    return spread
