"""Runs a plan on a GPU: the products before the loop, the loop, and the epilogue after it."""

import functools
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from ...cell import TIME
from ...errors import ShapeError
from ..ir.buffers import (
    D_Y,
    INPUT_PROJECTION,
    LENGTHS,
    ROW_SUMS,
    SUMS,
    BufferRef,
    Role,
    X,
)
from ..ir.lowering import Unsupported
from ..ir.nodes import Node
from ..plan.epilogue import Cotangents, WeightGradients
from ..plan.program import Plan
from ..plan.rows import last_values, spread_final
from ..plan.schedule import Schedule, schedule
from ..torch_modes import hide_from_modes
from . import select
from .epilogue import GpuLoopMemory, PaddedRows
from .persistent.codegen import render
from .persistent.kernel_builder import KernelSpec
from .persistent.launch import PersistentLoop, load_module, processors, shared_memory
from .persistent.tiling import ROW_PER_PROGRAM, Tiling, tiling
from .stepwise import codegen
from .stepwise.run import StepwiseLoop

FULL = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}  # all bits set: not written yet


INDEX_LIMIT = 2**31  # numbers of a step that kernels can address


class GpuExecutor:
    """A plan with its kernels, rendered and compiled when first used."""

    def __init__(self, plan: Plan, dtype: torch.dtype, key: str = ""):
        self.plan, self.dtype, self.key = plan, dtype, key
        self.weight_names, self.histories, self.prologue = plan.weight_names, plan.histories, plan.prologue
        self.runs = plan.runs
        self.obstacles: dict[tuple[int, torch.device], str] = {}  # (batch, device) → why not
        self.loops: dict[Any, PersistentLoop | StepwiseLoop] = {}  # by request
        self.rendered: dict[Any, PersistentLoop] = {}  # by what the text depends on: the tiles of a batch, not its size
        self.stepwise: dict[tuple[bool, str], StepwiseLoop] = {}
        self.refused: set[tuple[bool, int, torch.device]] = set()  # loops whose grid does not fit on the card at once

    @property
    def trains(self) -> bool:
        return self.plan.backward is not None

    @functools.cached_property
    def gradients(self) -> WeightGradients:
        """Makes weight gradients of what `backward` gives."""
        return WeightGradients(self.plan)

    @functools.cached_property
    def forward_schedule(self) -> Schedule:
        return schedule(self.plan.forward)

    @functools.cached_property
    def backward_schedule(self) -> Schedule:
        assert self.plan.backward is not None
        return schedule(self.plan.backward)

    def obstacle(self, batch: int, device: torch.device) -> str:
        """Why these kernels cannot run for a batch; empty if they can."""
        if (batch, device) not in self.obstacles:
            self.obstacles[batch, device] = self._obstacle(batch, device)
        return self.obstacles[batch, device]

    def _obstacle(self, batch: int, device: torch.device) -> str:
        try:
            for backward in (False, True) if self.trains else (False,):
                self.loop(backward, batch, False, device)
        except Unsupported as reason:
            return f"the GPU's kernels do not take {reason}"
        return "" if batch * self._widest < INDEX_LIMIT else "a step has too many numbers"

    @functools.cached_property
    def _widest(self) -> int:
        return max(b.width for b in self.forward_schedule.buffers.values())

    def tiling(self, backward: bool, batch: int, device: torch.device) -> Tiling | None:
        chosen = self.backward_schedule if backward else self.forward_schedule
        size, mode = self.dtype.itemsize, select.forced()
        if device.type != "cpu":
            return tiling(chosen, size, batch, processors(device), shared_memory(device), mode)
        row_per_program = tiling(chosen, size, batch, 1, 0, ROW_PER_PROGRAM) if mode == ROW_PER_PROGRAM else None
        wide = max([8, *(group.width for group in chosen.groups)])
        return row_per_program or Tiling(1 << (wide - 1).bit_length(), 1, 16, 1, "registers")

    def loop(self, backward: bool, batch: int, ragged: bool, device: torch.device) -> PersistentLoop | StepwiseLoop:
        asked = (backward, batch, ragged, _precision(self.dtype), device, select.forced())
        if asked not in self.loops:
            self.loops[asked] = self._chosen_loop(*asked[:-1])
        return self.loops[asked]

    def why_stepwise(self, backward: bool, batch: int, device: torch.device) -> str:
        """What speaks for a loop step by step; empty: one kernel runs all steps."""
        if (backward, batch, device) in self.refused:
            return "the card did not take all programs of one kernel at once"
        shape = self.tiling(backward, batch, device)
        reason = select.why_stepwise(shape, batch, device, "backward" if backward else "forward")
        if reason or shape is None:
            return reason
        try:
            self._one_kernel(backward, shape, False, _precision(self.dtype), device)
        except Unsupported as missing:
            return f"one kernel for all steps does not take {missing}"
        return ""

    def way(self, batch: int, device: torch.device) -> str:
        """How a loop forward runs, in a few words."""
        by_kernel = isinstance(self.loop(False, batch, False, device), PersistentLoop)
        return "one kernel runs all steps" if by_kernel else "products and one kernel at each step"

    def _chosen_loop(
        self, backward: bool, batch: int, ragged: bool, precision: str, device: torch.device
    ) -> PersistentLoop | StepwiseLoop:
        if self.why_stepwise(backward, batch, device):
            return self._stepwise_loop(backward, precision)
        shape = self.tiling(backward, batch, device)
        assert shape is not None
        return self._one_kernel(backward, shape, ragged, precision, device)

    def _one_kernel(self, *key: Any) -> PersistentLoop:
        if key not in self.rendered:
            self.rendered[key] = self._new_loop(*key)
        return self.rendered[key]

    def _new_loop(
        self, backward: bool, shape: Tiling, ragged: bool, precision: str, device: torch.device
    ) -> PersistentLoop:
        chosen = self.backward_schedule if backward else self.forward_schedule
        bits, interpreted = 8 * self.dtype.itemsize, device.type == "cpu"
        by_warp = not interpreted and torch.cuda.get_device_capability(device) >= (9, 0)
        kind = KernelSpec(backward, ragged, self.trains, interpreted, by_warp, bits, precision)
        rendered = render(chosen, self.plan, shape, kind)
        return PersistentLoop(rendered, shape, load_module(rendered.text).kernel)

    def _stepwise_loop(self, backward: bool, precision: str) -> StepwiseLoop:
        if (backward, precision) not in self.stepwise:
            chosen = self.backward_schedule if backward else self.forward_schedule
            made = codegen.render(chosen, self.plan, backward, self.trains, self.dtype)
            self.stepwise[backward, precision] = StepwiseLoop(made, load_module(made.text), backward, self.dtype)
        return self.stepwise[backward, precision]

    def _refuse(self, *loop: Any) -> None:
        """From now on, this loop runs step by step."""
        self.refused.add(loop)
        self.loops = {asked: known for asked, known in self.loops.items() if (*asked[:2], asked[4]) != loop}

    # ------------------------------------------------------------------------------------------ forward

    def kept_shapes(self, rows: Any, ragged: bool) -> list[tuple]:
        """Shapes of what `forward` adds for backward."""
        buffers = self.plan.forward.buffers
        return [(rows, buffers[name].width) for name in (*self.histories, *self.plan.kept)]

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
        """[y, final states, named values, histories of the states that are not y, what else backward needs]."""
        steps, batch = x.shape[:2]
        if batch * self._widest >= INDEX_LIMIT:
            raise ShapeError(
                "x", f"a batch of {batch}", f"at most {INDEX_LIMIT // self._widest} for this cell on a GPU"
            )
        given = dict(zip(self.weight_names, weights, strict=True))
        loop = self.loop(False, batch, lengths is not None, x.device)
        bound = self._inputs(x, states, masks, given, lengths)
        allocator = _LoopAllocator(self, x, steps * batch, loop.rendered.exchanged)
        if loop.rendered.lanes:
            of_input = torch.cat([_input_matrix(lane, given, bound[X]) for lane, _ in loop.rendered.lanes])
            bound[INPUT_PROJECTION] = bound[X] @ of_input.t()
        for state in self.plan.states:
            history = BufferRef.state(state.name)
            stored = history == self.plan.output or history in loop.rendered.arguments
            if self.trains or state.delays or stored:
                bound[history] = allocator.rows(history, state.size)
            bound[BufferRef.final(state.name)] = x.new_empty(batch, state.size)
        allocator.bind_rest(bound, loop, self.forward_schedule, batch)
        for state in self.plan.states:  # a product gives all NaNs the same bits, never those of "nothing yet"
            if BufferRef.state(state.name) in loop.rendered.exchanged:
                initial = BufferRef.initial(state.name)
                bound[initial] = bound[initial] * 1.0
        try:
            loop(bound, steps, batch)
        except select.LaunchRefused:
            self._refuse(False, batch, x.device)
            return self.forward(x, states, masks, weights, lengths)
        finals = [self._final(state, bound, steps, batch) for state in self.plan.states]
        y = bound[self.plan.output]
        rest = [bound[buffer] for buffer in self.plan.named.values()]
        kept = [bound[buffer] for buffer in (*self.histories, *self.plan.kept)] if self.trains else []
        return [_by_step(y, steps), *finals, *(_by_step(v, steps) for v in rest), *kept]

    def _inputs(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        given: Mapping[str, Tensor],
        lengths: Tensor | None,
    ) -> dict[BufferRef, Tensor]:
        bound = {X: _contiguous(x.reshape(-1, x.shape[-1]))}
        for name, mask in zip(self.plan.masks, masks, strict=True):
            bound[BufferRef.mask(name)] = _contiguous(mask.reshape(-1, mask.shape[-1]))
        for state, value in zip(self.plan.states, states, strict=True):
            slots = value.transpose(0, 1) if state.delays else value
            initial = _contiguous(slots)
            bound[BufferRef.initial(state.name)] = initial.float() if state.name == TIME else initial
        bound |= {BufferRef.weight(name): _contiguous(weight) for name, weight in given.items()}
        if lengths is not None:
            bound[LENGTHS] = lengths.to(x.device, torch.int32)
        return bound

    def _final(self, state: Any, bound: dict[BufferRef, Tensor], steps: int, batch: int) -> Tensor:
        if not state.delays and state.name != TIME:
            return bound[BufferRef.final(state.name)]
        initial, history = bound[BufferRef.initial(state.name)], BufferRef.state(state.name)
        rows = PaddedRows(steps, batch, bound.get(LENGTHS), initial.device)
        if state.name == TIME:
            if self.trains:
                time = torch.arange(1, steps + 1, device=initial.device)[:, None]
                bound[history].copy_((initial.view(1, batch) + time).reshape(-1, 1))
            return (initial + rows.ends()[:, None]).to(self.dtype)
        return last_values(bound[history], initial, state.depth, rows)

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
        """[the cotangent of x, or nothing, those of the states if wanted, and pieces of those of the weights].

        `needed`: y, the named values and what else `forward` returned for backward."""
        count, named = 1 + len(states), len(self.plan.named)
        received = cotangents[0], cotangents[1:count], cotangents[count : count + named]
        results = needed[0], needed[1 : 1 + named], needed[1 + named :]
        steps, batch = x.shape[:2]
        given = dict(zip(self.weight_names, weights, strict=True))
        loop = self.loop(True, batch, lengths is not None, x.device)
        if lengths is not None:  # an infinite number in the padding must not reach a gradient
            running = torch.arange(steps, device=x.device)[:, None] < lengths.to(x.device)
            x = x.masked_fill(~running[..., None], 0.0)
        bound = self._inputs(x, states, masks, given, lengths)
        allocator = _LoopAllocator(self, x, steps * batch, loop.rendered.exchanged)
        self._bind_results(bound, results)
        self._bind_cotangents(bound, received, steps, batch, allocator, wants_states)
        allocator.bind_rest(bound, loop, self.backward_schedule, batch)
        try:
            loop(bound, steps, batch)
        except select.LaunchRefused:
            self._refuse(True, batch, x.device)
            return self.backward(cotangents, x, states, masks, weights, lengths, needed, wants_states)
        memory = GpuLoopMemory(self.plan, bound, steps, batch)
        left = Cotangents(self.plan, memory, given)
        dx = left.of_x() if self.plan.needs_x else x.new_empty(0)
        dstates = [left.of_initial(s, d) for s, d in zip(self.plan.states, received[1], strict=True) if wants_states]
        sums = bound[SUMS].sum(0).to(self.dtype) if SUMS in bound else x.new_empty(0)
        return [dx.view(x.shape) if self.plan.needs_x else dx, *dstates, *map(memory.sum_over_time, self.runs), sums]

    def _bind_results(
        self, bound: dict[BufferRef, Tensor], results: tuple[Tensor, Sequence[Tensor], Sequence[Tensor]]
    ) -> None:
        y, named, kept = results
        flat = y.reshape(-1, y.shape[-1])
        bound[self.plan.output] = flat
        bound |= dict(zip([*self.histories, *self.plan.kept], kept, strict=True))
        bound |= {n: v.reshape(-1, v.shape[-1]) for n, v in zip(self.plan.named.values(), named, strict=True)}

    def _bind_cotangents(
        self,
        bound: dict[BufferRef, Tensor],
        cotangents: Any,
        steps: int,
        batch: int,
        allocator: "_LoopAllocator",
        wants_states: bool,
    ) -> None:
        dy, dfinals, dnamed = cotangents
        assert self.plan.backward is not None
        outputs = {D_Y: dy} | {BufferRef.d_named(n): d for n, d in zip(self.plan.named, dnamed, strict=True)}
        for buffer, value in outputs.items():
            width = self.plan.backward.buffers[buffer].width
            bound[buffer] = allocator.zeros(width) if value is None else _contiguous(value.reshape(-1, width))
        zeros = functools.cache(bound[X].new_zeros)  # shared by states of one shape
        unread = functools.cache(bound[X].new_empty)
        for state, value in zip(self.plan.states, dfinals, strict=True):
            final = zeros(state.shape(batch)) if value is None else _contiguous(value)
            if state.delays:
                rows = PaddedRows(steps, batch, bound.get(LENGTHS), final.device)
                final = spread_final(final, rows)
            bound[BufferRef.d_final(state.name)] = final
            start = (batch, state.size)
            d_initial = BufferRef.d_initial(state.name)
            bound[d_initial] = bound[X].new_zeros(start) if wants_states else unread(start)


def _by_step(rows: Tensor, steps: int) -> Tensor:
    """The same memory as (T, B, n). It is no view for autograd, so operations in place are allowed on it."""
    shape = (steps, rows.shape[0] // steps, rows.shape[1])
    result = torch.empty(0, dtype=rows.dtype, device=rows.device)
    return result.set_(rows.untyped_storage(), rows.storage_offset(), shape, (shape[1] * shape[2], shape[2], 1))


def _precision(dtype: torch.dtype) -> str:
    """How 32-bit numbers are multiplied, following torch's setting: as TF32, or exactly, in three products."""
    return "x3" if dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32 else "tf32"


class _LoopAllocator:
    """Allocates the buffers that a loop writes. Those that programs exchange start with all bits set."""

    def __init__(self, made: GpuExecutor, like: Tensor, rows: int, exchanged: Set[BufferRef]):
        self.made, self.like, self.count, self.exchanged = made, like, rows, exchanged

    def rows(self, buffer: BufferRef, width: int, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.made.dtype
        if buffer in self.exchanged:
            return torch.full((self.count, width), -1, dtype=FULL[dtype], device=self.like.device).view(dtype)
        return torch.empty((self.count, width), dtype=dtype, device=self.like.device)

    def zeros(self, width: int) -> Tensor:
        return torch.zeros(self.count, width, dtype=self.made.dtype, device=self.like.device)

    def bind_rest(
        self, bound: dict[BufferRef, Tensor], loop: PersistentLoop | StepwiseLoop, schedule: Schedule, batch: int
    ) -> None:
        """Bind every argument that is not bound yet."""
        for buffer in loop.rendered.arguments:
            if buffer in bound:
                continue
            if buffer == SUMS:
                total = sum(node.width for _, node in schedule.sums)
                bound[buffer] = torch.zeros(loop.tiles(batch), total, dtype=loop.summed_in, device=self.like.device)
            elif buffer == ROW_SUMS:
                assert isinstance(loop, PersistentLoop)
                bound[buffer] = self.rows(buffer, len(schedule.rowsums) * loop.tiling.programs, torch.float32)
            else:
                dtype = torch.float32 if buffer.role is Role.CARRY else None
                bound[buffer] = self.rows(buffer, schedule.buffers[buffer].width, dtype)


def _input_matrix(lane: Node, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """The matrix by which a lane multiplies x, (width, inputs)."""
    parts = [
        (a.attr.offset, m) for a, m in zip(lane.args, lane.attr, strict=True) if a.op == "load" and a.attr.buffer == X
    ]
    if len(parts) == 1 and parts[0][1].deep == x.shape[1]:
        return parts[0][1].of(weights)
    total = x.new_zeros(lane.width, x.shape[1])
    for offset, matrix in parts:
        total[:, offset : offset + matrix.deep] += matrix.of(weights)
    return total


def _contiguous(value: Tensor) -> Tensor:
    """Contiguous memory that holds the numbers themselves: kernels know nothing of torch's negated views."""
    return value.contiguous().resolve_neg()
