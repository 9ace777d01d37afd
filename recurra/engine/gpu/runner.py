"""Runs a plan on a GPU: the products before the loop, the loop, and the epilogue after it."""

import functools
from collections.abc import Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from ...cell import TIME
from ...errors import ShapeError
from ..ir.buffers import (
    CLOCK,
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
from ..plan.affine import is_scan
from ..plan.epilogue import Cotangents, WeightGradients
from ..plan.program import Plan
from ..plan.rows import last_values, spread_final
from ..plan.schedule import Schedule
from ..restarts import as_mask
from ..torch_modes import hide_from_modes
from . import by_length, select
from .epilogue import GpuLoopMemory, PaddedRows
from .flat_inputs import join_backward, join_inputs, split_backward, split_inputs
from .graph_calls import GraphCalls
from .loops import GpuLoops, precision_of
from .persistent.launch import PersistentLoop
from .persistent.tiling import is_x
from .scan.run import GpuScan
from .stepwise.run import StepwiseLoop

FULL = {
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}  # all bits set: not written yet
MOST_LAUNCHES = 512  # of a loop step by step that is one CUDA graph
INDEX_LIMIT = 2**31  # numbers of a step that kernels can address


class GpuExecutor:
    """A plan with its kernels, rendered and compiled when first used."""

    fault = ""  # how it was seen to differ from the plain loop
    why_no_scan = ""  # though every state allows one

    def __init__(self, plan: Plan, dtype: torch.dtype, key: str = ""):
        self.plan, self.dtype, self.key = plan, dtype, key
        self.checked: set[bool] = set()  # kinds of calls that agreed with the plain loop: dense (False), ragged (True)
        self.weight_names, self.histories, self.prologue = plan.weight_names, plan.histories, plan.prologue
        self.runs = plan.runs
        self.obstacles: dict[tuple[int, torch.device], str] = {}  # (batch, device) → why not
        self.loops = GpuLoops(plan, dtype)
        self.graphs = GraphCalls()

    @property
    def trains(self) -> bool:
        return self.plan.backward is not None

    @functools.cached_property
    def gradients(self) -> WeightGradients:
        """Makes weight gradients of what `backward` gives."""
        return WeightGradients(self.plan)

    def obstacle(self, batch: int, device: torch.device) -> str:
        """Why these kernels cannot run for a batch; empty if they can."""
        if (batch, device) not in self.obstacles:
            self.obstacles[batch, device] = self._obstacle(batch, device)
        return self.obstacles[batch, device]

    def _obstacle(self, batch: int, device: torch.device) -> str:
        try:
            for backward in (False, True) if self.trains else (False,):
                self.loops.find(backward, batch, False, device)
        except Unsupported as reason:
            return f"the GPU's kernels do not take {reason}"
        return "" if batch * self._widest < INDEX_LIMIT else "a step has too many numbers"

    def way(self, batch: int, device: torch.device) -> str:
        """How a call forward runs, in a few words."""
        if self.scans(2):
            return "all steps at once, as a scan over time"
        return self.loops.way(batch, device)

    @functools.cached_property
    def scan(self) -> GpuScan | None:
        """The scan over time that takes the place of the loops, if every state allows one."""
        try:
            return GpuScan(self.plan, self.dtype) if is_scan(self.plan) else None
        except Unsupported as reason:
            self.why_no_scan = str(reason)
            return None

    def scans(self, steps: int) -> bool:
        """Whether a call of so many steps runs as a scan over time."""
        return steps > 1 and not select.forced() and self.scan is not None

    @functools.cached_property
    def _widest(self) -> int:
        return max(b.width for b in self.loops.forward_schedule.buffers.values())

    # ------------------------------------------------------------------------------------------ forward

    def kept_shapes(self, rows: Any, ragged: bool) -> list[tuple]:
        """Shapes of what `forward` adds for backward."""
        buffers = self.plan.forward.buffers
        return [(rows, buffers[name].width) for name in (*self.histories, *self.plan.kept)]

    def kept_like(self, x: Tensor, ragged: bool) -> list[Tensor]:
        """Empty tensors like what `forward` adds for backward."""
        return [x.new_empty(shape) for shape in self.kept_shapes(x.shape[0] * x.shape[1], ragged)]

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
        if x.shape[1] * self._widest >= INDEX_LIMIT:
            raise ShapeError(
                "x", f"a batch of {x.shape[1]}", f"at most {INDEX_LIMIT // self._widest} for this cell on a GPU"
            )
        if not self._is_replayable(False, x, lengths):
            return self._forward(x, states, masks, weights, lengths)
        ragged, inputs = lengths is not None, join_inputs([x, *states, *masks, *weights], lengths)
        key = False, ragged, precision_of(self.dtype), select.forced()
        return self.graphs(functools.partial(self._forward_flat, ragged), inputs, key)

    def _is_replayable(self, backward: bool, x: Tensor, lengths: Tensor | None) -> bool:
        """Whether a CUDA graph may run the call; a long loop step by step has graphs of its own."""
        if not x.is_cuda or self.scans(x.shape[0]):
            return x.is_cuda
        loop = self.loops.find(backward, x.shape[1], lengths is not None, x.device)
        return isinstance(loop, PersistentLoop) or loop.launches(x.shape[0]) <= MOST_LAUNCHES

    def _forward_flat(self, ragged: bool, inputs: Sequence[Tensor]) -> list[Tensor]:
        return self._forward(*split_inputs(self.plan, ragged, iter(inputs)))

    def _forward(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        given_loop: PersistentLoop | None = None,
    ) -> list[Tensor]:
        """`given_loop`: to run instead of the chosen one."""
        if lengths is not None and self._sorts_rows(x):
            return by_length.forward(self, x, states, masks, weights, lengths)
        return self.forward_in_order(x, states, masks, weights, lengths, given_loop)

    def _sorts_rows(self, x: Tensor) -> bool:
        """Whether rows of different lengths are sorted: the same for both passes, whatever loops run them."""
        return self.scan is None and self.loops.takes_turns(x.shape[1], x.device)

    def forward_in_order(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        given_loop: PersistentLoop | None = None,
    ) -> list[Tensor]:
        steps, batch = x.shape[:2]
        given = dict(zip(self.weight_names, weights, strict=True))
        if given_loop is None and self.scans(steps):
            return self._scan_forward(x, states, masks, given, lengths)
        loop = given_loop or self.loops.find(False, batch, lengths is not None, x.device)
        bound = self._inputs(x, states, masks, given, lengths)
        bound |= self.loops.inputs_ahead.compute(bound, given, PaddedRows(steps, batch, None, x.device))
        allocator = _LoopAllocator(self, x, steps * batch, loop.rendered.exchanged)
        if loop.rendered.lanes:
            bound[INPUT_PROJECTION] = _project([lane for lane, _ in loop.rendered.lanes], bound, given)
        for state in self.plan.states:
            history = BufferRef.state(state.name)
            stored = history == self.plan.output or history in loop.rendered.arguments
            if self.trains or state.delays or stored:
                bound[history] = allocator.rows(history, state.size)
            bound[BufferRef.final(state.name)] = x.new_empty(batch, state.size)
        allocator.bind_rest(bound, loop, self.loops.forward_schedule, batch)
        for state in self.plan.states:  # a product gives all NaNs the same bits, never those of "nothing yet"
            if BufferRef.state(state.name) in loop.rendered.exchanged:
                initial = BufferRef.initial(state.name)
                bound[initial] = bound[initial] * 1.0
        try:
            loop(bound, steps, batch)
        except select.LaunchRefused:
            self.loops.refuse(False, batch, x.device)
            return self.forward_in_order(x, states, masks, weights, lengths)
        return self._results(bound, steps, batch)

    def _results(self, bound: dict[BufferRef, Tensor], steps: int, batch: int) -> list[Tensor]:
        finals = [self._final(state, bound, steps, batch) for state in self.plan.states]
        y = bound[self.plan.output]
        rest = [bound[buffer] for buffer in self.plan.named.values()]
        kept = [bound[buffer] for buffer in (*self.histories, *self.plan.kept)] if self.trains else []
        return [_by_step(y, steps), *finals, *(_by_step(v, steps) for v in rest), *kept]

    def _scan_forward(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        given: Mapping[str, Tensor],
        lengths: Tensor | None,
    ) -> list[Tensor]:
        steps, batch = x.shape[:2]
        bound = self._inputs(x, states, masks, given, lengths)
        if self.trains and any(state.name == TIME for state in self.plan.states):
            bound[CLOCK] = x.new_empty(steps * batch, 1)
        assert self.scan is not None
        self.scan.forward(bound, given, PaddedRows(steps, batch, bound.get(LENGTHS), x.device))
        return self._results(bound, steps, batch)

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
            rows = as_mask(mask, self.dtype)
            bound[BufferRef.mask(name)] = _contiguous(rows.reshape(-1, rows.shape[-1]))
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
        return self._replay_backward(False, cotangents, [x, *states, *masks, *weights], lengths, needed, wants_states)

    @hide_from_modes
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
        """The same with the cotangents of the weights themselves."""
        return self._replay_backward(True, cotangents, [x, *states, *masks, *weights], lengths, needed, wants_states)

    def _replay_backward(
        self,
        assembled: bool,
        cotangents: Sequence[Tensor | None],
        given: list[Tensor],
        lengths: Tensor | None,
        needed: Sequence[Tensor],
        wants_states: bool,
    ) -> list[Tensor]:
        present, inputs = join_backward(given, lengths, needed, cotangents)
        form = assembled, present, lengths is not None, wants_states
        run = functools.partial(self._backward_flat, *form)
        if not self._is_replayable(True, given[0], lengths):
            return run(inputs)
        key = True, form, precision_of(self.dtype), select.forced()
        return self.graphs(run, inputs, key, flat=1 + len(self.plan.states) * wants_states)

    def _backward_flat(
        self, assembled: bool, present: Sequence[bool], ragged: bool, wants_states: bool, inputs: Sequence[Tensor]
    ) -> list[Tensor]:
        left = 1 + len(self.plan.named) + len(self.histories) + len(self.plan.kept)
        given, needed, cotangents = split_backward(self.plan, ragged, left, present, inputs)
        result = self._backward(cotangents, *given, needed, wants_states)
        count = 1 + len(given.states) * wants_states
        return [*result[:count], *self.gradients(result[count:], given.weights)] if assembled else result

    def _backward(
        self,
        cotangents: Sequence[Tensor | None],
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        needed: Sequence[Tensor],
        wants_states: bool,
        given_loop: PersistentLoop | None = None,
    ) -> list[Tensor]:
        if lengths is not None and self._sorts_rows(x):
            return by_length.backward(self, cotangents, x, states, masks, weights, lengths, needed, wants_states)
        if lengths is not None:  # an infinite number in the padding must not reach a gradient
            running = torch.arange(x.shape[0], device=x.device)[:, None] < lengths.to(x.device)
            x = x.masked_fill(~running[..., None], 0.0)
        return self.backward_in_order(cotangents, x, states, masks, weights, lengths, needed, wants_states, given_loop)

    def backward_in_order(
        self,
        cotangents: Sequence[Tensor | None],
        x: Tensor,
        states: Sequence[Tensor],
        masks: Sequence[Tensor],
        weights: Sequence[Tensor],
        lengths: Tensor | None,
        needed: Sequence[Tensor],
        wants_states: bool,
        given_loop: PersistentLoop | None = None,
    ) -> list[Tensor]:
        count, named = 1 + len(states), len(self.plan.named)
        received = cotangents[0], cotangents[1:count], cotangents[count : count + named]
        results = needed[0], needed[1 : 1 + named], needed[1 + named :]
        steps, batch = x.shape[:2]
        given = dict(zip(self.weight_names, weights, strict=True))
        scanned = given_loop is None and self.scans(steps)
        loop = None if scanned else given_loop or self.loops.find(True, batch, lengths is not None, x.device)
        bound = self._inputs(x, states, masks, given, lengths)
        allocator = _LoopAllocator(self, x, steps * batch, loop.rendered.exchanged if loop else frozenset())
        self._bind_results(bound, results)
        self._bind_cotangents(bound, received, steps, batch, allocator, wants_states)
        if loop is None:
            assert self.scan is not None
            self.scan.backward(bound, given, PaddedRows(steps, batch, bound.get(LENGTHS), x.device))
        else:
            allocator.bind_rest(bound, loop, self.loops.backward_schedule, batch)
            try:
                loop(bound, steps, batch)
            except select.LaunchRefused:
                self.loops.refuse(True, batch, x.device)
                return self.backward_in_order(cotangents, x, states, masks, weights, lengths, needed, wants_states)
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
                bound[buffer] = self.rows(buffer, loop.rendered.row_sums, torch.float32)
            else:
                dtype = torch.float32 if buffer.role is Role.CARRY else None
                bound[buffer] = self.rows(buffer, schedule.buffers[buffer].width, dtype)


def _project(lanes: list[Node], bound: Mapping[BufferRef, Tensor], weights: Mapping[str, Tensor]) -> Tensor:
    """The products of all lanes with x, and with what was computed from x, side by side."""
    buffers = list(dict.fromkeys(arg.attr.buffer for lane in lanes for arg in lane.args if is_x(arg)))
    matrices = [torch.cat([_input_matrix(lane, weights, bound[b], b) for lane in lanes]) for b in buffers]
    total = bound[buffers[0]] @ matrices[0].t()
    for buffer, matrix in zip(buffers[1:], matrices[1:], strict=True):
        total.addmm_(bound[buffer], matrix.t())
    return total


def _input_matrix(lane: Node, weights: Mapping[str, Tensor], x: Tensor, buffer: BufferRef) -> Tensor:
    """The matrix by which a lane multiplies the rows x of a buffer, (width, inputs)."""
    pairs = zip(lane.args, lane.attr, strict=True)
    parts = [(arg.attr.offset, m) for arg, m in pairs if arg.op == "load" and arg.attr.buffer == buffer]
    if len(parts) == 1 and parts[0][1].deep == x.shape[1]:
        return parts[0][1].of(weights)
    total = x.new_zeros(lane.width, x.shape[1])
    for offset, matrix in parts:
        total[:, offset : offset + matrix.deep] += matrix.of(weights)
    return total


def _contiguous(value: Tensor) -> Tensor:
    """Contiguous memory that holds the numbers themselves: kernels know nothing of torch's negated views."""
    return value.contiguous().resolve_neg()
