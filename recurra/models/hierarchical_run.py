"""One call of a hierarchical network whose sequences share a clock: levels run at their ticks and hold in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..engine import reference
from ..engine.dispatch import Sequences, scan
from ..engine.found_draws import draw_ahead

if TYPE_CHECKING:
    from .hierarchical import HierarchicalRNN, Levels


class HierarchicalRun:
    """The run of one call: the sequences, and the present states and outputs of all levels."""

    def __init__(
        self,
        model: HierarchicalRNN,
        x: Tensor,
        state: Levels,
        before: int,
        lengths: Tensor | None,
        keep_trace: bool = False,
    ):
        self.model, self.x, self.before, self.lengths, self.keep_trace = model, x, before, lengths, keep_trace
        self.cells = [tuple(value.squeeze(0) for value in cell) for cell in state.cells]
        self.outputs = list(state.outputs)
        self.traces: list[list[tuple[range, dict[str, Tensor]]]] = [[] for _ in model.levels]
        count = range(len(model.levels))
        ticks = [model.ticks(level, before, len(x)) for level in count]
        self.masks = [draw_ahead(model.cell(level), len(ticks[level]), x.shape[1], x) for level in count]
        self.ticked = [0] * len(ticks)

    def run_one_way(self) -> list[Tensor]:
        """Run whole levels one after another; a level runs after the levels it reads."""
        count, steps = len(self.model.levels), len(self.x)
        held: dict[int, Tensor] = {}
        starts = list(self.outputs)
        for level in range(count) if self.model.wiring == "faster" else reversed(range(count)):
            ticks = self.model.ticks(level, self.before, steps)
            last = [self._read(m < level, starts[m], held[m]) for m in self.model.reads[level]]
            seen = torch.cat([part[ticks.start :: ticks.step] for part in (self.x, *last)], dim=-1)
            held[level] = self.hold_between_ticks(level, ticks, 0, steps, seen)
        return [held[level] for level in range(count)]

    def _read(self, below: bool, start: Tensor, held: Tensor) -> Tensor:
        """What a level reads of another: h^m_{t-1}, or h^m_t of a faster one with `same_step`."""
        return held if below and self.model.same_step else torch.cat([start[None], held[:-1]])

    def run_adjacent(self, level: int, first: int, end: int, above: Tensor | None = None) -> list[Tensor]:
        """Run the levels up to `level` over positions first … end - 1, with a constant output `above` them."""
        ticks = self.model.ticks(level, self.before, len(self.x))
        own = ticks[_count_below(ticks, first) : _count_below(ticks, end)]
        overhead = [] if above is None else [above]
        if level == 0:
            seen = [self.x[t : t + 1] for t in own] if self.model.periods[0] > 1 else [self.x[first:end]]
            seen = torch.cat(seen) if seen else self.x[:0]
            seen = torch.cat([seen, *(a.expand(len(seen), *a.shape) for a in overhead)], dim=-1)
            return [self.hold_between_ticks(0, own, first, end, seen)]
        pieces: list[list[Tensor]] = []
        for start, stop in zip([first, *(t + 1 for t in own)], [*(t + 1 for t in own), end], strict=True):
            if start == stop:
                continue
            earlier = self.outputs[level - 1]
            below = self.run_adjacent(level - 1, start, stop, self.outputs[level])
            tick = range(stop - 1, stop) if stop - 1 in own else range(0)
            last = below[-1][-2] if stop - start > 1 else earlier
            last = below[-1][-1] if self.model.same_step else last
            seen = torch.cat([self.x[stop - 1], last, *overhead], dim=-1)[None][: len(tick)]
            pieces.append([*below, self.hold_between_ticks(level, tick, start, stop, seen)])
        return [torch.cat(parts) for parts in zip(*pieces, strict=True)]

    def hold_between_ticks(self, level: int, ticks: range, first: int, end: int, seen: Tensor) -> Tensor:
        """Run a level at its ticks and repeat its output in between, positions first … end - 1: (n, B, size)."""
        before = self.outputs[level][None]
        values = torch.cat([before, self.run_ticks(level, ticks, seen)]) if len(ticks) else before
        latest = [_count_below(ticks, t + 1) for t in range(first, end)]
        if len(ticks) == end - first:
            return values[1:]
        return values[torch.tensor(latest, device=values.device, dtype=torch.int64)]

    def run_ticks(self, level: int, ticks: range, seen: Tensor) -> Tensor:
        """One scan of the engine over the ticks; returns their outputs and updates the level's state and output."""
        cell, count = self.model.cell(level), self.ticked[level]
        masks = {
            name: mask[count : count + len(ticks)] if cell.drawn_inputs()[name].each == "step" else mask
            for name, mask in self.masks[level].items()
        }
        self.ticked[level] += len(ticks)
        alive = None
        if self.lengths is not None:
            positions = torch.tensor(list(ticks), device=seen.device)
            alive = (positions[:, None] < self.lengths).sum(dim=0)  # (B,) ticks before each end
        scanned = scan(cell, Sequences(seen, self.cells[level], masks, alive), self.keep_trace)
        if scanned.trace is not None:
            self.traces[level].append((ticks, scanned.trace))
        self.cells[level] = scanned.state
        if alive is None:
            self.outputs[level] = scanned.y[-1]
        else:
            values = torch.cat([self.outputs[level][None], scanned.y])
            self.outputs[level] = values[alive, torch.arange(len(alive), device=alive.device)]
        return scanned.y

    def trace(self, level: int) -> dict[str, Tensor]:
        """The named values of a level, (T, B, size): at a tick its own, then those of the last tick, first zeros."""
        steps, batch = self.x.shape[:2]
        nothing = Sequences(self.x.new_zeros(0, batch, self.model.cell(level).input_size), self.cells[level])
        found = self.traces[level] or [(range(0), reference.scan(self.model.cell(level), nothing, True).trace or {})]
        positions = torch.tensor([t for ticks, _ in found for t in ticks], device=self.x.device, dtype=torch.int64)
        latest = torch.bucketize(torch.arange(steps, device=self.x.device), positions, right=True)
        values = {name: torch.cat([part[name] for _, part in found]) for name in found[0][1]}
        held = {n: torch.cat([v.new_zeros(1, batch, v.shape[-1]), v])[latest] for n, v in values.items()}
        return {name: self.zero_padding(value) for name, value in held.items()}

    def zero_padding(self, value: Tensor) -> Tensor:
        """A value (T, B, size) with zeros past the end of each sequence."""
        if self.lengths is None:
            return value
        past = torch.arange(len(value), device=value.device)[:, None] >= self.lengths
        return value.masked_fill(past[..., None], 0.0)


def _count_below(ticks: range, position: int) -> int:
    """The number of ticks before a position."""
    if not len(ticks) or position <= ticks.start:
        return 0
    return min(len(ticks), (position - 1 - ticks.start) // ticks.step + 1)
