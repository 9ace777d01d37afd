"""Hierarchical and clockwork networks: levels that update every k-th step (El Hihi & Bengio 1995).

h^l_t = cell_l([x_t; h^m_{t-1} of the levels m it reads], h^l_{t-1}) if t is a multiple of k_l, else h^l_{t-1}; t counts
from 1. Only the updates ("ticks") are computed. If levels read in one direction, as in the clockwork network, a level
is one scan of the engine over its ticks. If neighbours read each other, a level is scanned between two ticks of the
slower level, while the output it reads from above is constant.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell, positive_int
from ..cells import find
from ..engine.reference import valid_steps
from ..engine.split_at_resets import Pieces
from ..errors import InputError, OptionError, UnknownNameError
from ..layer_inputs import check_resets
from ..layer_trace import Trace
from ..ragged import check_lengths
from .common import time_major
from .hierarchical_run import HierarchicalRun

WIRINGS = ("adjacent", "slower", "faster")


@dataclass(frozen=True)
class Levels:
    """The state of a hierarchical network between two calls."""

    cells: tuple[tuple[Tensor, ...], ...]  # the carried states of every level's cell, (1, B, …) each
    outputs: tuple[Tensor, ...]  # (B, size) of every level at its last tick
    t: Tensor  # (B,) number of steps read

    def map(self, function: Callable[..., Tensor], *others: "Levels") -> "Levels":
        """Apply a function to the tensors (B, …) of this state, and to those of others beside them."""
        groups = zip(self.cells, *(other.cells for other in others), strict=True)
        cells = tuple(
            tuple(function(*(v.squeeze(0) for v in vs)).unsqueeze(0) for vs in zip(*group, strict=True))
            for group in groups
        )
        outputs = zip(self.outputs, *(other.outputs for other in others), strict=True)
        return Levels(cells, tuple(function(*vs) for vs in outputs), function(self.t, *(o.t for o in others)))


def _rows(levels: Levels, index: Tensor) -> Levels:
    return levels.map(lambda value: value[index])


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
    - `same_step`: a level reads h^m_t instead of h^m_{t-1} of faster levels m: bottom-up links within the step.
    - `batch_first`: x is (B, T, d) instead of (T, B, d).
    - `**options`: options of the cells.

    **Returns**

    `model(x, state, lengths, resets)`: x (T, B, d) → the outputs of all levels [h^1; …; h^L], (T, B, `output_size`),
    zero past the end of a sequence; and a `Levels`, the state to continue from. Clocks of sequences may differ.
    `resets` (T, B) is true where a sequence begins, with its clock. `return_trace=True` adds a `Trace`, one mapping per
    level, of the values at each level's last tick.

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
        same_step: bool = False,
        batch_first: bool = False,
        **options: Any,
    ):
        super().__init__()
        for name, given in (("sizes", sizes), ("periods", periods)):
            if not isinstance(given, Sequence) or isinstance(given, str):
                raise InputError(name, repr(given), "a list of whole numbers, one a level")
        self.input_size, self.batch_first = positive_int("input_size", input_size), batch_first
        self.periods = tuple(positive_int("periods", k) for k in periods)
        if not self.periods or list(self.periods) != sorted(self.periods) or len(sizes) != len(self.periods):
            raise InputError("periods", f"{self.periods} for {len(sizes)} sizes", "one a level, from fast to slow")
        if wiring not in WIRINGS:
            raise UnknownNameError("wiring", repr(wiring), WIRINGS)
        if same_step and wiring == "slower":
            raise OptionError("same_step", True, "a wiring in which levels read faster ones: 'adjacent' or 'faster'")
        self.wiring, self.same_step = wiring, same_step
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
        """The state before the first step, on the device and in the dtype of `like`."""
        starts = (self.cell(level).initial_state(batch, like) for level in range(len(self.levels)))
        cells = tuple(tuple(value.unsqueeze(0) for value in start) for start in starts)
        outputs = tuple(like.new_zeros(batch, width) for width in self.widths)
        return Levels(cells, outputs, torch.zeros(batch, dtype=torch.int64, device=like.device))

    def forward(
        self,
        x: Tensor,
        state: Levels | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        resets: Tensor | None = None,
        return_trace: bool = False,
    ) -> Any:
        """(T, B, d) → the outputs of all levels at every step, and the state to continue from."""
        x = time_major("x", x, self.input_size, self.batch_first)
        steps, batch = x.shape[:2]
        size = None if lengths is None else check_lengths(lengths, steps, batch, x.device)
        state = self.initial_state(batch, x) if state is None else state
        begins = check_resets(resets, x, True, self.batch_first)
        if begins is not None and size is not None:
            begins = begins & valid_steps(size, steps)
        if begins is None and len(self._phases(state)) <= 1:
            y, final, traces = self._run(x, state, size, return_trace)
        else:
            begins = torch.zeros(steps, batch, dtype=torch.bool, device=x.device) if begins is None else begins
            y, final, traces = self._run_pieces(x, state, Pieces.at_resets(begins, size), return_trace)
        y = self._lay_out(y)
        if not return_trace:
            return y, final
        return y, final, Trace([{name: self._lay_out(value) for name, value in one.items()} for one in traces])

    def _lay_out(self, value: Tensor) -> Tensor:
        return value.transpose(0, 1) if self.batch_first else value

    def _run(
        self, x: Tensor, state: Levels, lengths: Tensor | None, keep_trace: bool
    ) -> tuple[Tensor, Levels, list[dict[str, Tensor]]]:
        """Sequences that share a clock."""
        before, levels = int(state.t[0]) if len(state.t) else 0, range(len(self.levels))
        run = HierarchicalRun(self, x, state, before, lengths, keep_trace)
        held = run.run_one_way() if self.wiring != "adjacent" else run.run_adjacent(len(self.levels) - 1, 0, len(x))
        cells = tuple(tuple(value.unsqueeze(0) for value in cell) for cell in run.cells)
        final = Levels(cells, tuple(run.outputs), state.t + (len(x) if lengths is None else lengths))
        traces = [run.trace(level) if keep_trace else {} for level in levels]
        return run.zero_padding(torch.cat(held, dim=-1)), final, traces

    def _run_pieces(
        self, x: Tensor, state: Levels, pieces: Pieces, keep_trace: bool
    ) -> tuple[Tensor, Levels, list[dict[str, Tensor]]]:
        """Pieces of sequences as a ragged batch, those of one phase at a time."""
        start = state.map(pieces.initial, self.initial_state(x.shape[1], x))
        cut, runs, order = pieces.cut(x), [], []
        for rows in self._phases(start):
            longest = int(pieces.lengths[rows].max())
            y, final, traces = self._run(cut[:longest, rows], _rows(start, rows), pieces.lengths[rows], keep_trace)
            runs.append((_pad(y, len(cut)), final, [{n: _pad(v, len(cut)) for n, v in t.items()} for t in traces]))
            order.append(rows)
        place = torch.cat(order).argsort()
        ys, finals, traces = zip(*runs, strict=True)
        final = _rows(finals[0].map(lambda *parts: torch.cat(parts)[place], *finals[1:]), pieces.last)
        joined = [
            {name: pieces.join(torch.cat([one[name] for one in parts], 1)[:, place]) for name in parts[0]}
            for parts in zip(*traces, strict=True)
        ]
        return pieces.join(torch.cat(ys, 1)[:, place]), final, joined

    def _phases(self, state: Levels) -> list[Tensor]:
        """The rows that share a clock, modulo all periods, group by group."""
        clock = state.t % math.lcm(*self.periods)
        return [(clock == phase).nonzero().squeeze(1) for phase in clock.unique()]


def _pad(value: Tensor, steps: int) -> Tensor:
    return torch.cat([value, value.new_zeros(steps - len(value), *value.shape[1:])])


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
        if not periods:
            raise InputError("periods", repr(periods), "at least one")
        if positive_int("hidden_size", hidden_size) % max(1, len(periods)):
            raise InputError("hidden_size", hidden_size, f"a multiple of the number of periods, {len(periods)}")
        sizes = [hidden_size // len(periods)] * len(periods)
        super().__init__(input_size, sizes, periods, cell, wiring="slower", batch_first=batch_first, **options)
