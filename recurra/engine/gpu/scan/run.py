"""Run a plan whose states are affine in themselves: torch for all steps, the kernels over chunks, torch again."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...ir.buffers import CLOCK, SUMS, BufferRef, Role
from ...on_device import on_device
from ...plan.program import Out, Plan
from ...plan.rows import last_values
from ..epilogue import PaddedRows
from ..matrix.rows import Rows
from ..persistent.launch import load_module, processors
from .codegen import TOTALS, Argument, PassSource, PassSpec, effect, factor, render, render_chunks, start, sums_places
from .shape import ScanShape, choose_shape
from .split import Carried, ScanSplit, split

PROCESSORS = 132  # assumed in Triton's interpreter
JOINED_CHUNKS, JOINED_UNITS, JOINED_WARPS = 128, 16, 4  # of a program of `join_chunks.py`


class GpuScan:
    """The kernels of a plan's scans, written when first used. Making one raises `Unsupported` if it has no scan."""

    def __init__(self, plan: Plan, dtype: torch.dtype):
        self.plan, self.dtype, self.trains = plan, dtype, plan.backward is not None
        self.parts = {False: split(plan, False)} | ({True: split(plan, True)} if self.trains else {})
        self.sources: dict[object, PassSource] = {}
        for backward, scan in self.parts.items():  # what cannot be written is found out here
            for level in range(scan.levels + 1):
                for group in range(len(scan.groups(level)) if level else 1):
                    self.step_kernel(PassSpec(backward, False, self.trains, self.exact, 1, level, group))

    @property
    def exact(self) -> bool:
        return self.dtype == torch.float32

    def shape(self, steps: int, batch: int, device: torch.device) -> ScanShape:
        available = processors(device) if device.type == "cuda" else PROCESSORS
        forward, joins = self.parts[False], all(scan.joins for scan in self.parts.values())
        return choose_shape(steps, batch, forward.width, available, forward.states, joins)

    def step_kernel(self, spec: PassSpec) -> PassSource:
        """The kernel of a pass over the steps. Raises `Unsupported` if it cannot be written."""
        if spec not in self.sources:
            self.sources[spec] = render(self.parts[spec.backward], self.plan, spec)
        return self.sources[spec]

    def chunks_kernel(self, backward: bool, level: int, group: int, units: int) -> PassSource:
        """The kernel that goes through the chunks."""
        key = backward, level, group, units
        if key not in self.sources:
            self.sources[key] = render_chunks(self.parts[backward], level, group, backward, units)
        return self.sources[key]

    def forward(self, bound: dict[BufferRef, Tensor], weights: Mapping[str, Tensor], rows: PaddedRows) -> None:
        """Bind the results of a forward pass: those of each step, and final states."""
        call = _Call(self, False, bound, weights, rows)
        call.run()
        carried = {place[0] for block in self.parts[False].blocks for place in block.places}
        for state in self.plan.states:
            history = BufferRef.state(state.name)
            if history not in carried and history != CLOCK and not state.delays:
                initial = bound[BufferRef.initial(state.name)]
                bound[BufferRef.final(state.name)] = last_values(bound[history], initial[None], 1, rows)[:, 0]

    def backward(self, bound: dict[BufferRef, Tensor], weights: Mapping[str, Tensor], rows: PaddedRows) -> None:
        """Bind what a backward loop leaves."""
        call = _Call(self, True, bound, weights, rows)
        call.run()
        bound[SUMS] = call.sums()


class _Call:
    """One pass over the steps in one direction."""

    def __init__(
        self,
        made: GpuScan,
        backward: bool,
        bound: dict[BufferRef, Tensor],
        weights: Mapping[str, Tensor],
        padded: PaddedRows,
    ):
        self.made, self.backward, self.bound, self.padded = made, backward, bound, padded
        self.scan, self.plan, self.dtype, self.device = made.parts[backward], made.plan, made.dtype, padded.device
        like = torch.empty(0, dtype=made.dtype, device=padded.device)
        program = _OneProgram(self.scan)
        self.rows = Rows(made.plan, program, bound, weights, padded, like)  # pyrefly: ignore
        self.shape = made.shape(padded.steps, padded.rows, padded.device)
        self.states = {state.name: state for state in made.plan.states}
        self.own: dict[Argument, Tensor] = {}  # what only kernels read
        self.free = {out.node for out in self.scan.others if out.node.op == "product"}  # in memory of their own

    def run(self) -> None:
        self.rows.compute(list(self.scan.inputs.values()))
        read = {buffer: self.rows.full(node).contiguous() for buffer, node in self.scan.inputs.items()}
        for out, _ in self.scan.stores:
            self._allocate(out.buffer)
        self._allocate_lasts()
        self.bound |= read
        self._launch_all()
        for out, _ in self.scan.stores:
            self.rows.known[out.node] = self.bound[out.buffer][:, out.offset : out.offset + out.node.width]
        for out in self.scan.others:
            self._store(out)

    def sums(self) -> Tensor:
        """(1, all sums of the program side by side)."""
        places, kept = sums_places(self.scan), {number for number, _ in self.scan.totals}
        if not places[-1][0]:
            return torch.zeros(1, 0, device=self.device)
        totals = self.own[TOTALS].sum(0) if kept else None
        if totals is not None and len(kept) == len(places) - 1:
            return totals[None]
        parts = []
        for number, (_, node) in enumerate(self.scan.program.sums):
            at, width = places[number]
            whole = totals[at : at + width] if totals is not None and number in kept else self._summed(node)
            parts.append(whole)
        return torch.cat(parts)[None]

    def _summed(self, node) -> Tensor:
        return self.rows.masked(self.rows.full(node)).float().sum(0)

    # ------------------------------------------------------------------------------------------ memory

    def _new(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def _allocate(self, buffer: BufferRef) -> None:
        """Memory for all rows. Kernels do not write to the padding, where zeros are expected."""
        if buffer in self.bound:
            return
        kind = torch.float32 if buffer in self.scan.wide or buffer.role is Role.CARRY else self.dtype
        new = torch.empty if self.padded.lengths is None else torch.zeros
        shape = self.padded.total, self.scan.buffers[buffer].width
        self.bound[buffer] = new(shape, dtype=kind, device=self.device)

    def _allocate_lasts(self) -> None:
        if self.backward:
            return
        for state in self.plan.states:
            if not state.delays:
                self.bound[BufferRef.final(state.name)] = self._new(self.padded.rows, state.size, dtype=self.dtype)

    def _store(self, out: Out) -> None:
        """What torch computes: all rows of a buffer, or what has flowed back before the first step."""
        value = self.rows.masked(self.rows.full(out.node))
        columns = slice(out.offset, out.offset + out.node.width)
        if out.buffer.role is Role.CARRY and not self.states[out.buffer.name].delays:
            first, initial = value[: self.padded.rows], self.bound[BufferRef.d_initial(out.buffer.name)]
            if self.padded.lengths is not None:
                final = self.bound[BufferRef.d_final(out.buffer.name)][:, columns]
                first = torch.where((self.padded.ends() > 0)[:, None], first, final.float())
            initial[:, columns] = first
            return
        if out.node in self.free and self.scan.buffers[out.buffer].width == out.node.width:
            self.free.remove(out.node)
            self.bound[out.buffer] = value.contiguous()
            return
        self._allocate(out.buffer)
        self.bound[out.buffer][:, columns] = value

    # ------------------------------------------------------------------------------------------ kernels

    def _launch_all(self) -> None:
        shape, scan = self.shape, self.scan
        grid = self.padded.rows, shape.blocks, shape.chunks
        if shape.chunks == 1:
            self._start_all()
        for level in range(1, scan.levels + 1) if shape.chunks > 1 else ():
            self._allocate_effects(level)
            for group in range(len(scan.groups(level))):
                self._launch(self._pass(level, group), grid, (self.padded.steps, self.padded.rows, shape.chunk))
                if scan.joins:
                    self._join(scan.groups(level)[group])
                    continue
                units = min(32, shape.units)
                source = self.made.chunks_kernel(self.backward, level, group, units)
                self._launch(source, (grid[0], -(-scan.width // units)), (self.padded.rows, shape.chunks))
        if scan.totals:
            self.own[TOTALS] = self._new(shape.chunks * self.padded.rows, sums_places(scan)[-1][0], dtype=torch.float32)
        self._launch(self._pass(0), grid, (self.padded.steps, self.padded.rows, shape.chunk))

    def _join(self, blocks: list[Carried]) -> None:
        """The state before every chunk, of blocks of one state."""
        batch, width, chunks = self.padded.rows, self.scan.width, self.shape.chunks
        for place in (place for block in blocks for place in block.places):
            given = (BufferRef.d_final if self.backward else BufferRef.initial)(place[0].name)
            moved = [effect(place), factor(place, place), given, start(place)]
            pointers = [self.own[a] if isinstance(a, str) else self.bound[a] for a in moved]
            sizes = width, self.scan.buffers[place[0]].width, place[1], batch, chunks, JOINED_CHUNKS, JOINED_UNITS
            self._run(_join_kernel(), (batch, -(-width // JOINED_UNITS)), [*pointers, *sizes], JOINED_WARPS)

    def _pass(self, level: int, group: int = 0) -> PassSource:
        made, ragged = self.made, self.padded.lengths is not None
        spec = PassSpec(self.backward, ragged, made.trains, made.exact, self.shape.units, level, group)
        return made.step_kernel(spec)

    def _start_all(self) -> None:
        """The states before the only chunk."""
        for block in self.scan.blocks:
            for buffer, offset, width in block.places:
                first = (BufferRef.d_final if self.backward else BufferRef.initial)(buffer.name)
                value = self.bound[first][:, offset : offset + width]
                self.own[start((buffer, offset, width))] = value.to(torch.float32, copy=False).contiguous()

    def _allocate_effects(self, level: int) -> None:
        size = self.shape.chunks, self.padded.rows, self.scan.width
        for block in self.scan.blocks:
            if block.level == level:
                for place in block.places:
                    self.own[start(place)] = self._new(*size, dtype=torch.float32)
                    self.own[effect(place)] = self._new(*size, dtype=torch.float32)
                    for other in block.places:
                        self.own[factor(place, other)] = self._new(*size, dtype=torch.float64)

    def _launch(self, source: PassSource, grid: tuple[int, ...], numbers: tuple[int, ...]) -> None:
        pointers = [self.own[a] if isinstance(a, str) else self.bound[a] for a in source.arguments]
        function = load_module(source.interpreted if self.device.type == "cpu" else source.text).kernel
        self._run(function, grid, [*pointers, *numbers], 1)

    def _run(self, function: Any, grid: tuple[int, ...], arguments: list, warps: int) -> None:
        on_cpu = self.device.type == "cpu"  # Triton's interpreter
        with on_device(self.device):
            function[grid](*arguments, **({} if on_cpu else {"num_warps": warps}))


@functools.cache
def _join_kernel() -> Any:
    """Imported when first used: machines without a GPU need no Triton."""
    from . import join_chunks

    return join_chunks.kernel


class _OneProgram:
    """The parts of a program, for `Rows`."""

    def __init__(self, scan: ScanSplit):
        self.program, self.inputs, self.kernels = scan.program, scan.inputs, scan.kernels
