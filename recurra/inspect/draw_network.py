"""Draws a network as boxes: folded with loops, or unfolded over time."""

from dataclasses import dataclass

from torch import nn

from ..cell import TIME, Cell
from ..engine.latex import symbol
from ..layers import Recurrent
from .step_recorder import direction_pair
from .svg import Canvas

WIDTH, HEIGHT, STEP, LEVEL_RISE = 100.0, 46.0, 160.0, 92.0
BACK_RISE = 0.78 * LEVEL_RISE  # of the backward row above the forward row
MAX_STEPS = 8  # drawn to show a long delay


@dataclass(frozen=True)
class Level:
    """One level of the drawing: a recurrent layer in one or two directions, or a module applied step by step."""

    label: str
    cell: Cell | None = None
    directions: int = 1
    separate: bool = False  # each direction has its own stack

    @property
    def delays(self) -> tuple[int, ...]:
        if self.cell is None:
            return ()
        return next((state.delays for state in self.cell.carried if state.delays), (1,))

    @property
    def arc(self) -> float:
        """The height of the arcs of delays above the boxes."""
        longest = max(self.delays, default=1)
        return 0.75 * _arc(longest) + 22 if longest > 1 else 0.0

    def states(self, when: str) -> str:
        names = [] if self.cell is None else [state.name for state in self.cell.carried if state.name != TIME]
        return r",\,".join(symbol(name, when) for name in names[:2])


def _arc(delay: int) -> float:
    return 26.0 + 8.0 * delay


def levels_of(model: nn.Module) -> list[Level]:
    """The levels of a model, bottom first, in the order of its modules."""
    if isinstance(model, Recurrent):
        separate = model.bidirectional == "separate"
        return [_level(cell, model.directions, separate) for cell in model.cell_list[:: model.directions]]
    if isinstance(model, Cell):
        return [_level(model)]
    if not any(isinstance(part, Cell) for part in model.modules()):
        return [Level(type(model).__name__)] if any(True for _ in model.parameters()) else []
    found: list[Level] = []
    pair = direction_pair(model)
    inside = {id(part) for half in pair for part in half.modules()} if pair else set()
    for child in model.children():
        if not any(id(part) in inside for part in child.modules()):
            found += levels_of(child)
        elif pair is not None:  # draws both directions; the module of the other one is skipped
            forward, backward = (levels_of(half) for half in pair)
            found += [_level(a.cell, 2, True) for a, b in zip(forward, backward, strict=False) if a.cell and b.cell]
            pair = None
    return found


def _level(cell: Cell, directions: int = 1, separate: bool = False) -> Level:
    return Level(f"{type(cell).__name__} {cell.hidden_size}", cell, directions, separate)


# ---------------------------------------------------------------------------------------------------- unfolded


def draw_unfolded(canvas: Canvas, levels: list[Level], steps: int) -> None:
    """One column per step, x below and y above; states run along the rows."""
    longest = max((delay for level in levels for delay in level.delays), default=1)
    steps = min(max(steps, longest + 1 if longest > 1 else 1), MAX_STEPS)
    heights = _heights(levels)
    middle = (steps - 1) // 2
    for column in range(steps):
        x = column * STEP
        when = f"t{column - middle:+d}" if column != middle else "t"
        canvas.label(x, 62, f"x_{{{when}}}")
        bottom = [(x, 48.0)]
        for level, y in zip(levels, heights, strict=True):
            bottom = _draw_level(canvas, level, x, y, bottom)
        _to_output(canvas, x, bottom, heights[-1] - _level_height(levels[-1]) - 24, f"y_{{{when}}}")
    for level, y in zip(levels, heights, strict=True):
        if level.cell is not None:
            _draw_recurrence(canvas, level, y, steps, back=False)
            if level.directions == 2:
                _draw_recurrence(canvas, level, y - BACK_RISE, steps, back=True)


def _heights(levels: list[Level]) -> list[float]:
    heights, y = [], 0.0
    for level in levels:
        heights.append(y)
        y -= LEVEL_RISE + (BACK_RISE if level.directions == 2 else 0.0) + level.arc
    return heights


def _level_height(level: Level, arcs: bool = True) -> float:
    return HEIGHT / 2 + (BACK_RISE if level.directions == 2 else 0.0) + (level.arc if arcs else 0.0)


def _draw_level(
    canvas: Canvas, level: Level, x: float, y: float, below: list[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Draw the boxes of one level at one step; return the points where its outputs leave."""
    kind = "box tint1" if level.cell is None else "box"
    spread = 24.0 if level.directions == 2 else 0.0
    rows = [(x - spread, y, kind)] + ([(x + spread, y - BACK_RISE, "box tint2")] if level.directions == 2 else [])
    paired = level.separate and len(below) == 2
    for number, (cx, cy, tint) in enumerate(rows):
        sources = [below[number]] if paired else below
        for source in sources:
            canvas.straight(
                _route_up(source, cx + (8 if number == 0 else -8) * (len(rows) - 1), cy + HEIGHT / 2, number, len(rows))
            )
        canvas.box(cx, cy, WIDTH - 2 * spread * 0.4, HEIGHT, tint)
        arrows = ("", "") if len(rows) == 1 else ("→ ", "← ")
        wide = WIDTH - 2 * spread * 0.4
        name, _, size = level.label.rpartition(" ")
        if 6.8 * len(arrows[number] + level.label) < wide or not name:
            canvas.word(cx, cy, arrows[number] + level.label, within=wide - 8)
        else:  # the size on a line of its own
            canvas.word(cx, cy - 8, arrows[number] + name, within=wide - 8)
            canvas.word(cx, cy + 8, size)
    return [
        (cx + (-26 if number == 0 else 26) * (len(rows) - 1), cy - HEIGHT / 2)
        for number, (cx, cy, _) in enumerate(rows)
    ]


def _route_up(source: tuple[float, float], x: float, y: float, number: int, count: int) -> list[tuple[float, float]]:
    """The line from an output up to a box; it passes around the lower box of two."""
    sx, sy = source
    if count == 1 or number == 0:
        turn = (sy + y) / 2 if abs(sy - y) < 40 else y + 14
        return [(sx, sy), (sx, turn), (x, turn), (x, y + 1)] if abs(sx - x) > 1 else [(sx, sy), (x, y + 1)]
    side, turn = (
        x + 64,
        (sy + y + BACK_RISE) / 2 if abs(sy - y - BACK_RISE) < 40 else y + BACK_RISE + 14,
    )
    return [(sx, sy), (sx, turn), (side, turn), (side, y + 14), (x + 20, y + 14), (x + 20, y + 1)]


def _to_output(canvas: Canvas, x: float, tops: list[tuple[float, float]], y: float, label: str) -> None:
    for sx, sy in tops:
        canvas.straight(
            [(sx, sy), (sx, y + 8), (x, y + 8), (x, y - 10)] if abs(sx - x) > 1 else [(sx, sy), (x, y - 10)]
        )
    canvas.label(x, y - 24, label)


def _draw_recurrence(canvas: Canvas, level: Level, y: float, steps: int, back: bool) -> None:
    """States from step to step: straight lines for delay 1, arcs for longer delays."""
    half, shift = (
        WIDTH / 2 - (24 * 0.4 if level.directions == 2 else 0),
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
            depth = y - HEIGHT / 2 - _arc(delay)
            top = y - HEIGHT / 2
            bend = f"C {start:.1f} {depth:.1f}, {end:.1f} {depth:.1f}, {end:.1f} {top - 1:.1f}"
            path = f"M {start:.1f} {top:.1f} {bend}"
            canvas.path(path, [(start, depth + 10), (end, y)], "delayed")
        canvas.label(delay * STEP / 2 + 24, y - HEIGHT / 2 - 0.75 * _arc(delay) - 15, f"W_{{{delay}}}", kind="small")


# ---------------------------------------------------------------------------------------------------- folded


def draw_folded(canvas: Canvas, levels: list[Level]) -> None:
    """One column; the recurrence is a loop, labelled with its delay."""
    heights = _heights(levels)
    canvas.label(0, 62, "x_{t}")
    bottom = [(0.0, 48.0)]
    for level, y in zip(levels, heights, strict=True):
        bottom = _draw_level(canvas, level, 0.0, y, bottom)
        if level.cell is not None:
            shift = 24.0 if level.directions == 2 else 0.0
            for number, delay in enumerate(level.delays):
                _loop(canvas, -shift + WIDTH / 2 - 0.4 * shift, y, number, delay, 1)
            if level.directions == 2:
                _loop(canvas, shift - WIDTH / 2 + 0.4 * shift, y - BACK_RISE, 0, 1, -1)
    _to_output(canvas, 0.0, bottom, heights[-1] - _level_height(levels[-1], False) - 24, "y_{t}")


def _loop(canvas: Canvas, x: float, y: float, number: int, delay: int, side: int) -> None:
    """A loop from the box through a delay and back; on the left side for a backward layer."""
    reach = 32.0 if side > 0 else 58.0  # on the left, past the line of the forward row
    far, rise = x + side * (reach + 36.0 * number), 12.0 + 7.0 * number
    canvas.straight([(x, y - rise), (far, y - rise), (far, y + rise), (x + side, y + rise)])
    canvas.box(far, y, 26, 15, "box solid", f"delay of {delay} steps" if delay > 1 else "delay of one step", round_=3)
    canvas.word(far, y, f"{'−' if side > 0 else '+'}{delay}")
