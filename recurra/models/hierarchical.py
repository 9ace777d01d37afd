"""Hierarchical and clockwork networks: levels that update every k-th step (El Hihi & Bengio 1995).

h^l_t = cell_l([x_t; h^m_{t-1} of the levels m it reads], h^l_{t-1}) if t is a multiple of k_l, else h^l_{t-1}; t counts
from 1. Only the updates ("ticks") are computed. If levels read in one direction, as in the clockwork network, a level
is one scan of the engine over its ticks. If neighbours read each other, a level is scanned between two ticks of the
slower level, while the output it reads from above is constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell, positive_int
from ..cells import find
from ..engine.dispatch import Sequences, scan
from ..errors import InputError, OptionError, UnknownNameError
from ..ragged import check_lengths
from .common import time_major

WIRINGS = ("adjacent", "slower", "faster")


@dataclass(frozen=True)
class Levels:
    """The state of a hierarchical network between two calls."""

    cells: tuple[tuple[Tensor, ...], ...]  # the carried states of every level's cell
    outputs: tuple[Tensor, ...]  # (B, size) of every level at its last tick
    t: Tensor  # (B,) number of steps read


class HierarchicalRNN(nn.Module):
    """Levels of cells with different periods: level l updates every k_l-th step and holds its output in between.

    Also known as a multi-timescale recurrent network (El Hihi & Bengio 1995).

    **Arguments**

    - `input_size`: d, the number of input features; every level reads x.
    - `sizes`: units of every level, fastest level first.
    - `periods`: k_l of every level, increasing.
    - `cell`: a name or a class for all levels, or one for each level.
    - `wiring`: the levels whose previous outputs a level also reads: `"adjacent"`, its neighbours; `"slower"`, all
      slower ones, as in the clockwork network; `"faster"`, all faster ones.
    - `batch_first`: x is (B, T, d) instead of (T, B, d).
    - `**options`: options of the cells.

    **Returns**

    `model(x, state, lengths)`: x (T, B, d) → the outputs of all levels [h^1; …; h^L], (T, B, `output_size`), zero past
    the end of a sequence; and a `Levels`, the state to continue from.

    **Example**

        >>> model = rc.HierarchicalRNN(3, sizes=[4, 2], periods=[1, 5], cell="gru")
        >>> y, state = model(torch.randn(10, 2, 3))
        >>> y.shape, state.t
        (torch.Size([10, 2, 6]), tensor([10, 10]))
        >>> bool(y[:4, :, 4:].any())  # the slow level first updates at step 5
        False
    """

    def __init__(
        self,
        input_size: int,
        sizes: Sequence[int],
        periods: Sequence[int],
        cell: str | type[Cell] | Sequence[str | type[Cell]] = "rnn",
        *,
        wiring: str = "adjacent",
        batch_first: bool = False,
        **options: Any,
    ):
        super().__init__()
        self.input_size, self.batch_first = positive_int("input_size", input_size), batch_first
        self.periods = tuple(positive_int("periods", k) for k in periods)
        if not self.periods or list(self.periods) != sorted(self.periods) or len(sizes) != len(self.periods):
            raise InputError("periods", f"{self.periods} for {len(sizes)} sizes", "one a level, from fast to slow")
        if wiring not in WIRINGS:
            raise UnknownNameError("wiring", repr(wiring), WIRINGS)
        self.wiring = wiring
        kinds = [cell] * len(sizes) if isinstance(cell, (str, type)) else list(cell)
        if len(kinds) != len(sizes):
            raise InputError("cell", f"{len(kinds)} cells", f"one for each of {len(sizes)} levels, or one for all")
        classes = [find(kind) if isinstance(kind, str) else kind for kind in kinds]
        # Neighbours read a level's output, which can be wider than its states.
        widths = [kind(1, size, **options).output_size for kind, size in zip(classes, sizes, strict=True)]
        self.reads = tuple(self._reads(level, len(sizes)) for level in range(len(sizes)))
        self.levels = nn.ModuleList(
            kind(input_size + sum(widths[m] for m in read), size, **options)
            for kind, size, read in zip(classes, sizes, self.reads, strict=True)
        )
        self.widths, self.output_size = tuple(widths), sum(widths)

    def _reads(self, level: int, count: int) -> tuple[int, ...]:
        if self.wiring == "slower":
            return tuple(range(level + 1, count))
        if self.wiring == "faster":
            return tuple(range(level))
        return tuple(m for m in (level - 1, level + 1) if 0 <= m < count)

    def cell(self, level: int) -> Cell:
        """The cell of a level, typed."""
        cell = self.levels[level]
        assert isinstance(cell, Cell)
        return cell

    def ticks(self, level: int, before: int, steps: int) -> range:
        """The positions at which a level updates, among `steps` that follow `before` earlier ones."""
        period = self.periods[level]
        return range(period - 1 - before % period, steps, period)

    def initial_state(self, batch: int, like: Tensor) -> Levels:
        cells = tuple(self.cell(level).initial_state(batch, like) for level in range(len(self.levels)))
        outputs = tuple(like.new_zeros(batch, width) for width in self.widths)
        return Levels(cells, outputs, torch.zeros(batch, dtype=torch.int64, device=like.device))

    def forward(
        self, x: Tensor, state: Levels | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor, Levels]:
        """(T, B, d) → the outputs of all levels at every step, and the state to continue from."""
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        size = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        state = self.initial_state(batch, x) if state is None else state
        run = _HierarchicalRun(self, x, state, self._phase(state), size)
        held = run.run_one_way() if self.wiring != "adjacent" else run.run_adjacent(len(self.levels) - 1, 0, steps)
        y = torch.cat(held, dim=-1)
        if size is not None:
            y = y.masked_fill((torch.arange(steps, device=x.device)[:, None] >= size)[..., None], 0.0)
        final = Levels(tuple(run.cells), tuple(run.outputs), state.t + (steps if size is None else size))
        return (y.transpose(0, 1) if self.batch_first else y), final

    def _phase(self, state: Levels) -> int:
        """The number of steps already read, which must agree over the batch modulo every period."""
        first = int(state.t[0]) if len(state.t) else 0
        if any(bool(((state.t - first) % period != 0).any()) for period in self.periods):
            raise OptionError(
                "state", "sequences whose clocks differ", "sequences of one length, or with whole periods"
            )
        return first


class ClockworkRNN(HierarchicalRNN):
    """A clockwork network: groups of units with different periods that read slower groups (Koutník et al. 2014).

    A `HierarchicalRNN` with `wiring="slower"`: the recurrent matrix is block triangular.

    **Arguments**

    - `input_size`: d, the number of input features.
    - `hidden_size`: units of all groups together, a multiple of the number of periods.
    - `periods`: one for each group, increasing.
    - `cell`: a name or a class, the same for all groups.
    - `batch_first`: x is (B, T, d) instead of (T, B, d).
    - `**options`: options of the cell.

    **Returns**

    As `HierarchicalRNN`: outputs (T, B, hidden_size), fastest group first, and the state to continue from.

    **Example**

        >>> model = rc.ClockworkRNN(3, 8, periods=(1, 2, 4, 8))
        >>> y, state = model(torch.randn(16, 2, 3))
        >>> y.shape
        torch.Size([16, 2, 8])
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        periods: Sequence[int] = (1, 2, 4, 8),
        cell: str | type[Cell] = "rnn",
        *,
        batch_first: bool = False,
        **options: Any,
    ):
        if positive_int("hidden_size", hidden_size) % max(1, len(periods)):
            raise InputError("hidden_size", hidden_size, f"a multiple of the number of periods, {len(periods)}")
        sizes = [hidden_size // len(periods)] * len(periods)
        super().__init__(input_size, sizes, periods, cell, wiring="slower", batch_first=batch_first, **options)


class _HierarchicalRun:
    """The run of one call: the sequences, and the present states and outputs of all levels."""

    def __init__(self, model: HierarchicalRNN, x: Tensor, state: Levels, before: int, lengths: Tensor | None):
        self.model, self.x, self.before, self.lengths = model, x, before, lengths
        self.cells, self.outputs = list(state.cells), list(state.outputs)
        count = range(len(model.levels))
        ticks = [model.ticks(level, before, len(x)) for level in count]
        self.masks = [model.cell(level).draw_masks(len(ticks[level]), x.shape[1], x) for level in count]
        self.ticked = [0] * len(ticks)

    def run_one_way(self) -> list[Tensor]:
        """Run whole levels one after another; a level runs after the levels it reads."""
        count, steps = len(self.model.levels), len(self.x)
        held: dict[int, Tensor] = {}
        starts = list(self.outputs)
        for level in range(count) if self.model.wiring == "faster" else reversed(range(count)):
            ticks = self.model.ticks(level, self.before, steps)
            last = [torch.cat([starts[m][None], held[m][:-1]]) for m in self.model.reads[level]]  # h^m_{t-1}
            seen = torch.cat([part[ticks.start :: ticks.step] for part in (self.x, *last)], dim=-1)
            held[level] = self.hold_between_ticks(level, ticks, 0, steps, seen)
        return [held[level] for level in range(count)]

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
            name: mask[count : count + len(ticks)] if cell.masks[name].each == "step" else mask
            for name, mask in self.masks[level].items()
        }
        self.ticked[level] += len(ticks)
        alive = None
        if self.lengths is not None:
            positions = torch.tensor(list(ticks), device=seen.device)
            alive = (positions[:, None] < self.lengths).sum(dim=0)  # (B,) ticks before each end
        scanned = scan(cell, Sequences(seen, self.cells[level], masks, alive))
        self.cells[level] = scanned.state
        if alive is None:
            self.outputs[level] = scanned.y[-1]
        else:
            values = torch.cat([self.outputs[level][None], scanned.y])
            self.outputs[level] = values[alive, torch.arange(len(alive), device=alive.device)]
        return scanned.y


def _count_below(ticks: range, position: int) -> int:
    """The number of ticks before a position."""
    if not len(ticks) or position <= ticks.start:
        return 0
    return min(len(ticks), (position - 1 - ticks.start) // ticks.step + 1)
