"""Networks as a person draws them: folded with a loop, or unfolded over time; stacked, delayed, in both directions."""

from dataclasses import dataclass

from torch import nn

from ..cell import TIME, Cell
from ..engine.latex import symbol
from ..layers import Recurrent
from .step_recorder import two_ways
from .svg import Canvas

WIDE, HIGH, STEP, RISE = 100.0, 46.0, 160.0, 92.0
SECOND = 0.78 * RISE  # how far the backward row stands above the forward one
LONGEST = 8  # steps drawn, to show a long delay


@dataclass(frozen=True)
class Level:
    """One storey: a layer of cells in one or two directions, or a module that acts at every step by itself."""

    label: str
    cell: Cell | None = None
    directions: int = 1
    separate: bool = False  # each direction has a stack of its own

    @property
    def delays(self) -> tuple[int, ...]:
        if self.cell is None:
            return ()
        return next((state.delays for state in self.cell.carried if state.delays), (1,))

    @property
    def arc(self) -> float:
        """How high the arcs of long delays rise above the boxes."""
        longest = max(self.delays, default=1)
        return 0.75 * _arc(longest) + 22 if longest > 1 else 0.0

    def states(self, when: str) -> str:
        names = [] if self.cell is None else [state.name for state in self.cell.carried if state.name != TIME]
        return r",\,".join(symbol(name, when) for name in names[:2])


def _arc(delay: int) -> float:
    return 26.0 + 8.0 * delay


def levels_of(model: nn.Module) -> list[Level]:
    """The storeys of a model, bottom first, in the order its modules were made."""
    if isinstance(model, Recurrent):
        separate = model.bidirectional == "separate"
        return [_level(cell, model.directions, separate) for cell in model.cell_list[:: model.directions]]
    if isinstance(model, Cell):
        return [_level(model)]
    if not any(isinstance(part, Cell) for part in model.modules()):
        return [Level(type(model).__name__)] if any(True for _ in model.parameters()) else []
    found: list[Level] = []
    pair = two_ways(model)
    inside = {id(part) for one in pair for part in one.modules()} if pair else set()
    for child in model.children():
        if not any(id(part) in inside for part in child.modules()):
            found += levels_of(child)
        elif pair is not None:  # both directions at once; what holds the other is passed over
            forward, backward = (levels_of(one) for one in pair)
            found += [_level(a.cell, 2, True) for a, b in zip(forward, backward, strict=False) if a.cell and b.cell]
            pair = None
    return found


def _level(cell: Cell, directions: int = 1, separate: bool = False) -> Level:
    return Level(f"{type(cell).__name__} {cell.hidden_size}", cell, directions, separate)


# ---------------------------------------------------------------------------------------------------- unfolded


def draw_unfolded(canvas: Canvas, levels: list[Level], steps: int) -> None:
    """A column a step, x below and y above; states run along the rows."""
    longest = max((delay for level in levels for delay in level.delays), default=1)
    steps = min(max(steps, longest + 1 if longest > 1 else 1), LONGEST)
    heights = _heights(levels)
    middle = (steps - 1) // 2
    for column in range(steps):
        x = column * STEP
        when = f"t{column - middle:+d}" if column != middle else "t"
        canvas.label(x, 62, f"x_{{{when}}}")
        bottom = [(x, 48.0)]
        for level, y in zip(levels, heights, strict=True):
            bottom = _storey(canvas, level, x, y, bottom)
        _to_output(canvas, x, bottom, heights[-1] - _storey_height(levels[-1]) - 24, f"y_{{{when}}}")
    for level, y in zip(levels, heights, strict=True):
        if level.cell is not None:
            _along(canvas, level, y, steps, back=False)
            if level.directions == 2:
                _along(canvas, level, y - SECOND, steps, back=True)


def _heights(levels: list[Level]) -> list[float]:
    heights, y = [], 0.0
    for level in levels:
        heights.append(y)
        y -= RISE + (SECOND if level.directions == 2 else 0.0) + level.arc
    return heights


def _storey_height(level: Level, arcs: bool = True) -> float:
    return HIGH / 2 + (SECOND if level.directions == 2 else 0.0) + (level.arc if arcs else 0.0)


def _storey(
    canvas: Canvas, level: Level, x: float, y: float, below: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """The boxes of one level at one step; returns the points its outputs leave from."""
    kind = "box tint1" if level.cell is None else "box"
    spread = 24.0 if level.directions == 2 else 0.0
    rows = [(x - spread, y, kind)] + ([(x + spread, y - SECOND, "box tint2")] if level.directions == 2 else [])
    paired = level.separate and len(below) == 2
    for number, (cx, cy, tint) in enumerate(rows):
        sources = [below[number]] if paired else below
        for source in sources:
            canvas.straight(
                _up(source, cx + (8 if number == 0 else -8) * (len(rows) - 1), cy + HIGH / 2, number, len(rows))
            )
        canvas.box(cx, cy, WIDE - 2 * spread * 0.4, HIGH, tint)
        arrows = ("", "") if len(rows) == 1 else ("→ ", "← ")
        wide = WIDE - 2 * spread * 0.4
        name, _, size = level.label.rpartition(" ")
        if 6.8 * len(arrows[number] + level.label) < wide or not name:
            canvas.word(cx, cy, arrows[number] + level.label, within=wide - 8)
        else:  # the size on a line of its own
            canvas.word(cx, cy - 8, arrows[number] + name, within=wide - 8)
            canvas.word(cx, cy + 8, size)
    return [
        (cx + (-26 if number == 0 else 26) * (len(rows) - 1), cy - HIGH / 2) for number, (cx, cy, _) in enumerate(rows)
    ]


def _up(source: tuple[float, float], x: float, y: float, number: int, count: int) -> list[tuple[float, float]]:
    """From an output up to the bottom of a box; round the lower box where there are two."""
    sx, sy = source
    if count == 1 or number == 0:
        turn = (sy + y) / 2 if abs(sy - y) < 40 else y + 14
        return [(sx, sy), (sx, turn), (x, turn), (x, y + 1)] if abs(sx - x) > 1 else [(sx, sy), (x, y + 1)]
    side, turn = x + 64, (sy + y + SECOND) / 2 if abs(sy - y - SECOND) < 40 else y + SECOND + 14
    return [(sx, sy), (sx, turn), (side, turn), (side, y + 14), (x + 20, y + 14), (x + 20, y + 1)]


def _to_output(canvas: Canvas, x: float, tops: list[tuple[float, float]], y: float, label: str) -> None:
    for sx, sy in tops:
        canvas.straight(
            [(sx, sy), (sx, y + 8), (x, y + 8), (x, y - 10)] if abs(sx - x) > 1 else [(sx, sy), (x, y - 10)]
        )
    canvas.label(x, y - 24, label)


def _along(canvas: Canvas, level: Level, y: float, steps: int, back: bool) -> None:
    """States from step to step: short ones straight, delayed ones as arcs below."""
    half, shift = (
        WIDE / 2 - (24 * 0.4 if level.directions == 2 else 0),
        (24.0 if back else -24.0) if level.directions == 2 else 0.0,
    )
    for delay in level.delays:
        if delay == 1:
            for column in range(-1, steps):
                start, end = column * STEP + half + shift, (column + 1) * STEP - half + shift
                start = max(start, end - 40) if column == -1 else start
                end = min(end, start + 40) if column == steps - 1 else end
                ends = [(end, y), (start + 1, y)] if back else [(start, y), (end - 1, y)]
                canvas.straight(ends)
            middle = (steps - 1) // 2
            when = f"t{steps - middle:+d}" if back else f"t{-middle - 1:+d}"
            where = (steps - 1) * STEP + half + 44 if back else -half - 44
            canvas.label(where + shift, y, level.states(when), "start" if back else "end", "small")
            continue
        for column in range(steps - delay):
            start, end = column * STEP + 18, (column + delay) * STEP - 18
            depth = y - HIGH / 2 - _arc(delay)
            top = y - HIGH / 2
            bend = f"C {start:.1f} {depth:.1f}, {end:.1f} {depth:.1f}, {end:.1f} {top - 1:.1f}"
            way = f"M {start:.1f} {top:.1f} {bend}"
            canvas.path(way, [(start, depth + 10), (end, y)], "delayed")
        canvas.label(delay * STEP / 2 + 24, y - HIGH / 2 - 0.75 * _arc(delay) - 15, f"W_{{{delay}}}", kind="small")


# ---------------------------------------------------------------------------------------------------- folded


def draw_folded(canvas: Canvas, levels: list[Level]) -> None:
    """One column; what is carried over goes round a loop, with how many steps it waits."""
    heights = _heights(levels)
    canvas.label(0, 62, "x_{t}")
    bottom = [(0.0, 48.0)]
    for level, y in zip(levels, heights, strict=True):
        bottom = _storey(canvas, level, 0.0, y, bottom)
        if level.cell is not None:
            shift = 24.0 if level.directions == 2 else 0.0
            for number, delay in enumerate(level.delays):
                _loop(canvas, -shift + WIDE / 2 - 0.4 * shift, y, number, delay, 1)
            if level.directions == 2:
                _loop(canvas, shift - WIDE / 2 + 0.4 * shift, y - SECOND, 0, 1, -1)
    _to_output(canvas, 0.0, bottom, heights[-1] - _storey_height(levels[-1], False) - 24, "y_{t}")


def _loop(canvas: Canvas, x: float, y: float, number: int, delay: int, side: int) -> None:
    """Out of the box, through a delay, back in; to the left for what comes from the future."""
    reach = 32.0 if side > 0 else 58.0  # to the left, past the line of the forward row
    far, rise = x + side * (reach + 36.0 * number), 12.0 + 7.0 * number
    canvas.straight([(x, y - rise), (far, y - rise), (far, y + rise), (x + side, y + rise)])
    canvas.box(far, y, 26, 15, "box solid", f"held for {delay} steps" if delay > 1 else "held for one step", round_=3)
    canvas.word(far, y, f"{'−' if side > 0 else '+'}{delay}")
