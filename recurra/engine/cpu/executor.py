"""Run a plan on the CPU: forward, backward, and the products that were left for after the loop."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..backend import warn_once
from ..ir.buffers import BufferRef, X
from ..plan.affine import is_scan
from ..plan.epilogue import Cotangents, WeightGradients
from ..plan.input_gradient import input_gradient
from ..plan.input_projection import SplitProgram, split_gates, split_input_projection, split_readout
from ..plan.nests import FEWEST
from ..plan.program import Plan, Product, Program
from ..plan.rows import spread_final
from ..torch_modes import hide_from_modes
from .arena import Arena, padded_size
from .backward_call import BackwardCall, CpuLoopMemory
from .call import ForwardCall, Ran, by_slot, has_only_finals
from .compiler import BuildError
from .kernel import CACHE, WORTH_THREADS, Kernel, threads_here
from .launch_plan import LaunchPlan, plan_backward, plan_forward
from .layout import Layout
from .packing import Split
from .ragged_rows import Rows, rows_of
from .weight_grads import MatrixGradients

CALLS = 64  # prepared calls that an executor keeps
FEWEST_ROWS = 3  # up to which a product reads a weight for next to nothing


class ForwardKernels(NamedTuple):
    """The kernels of a forward pass: the loop, and what runs on the rows of all steps before it and after it."""

    ahead: Kernel | None
    loop: Kernel
    after: Kernel | None


class CpuExecutor:
    """A plan with its kernels. Compiled when first used, for the dtype it is used with."""

    fault = ""  # how it was seen to differ from the plain loop

    def __init__(self, plan: Plan, dtype: torch.dtype, key: str = "", scan: bool = False):
        """`scan`: what reads no state is computed ahead of the loop, whatever the sizes."""
        self.plan, self.dtype, self.key, self.scan = plan, dtype, key, scan
        self.checked: set[bool] = set()  # kinds of calls that agreed with the plain loop: dense (False), ragged (True)
        self.trains = plan.backward is not None
        self.has_delays = any(state.delays for state in plan.states)
        self.is_built = False  # whether its kernels were compiled
        self.calls: dict[tuple, Any] = {}  # prepared calls, the oldest first
        self.weight_names, self.histories, self.prologue = plan.weight_names, plan.histories, plan.prologue

    def _kernel(self, program: Program, backward: bool) -> Kernel:
        return Kernel(program, self.dtype, backward, as_written=self.plan.compares_numbers)

    @functools.cached_property
    def forward_kernel(self) -> Kernel:
        return self._kernel(self.plan.forward, backward=False)

    @functools.cached_property
    def matrices(self) -> int:
        """Numbers a row of states that are matrices."""
        return sum(state.size for state in self.plan.states if state.axes and state.size >= FEWEST)

    @functools.cached_property
    def hoisted(self) -> SplitProgram:
        """The products with x ahead of the loop; all that reads no state, if every state is affine in itself or a
        matrix, which leaves little of the cache to weights."""
        gates = is_scan(self.plan) or self.matrices > 0
        return (split_gates if gates else split_input_projection)(self.plan.forward)

    @functools.cached_property
    def hoisted_kernels(self) -> ForwardKernels:
        """For what runs ahead of the loop, for the loop, and for what reads its states. They are compiled when first
        needed: if that fails by then, the kernel that has everything in its loop serves."""
        apart = is_scan(self.plan) and not self.matrices  # a matrix is read while the cache has it
        loop, after = split_readout(self.hoisted.loop) if apart else (self.hoisted.loop, None)
        try:
            with ThreadPoolExecutor(2) as pool:
                made = pool.map(
                    lambda program: None if program is None else self._kernel(program, backward=False),
                    (self.hoisted.ahead, loop, after),
                )
                ahead, inner, last = made
        except BuildError as error:
            warn_once(f"Products with x stay in the loop over time. {error}")
            return ForwardKernels(None, self.forward_kernel, None)
        assert inner is not None
        return ForwardKernels(ahead, inner, last)

    def _worth_hoisting(self, layout: Layout) -> bool:
        """Whether the weights a step need no longer read outweigh the memory in between. They do not where they are at
        hand, unless rows are so few that reading them is all that a step does."""
        split = self.forward_kernel.split(layout, layout.rows)
        if layout.steps == 1:
            return False  # every weight is read once either way
        if self.scan:
            return bool(self.hoisted.ahead.outs)
        if not self._fills_cache(split, layout) and layout.rows > FEWEST_ROWS:
            return False
        readers = 1 if split.by_unit else split.threads
        return 16 * layout.total * self.hoisted.width < readers * layout.steps * self.hoisted.numbers

    def _fills_cache(self, split: Split, layout: Layout) -> bool:
        """Whether a step of the loop finds weights in the cache no more: they exceed it, or fill it with matrices."""
        kernel, sharers = self.forward_kernel, split.threads if split.by_unit else 1
        matrices = 2 * self.matrices * self.dtype.itemsize * -(-layout.rows // split.threads)  # before and after a step
        return kernel.exceeds_cache(split) or kernel.weight_bytes // sharers + matrices > CACHE

    @functools.cached_property
    def backward_kernel(self) -> Kernel:
        assert self.plan.backward is not None
        return self._kernel(self.plan.backward, backward=True)

    @functools.cached_property
    def hoisted_backward_kernels(self) -> tuple[Kernel | None, Kernel]:
        """For what reads no later step, if products do, and for the loop."""
        assert self.plan.backward is not None
        split = split_gates(self.plan.backward) if is_scan(self.plan) and not self.matrices else None
        if split is None or not split.mixes_units:
            return None, self.backward_kernel
        try:
            return self._kernel(split.ahead, backward=False), self._kernel(split.loop, backward=True)
        except BuildError as error:
            warn_once(f"Products stay in the loop backward. {error}")
            return None, self.backward_kernel

    def _backward_kernels(self, layout: Layout, missing: Sequence[BufferRef]) -> tuple[Kernel | None, Kernel]:
        """What runs before the loop backward, if anything, and the loop. Cotangents that are missing are no rows."""
        if self._worth_hoisting(layout):
            ahead, loop = self.hoisted_backward_kernels
            if ahead is not None and not any(buffer in missing for buffer in ahead.tables.buffers):
                return ahead, loop
        return None, self.backward_kernel

    @functools.cached_property
    def input_gradient_kernel(self) -> Kernel | None:
        """Makes the gradient of x; None if torch does, since x is read in parts or the code does not compile."""
        program = input_gradient(self.plan)
        if program is None:
            return None
        try:
            return self._kernel(program, backward=False)
        except BuildError as error:
            warn_once(f"torch multiplies the gradient of x. {error}")
            return None

    def _worth_own_gradient(self, layout: Layout) -> bool:
        """Whether the gradient of x is asked for, and so large that preparing a kernel's call takes no time beside."""
        sizes = (p.matrix.wide * p.matrix.deep for p in self.plan.products if p.operand.buffer == X)
        return self.plan.needs_x and sum(sizes) * layout.total >= WORTH_THREADS

    @property
    def runs(self) -> list[list[Product]]:
        return self.plan.runs

    @functools.cached_property
    def summed(self) -> MatrixGradients:
        return MatrixGradients(self.plan, self.dtype)

    @functools.cached_property
    def gradients(self) -> WeightGradients:
        """Makes weight gradients of what `backward` gives."""
        return WeightGradients(self.plan)

    @functools.cached_property
    def can_step(self) -> bool:
        """Whether a single step can be prepared: the step reads x, and weights as they are."""
        return not self.plan.derived_weights and X in self.forward_kernel.tables.buffers

    def kept_numbers(self, rows: Any) -> Any:
        """Numbers that are kept for backward, of so many rows."""
        buffers = self.plan.forward.buffers
        return sum(
            padded_size(rows * buffers[n].width, self.dtype.itemsize) for n in (*self.histories, *self.plan.kept)
        )

    def _kept(self, layout: Layout) -> Arena:
        """The arena of what backward reads."""
        buffers = self.plan.forward.buffers
        shapes = {name: (layout.total, buffers[name].width) for name in (*self.histories, *self.plan.kept)}
        return Arena(shapes, self.dtype)

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
        read = dict(zip(self.weight_names, weights, strict=True))
        call = self.forward_call(rows.layout, read)
        numbers = self.kept_numbers(x.shape[0] * x.shape[1]) if padded and self.trains else None
        ran = call(rows.gather(x), self._masks(masks, rows), rows.sort(states), call.pack(read), numbers)
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

    def kept_like(self, x: Tensor, ragged: bool) -> list[Tensor]:
        """Empty tensors like what `forward` adds for backward."""
        return [x.new_empty(shape) for shape in self.kept_shapes(x.shape[0] * x.shape[1], ragged)]

    def _masks(self, masks: Sequence[Tensor], rows: Rows) -> list[Tensor]:
        kinds = self.plan.masks.values()
        return [rows.gather(m) if each == "step" else rows.sort([m])[0] for each, m in zip(kinds, masks, strict=True)]

    def forward_call(self, layout: Layout, weights: Mapping[str, Tensor], single_step: bool = False) -> ForwardCall:
        """The prepared forward call over a layout."""
        key = (layout, single_step, threads_here())
        found = self.calls.get(key)
        if found is None:
            kept = self._kept(layout) if self.trains else None
            found = ForwardCall(self.plan, self._plan_forward(layout), kept, layout, weights, single_step)
            self._remember(key, found)
        return found

    def _remember(self, key: tuple, call: Any) -> None:
        self.calls[key] = call
        while len(self.calls) > CALLS:
            self.calls.pop(next(iter(self.calls)))

    def forward_kernels(self, layout: Layout) -> ForwardKernels:
        """What runs before, in and after the loop."""
        return self.hoisted_kernels if self._worth_hoisting(layout) else ForwardKernels(None, self.forward_kernel, None)

    def _plan_forward(self, layout: Layout) -> LaunchPlan:
        ahead, loop, after = self.forward_kernels(layout)
        whole = self.trains or has_only_finals(self.plan, layout)
        return plan_forward(
            self.plan, loop, layout, lambda state: whole or BufferRef.state(state) == self.plan.output, ahead, after
        )

    # ------------------------------------------------------------------------------------------ backward

    def cotangents(
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
        """What `backward` gives, with the cotangents of the weights put together."""
        result = self.backward(cotangents, x, states, masks, weights, lengths, needed, wants_states)
        count = 1 + len(states) * wants_states
        return [*result[:count], *self.gradients(result[count:], weights)]

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
        ran = Ran(y.contiguous(), (), [rows.gather(v) for v in names], kept[0].contiguous())
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
        plan, initial = self.plan, [*map(by_slot, states)] if self.has_delays else states
        finals = zip(plan.states, dfinals, strict=True)
        spread = (spread_final(d, layout) if d is not None and state.delays else d for state, d in finals)
        cotangents = (dy, *dnamed, *spread)
        given = dict(zip(self.weight_names, weights, strict=True))
        call = self._backward_call(layout, tuple(d is None for d in cotangents), given)
        launch, done = call.launch, call(x, masks, initial, ran, cotangents, given)
        if not plan.needs_x and not wants_states:
            return None, [], done.pieces
        left = Cotangents(plan, CpuLoopMemory(launch, done, layout), given)
        dx = None if not plan.needs_x else done.dx if call.gives_dx else left.of_x()
        dstates = [left.of_initial(s, d) for s, d in zip(plan.states, dfinals, strict=True) if wants_states]
        return dx, dstates, done.pieces

    def _backward_call(self, layout: Layout, is_missing: tuple[bool, ...], weights: dict[str, Tensor]) -> BackwardCall:
        """`is_missing`: of each of the plan's cotangents."""
        key = (layout, is_missing, threads_here())
        found = self.calls.get(key)
        if found is None:
            missing = [*itertools.compress(self.plan.cotangents(), is_missing)]
            ahead, loop = self._backward_kernels(layout, missing)
            launch = plan_backward(self.plan, loop, layout, missing)
            of_x = self.input_gradient_kernel if self._worth_own_gradient(layout) else None
            kept = self._kept(layout)
            found = BackwardCall(self.plan, launch, kept, layout, self.summed, missing, weights, ahead, of_x)
            self._remember(key, found)
        return found
