"""Draws a network as boxes: folded with loops, or unfolded over time.

Each level is a row, each step a column. A link to the level above goes straight up; a link that passes levels by runs
beside the column, on the right, or on the left for the forward direction of two.
"""

from dataclasses import dataclass

from .svg import Canvas
from .wiring import INPUT, Level, Network, steps_to_show

WIDTH, HEIGHT, STEP, LEVEL_RISE = 100.0, 46.0, 160.0, 92.0
BACK_RISE = 0.78 * LEVEL_RISE  # of the backward row above the forward row
PLUS_RISE = 26.0  # of the circle in which a residual is added
LANE = 9.0  # between two links that run beside a column
MAX_STEPS = 8  # drawn to show a long delay or period

Point = tuple[float, float]


@dataclass
class Layout:
    """Where rows and columns are."""

    network: Network
    steps: int

    def __post_init__(self) -> None:
        self.spread = 24.0 if any(level.directions == 2 for level in self.network.levels) else 0.0
        lanes = len(self.network.levels) * LANE if self.network.skips else 0.0
        self.pitch = STEP + lanes + (3.2 * self.spread if self.network.skips else 0.0)
        self.heights: list[float] = []
        y = 0.0
        for level in self.network.levels:
            self.heights.append(y)
            y -= LEVEL_RISE + (BACK_RISE if level.directions == 2 else 0.0) + _arcs(level)
            y -= PLUS_RISE if level.residual else 0.0
        tall = self.network.levels[-1]
        over = HEIGHT / 2 + (BACK_RISE if tall.directions == 2 else 0.0) + (_arcs(tall) if self.steps > 1 else 0.0)
        self.top = self.heights[-1] - over - (PLUS_RISE if tall.residual else 0.0) - 24

    @property
    def margin(self) -> float:
        """The length of the lines into the first column and out of the last: past the lanes of two directions."""
        return self.edge(len(self.network.levels), 1) - WIDTH / 2 + 40 if self.network.skips and self.spread else 40.0

    def column(self, number: int) -> float:
        return number * self.pitch

    def edge(self, lane: int, side: int) -> float:
        """The distance of a lane from the middle of the column."""
        return side * (WIDTH / 2 + 12 + (1.4 * self.spread + 14 if self.spread else 0.0) + lane * LANE)


def _arc(delay: int) -> float:
    return 26.0 + 8.0 * delay


def _arcs(level: Level) -> float:
    """The height of the arcs of delays above the boxes."""
    longest = max((delay for delay in level.delays if delay < MAX_STEPS), default=1)
    return 0.75 * _arc(longest) + 22 if longest > 1 else 0.0


# ---------------------------------------------------------------------------------------------------- unfolded


def draw_unfolded(canvas: Canvas, network: Network, steps: int) -> None:
    """One column per step, x below and y above; states run along the rows."""
    layout = Layout(network, steps_to_show(network, steps, MAX_STEPS))
    middle = (layout.steps - 1) // 2
    for number in range(layout.steps):
        when = f"t{number - middle:+d}" if number != middle else "t"
        _draw_column(canvas, layout, layout.column(number), when, number + 1)
    for level, y in zip(network.levels, layout.heights, strict=True):
        if level.cell is not None:
            _draw_recurrence(canvas, layout, level, y, back=False)
            if level.directions == 2:
                _draw_recurrence(canvas, layout, level, y - BACK_RISE, back=True)
    for number in range(1, layout.steps):
        _draw_delayed_reads(canvas, layout, number)


def _draw_column(canvas: Canvas, layout: Layout, x: float, when: str, t: int) -> None:
    """All levels at one step; t counts from 1 and tells which levels update."""
    canvas.label(x, 62, f"x_{{{when}}}")
    tops: dict[int, list[Point]] = {INPUT: [(x, 48.0)]}
    lane = 0
    for number, (level, y) in enumerate(zip(layout.network.levels, layout.heights, strict=True)):
        if t % level.period:
            canvas.box(x, y, WIDTH, HEIGHT, "frame", "held: this level does not update at this step")
            tops[number] = [(x, y - HEIGHT / 2)]
            continue
        near = [tops[s] for s in level.reads if s == number - 1]
        tops[number] = _draw_boxes(canvas, level, x, y, near[0] if near else [])
        for k, source in enumerate(level.reads):
            if source != number - 1:
                _skip(canvas, layout, x, tops[source], _entries(level, x, y, lane), lane, source == INPUT)
                lane += 1
            if level.link_labels:
                sx, sy = tops[source][-1]
                canvas.label(sx + 14, sy - 19, level.link_labels[k], "start", "small")
        if level.residual:
            tops[number] = _add_residual(canvas, layout, level, x, tops[number], tops[level.reads[0]], lane)
            lane += 1
    ends = [tops[s] for s in layout.network.output]
    for source, points in zip(layout.network.output, ends, strict=True):
        if source == len(layout.network.levels) - 1:
            _to_output(canvas, x, points, layout.top)
        else:
            _skip(canvas, layout, x, points, [(x, layout.top + 8)] * len(points), lane, source == INPUT, head=False)
            canvas.straight([(x, layout.top + 8), (x, layout.top - 10)])
            lane += 1
    canvas.label(x, layout.top - 24, f"y_{{{when}}}")


def _boxes(level: Level, x: float, y: float) -> list[tuple[float, float, str]]:
    kind = "box tint1" if level.cell is None else "box"
    if level.directions == 1:
        return [(x, y, kind)]
    return [(x - 24.0, y, kind), (x + 24.0, y - BACK_RISE, "box tint2")]


def _entries(level: Level, x: float, y: float, lane: int) -> list[Point]:
    """Where links from beside the column enter the boxes of a level, left and right of the one from below."""
    boxes = _boxes(level, x, y)
    shift = 28.0 - 6.0 * (lane % 3)
    if len(boxes) == 1:
        return [(x + shift, y + HEIGHT / 2 + 1)]
    return [(cx + side * shift, cy + HEIGHT / 2 + 1) for (cx, cy, _), side in zip(boxes, (-1, 1), strict=True)]


def _draw_boxes(canvas: Canvas, level: Level, x: float, y: float, below: list[Point]) -> list[Point]:
    """Draw the boxes of one level at one step; return the points where its outputs leave."""
    rows = _boxes(level, x, y)
    two = len(rows) - 1
    wide = WIDTH - 19.2 * two
    for number, (cx, cy, tint) in enumerate(rows):
        sources = [below[number]] if level.separate and len(below) == 2 else below
        for source in sources:
            end = cx + (8 if number == 0 else -8) * two
            canvas.straight(_route_up(source, end, cy + HEIGHT / 2, number, len(rows)))
        canvas.box(cx, cy, wide, HEIGHT, tint)
        _box_label(canvas, cx, cy, ("→ ", "← ")[number] if two else "", level, wide)
    return [(cx + (-26 if n == 0 else 26) * two, cy - HEIGHT / 2) for n, (cx, cy, _) in enumerate(rows)]


def _box_label(canvas: Canvas, x: float, y: float, arrow: str, level: Level, wide: float) -> None:
    name, _, size = level.label.rpartition(" ")
    size = f"{size}, every {level.period}" if level.period > 1 else size
    if level.period == 1 and (6.8 * len(arrow + level.label) < wide or not name):
        canvas.word(x, y, arrow + level.label, within=wide - 8)
    else:  # the size on a line of its own
        canvas.word(x, y - 8, arrow + name, within=wide - 8)
        canvas.word(x, y + 8, size, within=wide - 8)


def _route_up(source: Point, x: float, y: float, number: int, count: int) -> list[Point]:
    """The line from an output up to a box; it passes around the lower box of two."""
    sx, sy = source
    if count == 1 or number == 0:
        turn = (sy + y) / 2 if abs(sy - y) < 40 else y + 14
        return [(sx, sy), (sx, turn), (x, turn), (x, y + 1)] if abs(sx - x) > 1 else [(sx, sy), (x, y + 1)]
    turn = (sy + y + BACK_RISE) / 2 if abs(sy - y - BACK_RISE) < 40 else y + BACK_RISE + 14
    side = x + 64
    return [(sx, sy), (sx, turn), (side, turn), (side, y + 14), (x + 20, y + 14), (x + 20, y + 1)]


def _skip(
    canvas: Canvas,
    layout: Layout,
    x: float,
    sources: list[Point],
    ends: list[Point],
    lane: int,
    from_input: bool,
    head: bool = True,
) -> None:
    """A link that passes levels by: out to a lane beside the column, up, and back in."""
    both = max(len(sources), len(ends))
    for number in range(both):
        sx, sy = sources[min(number, len(sources) - 1)]
        ex, ey = ends[min(number, len(ends) - 1)]
        side = -1 if both == 2 and number == 0 else 1
        far = x + layout.edge(lane, side)
        leave = sy - 6 - 2 * (lane % 3)
        start = [(sx + 24 * side, sy + 14), (far, sy + 14)] if from_input else [(sx, sy), (sx, leave), (far, leave)]
        canvas.straight([*start, (far, ey + 9), (ex, ey + 9), (ex, ey)], "skip", head)


def _add_residual(
    canvas: Canvas, layout: Layout, level: Level, x: float, tops: list[Point], below: list[Point], lane: int
) -> list[Point]:
    """A circle above each output in which what the level read is added to it."""
    joined = level.directions == 2 and not level.separate
    places = [(x, min(y for _, y in tops) - 16)] if joined else [(tx, ty - 16) for tx, ty in tops]
    for number, (px, py) in enumerate(places):
        for tx, ty in tops if joined else [tops[number]]:
            canvas.straight(
                [(tx, ty), (tx, py), (px + (9 if tx > px else -9), py)] if tx != px else [(tx, ty), (px, py + 9)]
            )
        canvas.circle(px, py, 8, "box plain", "what the layer read is added to its output")
        canvas.word(px, py, "+")
        side = -1 if len(places) == 2 and number == 0 else 1
        for sx, sy in below if joined else [below[min(number, len(below) - 1)]]:
            far = x + layout.edge(lane, side)
            leave = sy - 7
            canvas.straight([(sx, sy), (sx, leave), (far, leave), (far, py), (px + 9 * side, py)], "skip")
    return [(px, py - 8) for px, py in places]


def _to_output(canvas: Canvas, x: float, tops: list[Point], y: float) -> None:
    for sx, sy in tops:
        away = abs(sx - x) > 1
        canvas.straight([(sx, sy), (sx, y + 8), (x, y + 8), (x, y - 10)] if away else [(sx, sy), (x, y - 10)])


def _draw_recurrence(canvas: Canvas, layout: Layout, level: Level, y: float, back: bool) -> None:
    """States from step to step: straight lines for delay 1, arcs for longer delays, against time in a backward row."""
    steps, pitch = layout.steps, layout.pitch
    half, shift = (
        WIDTH / 2 - (24 * 0.4 if level.directions == 2 else 0),
        (24.0 if back else -24.0) if level.directions == 2 else 0.0,
    )
    for delay in level.delays:
        if delay == 1:
            for column in range(-1, steps):
                start, end = column * pitch + half + shift, (column + 1) * pitch - half + shift
                start = max(start, end - layout.margin) if column == -1 else start
                end = min(end, start + layout.margin) if column == steps - 1 else end
                ends = [(end, y), (start + 1, y)] if back else [(start, y), (end - 1, y)]
                canvas.straight(ends)
            middle = (steps - 1) // 2
            when = f"t{steps - middle:+d}" if back else f"t{-middle - 1:+d}"
            where = (steps - 1) * pitch + half + layout.margin + 4 if back else -half - layout.margin - 4
            canvas.label(where + shift, y, level.states(when), "start" if back else "end", "small")
            continue
        _draw_delay(canvas, layout, level, delay, shift, y, back)


def _draw_delay(canvas: Canvas, layout: Layout, level: Level, delay: int, shift: float, y: float, back: bool) -> None:
    """Arcs over `delay` steps; into every box a line that says from how far, if no two columns are so far apart."""
    top = y - HEIGHT / 2
    low = level.directions == 2 and not back  # under the boxes of the backward row
    rise = 24.0 if low else _arc(delay)
    for column in range(layout.steps - delay):
        first, last = layout.column(column) + shift + 18, layout.column(column + delay) + shift - 18
        start, end = (last, first) if back else (first, last)
        depth = top - rise
        bend = f"C {start:.1f} {depth:.1f}, {end:.1f} {depth:.1f}, {end:.1f} {top - 1:.1f}"
        canvas.path(f"M {start:.1f} {top:.1f} {bend}", [(start, depth + 10), (end, y)], "delayed")
    if delay < layout.steps:
        where = delay * layout.pitch / 2 + shift + 24
        label = f"W_{{{delay}}}" if level.dilation == 1 else level.states(f"t{'+' if back else '-'}{delay}")
        canvas.label(where, top - (8 if low else 0.75 * rise + 15), label, kind="small")
        return
    side = 1 if back else -1
    for column in range(layout.steps):
        box = layout.column(column) + shift + side * (WIDTH / 2 - abs(shift) * 0.4)
        canvas.straight([(box + side * 24, y + 14), (box + side, y + 14)], "delayed")
    outer = layout.column(layout.steps - 1 if back else 0) + shift + side * (WIDTH / 2 + 28)
    text = f"{delay} steps {'later' if back else 'before'}"
    canvas.word(outer, y + 14, text, "start" if back else "end")


def _draw_delayed_reads(canvas: Canvas, layout: Layout, number: int) -> None:
    """Links from levels at the step before, to the levels that update at this step."""
    for level, y in zip(layout.network.levels, layout.heights, strict=True):
        if (number + 1) % level.period:
            continue
        for k, source in enumerate(level.delayed):
            sy = layout.heights[source]
            turn = -1 if sy > y else 1  # a level below enters at the bottom
            start = (layout.column(number - 1) + WIDTH / 2 - 8, sy + turn * HEIGHT / 2)
            end = (layout.column(number) - WIDTH / 2 + 8 + 10 * k, y - turn * (HEIGHT / 2 + 1))
            canvas.straight([start, end], "delayed")


# ---------------------------------------------------------------------------------------------------- folded


def draw_folded(canvas: Canvas, network: Network) -> None:
    """One column; the recurrence is a loop, labelled with its delay."""
    layout = Layout(network, 1)
    _draw_column(canvas, layout, 0.0, "t", _common_tick(network))
    for level, y in zip(network.levels, layout.heights, strict=True):
        if level.cell is None:
            continue
        shift = 24.0 if level.directions == 2 else 0.0
        lanes = layout.edge(len(network.levels), 1) - WIDTH / 2 - 12 if network.skips else 0.0
        for number, delay in enumerate(level.delays):
            _loop(canvas, -shift + WIDTH / 2 - 0.4 * shift, y, number, delay * level.period, 1, lanes)
            if level.directions == 2:
                _loop(canvas, shift - WIDTH / 2 + 0.4 * shift, y - BACK_RISE, number, delay, -1, lanes)
        for k, source in enumerate(level.delayed):
            _delayed_loop(canvas, y, layout.heights[source], k)


def _common_tick(network: Network) -> int:
    product = 1
    for level in network.levels:
        product *= level.period
    return product


def _delayed_loop(canvas: Canvas, y: float, sy: float, k: int) -> None:
    """A link from another level through a delay of one step, on the left."""
    far = -WIDTH / 2 - 30.0 - 34.0 * k - (34.0 if sy > y else 0.0)
    canvas.straight([(-WIDTH / 2, sy + 8), (far, sy + 8), (far, y - 8), (-WIDTH / 2 - 1, y - 8)], "delayed")
    canvas.box(far, (y + sy) / 2, 26, 15, "box solid", "delay of one step", round_=3)
    canvas.word(far, (y + sy) / 2, "−1")


def _loop(canvas: Canvas, x: float, y: float, number: int, delay: int, side: int, past: float = 0.0) -> None:
    """A loop from the box through a delay and back; on the left side for a backward layer; `past` the lanes."""
    reach = (32.0 if side > 0 else 58.0) + past  # on the left, past the line of the forward row
    far, rise = x + side * (reach + 36.0 * number), 12.0 + 7.0 * number
    canvas.straight([(x, y - rise), (far, y - rise), (far, y + rise), (x + side, y + rise)])
    canvas.box(far, y, 26, 15, "box solid", f"delay of {delay} steps" if delay > 1 else "delay of one step", round_=3)
    canvas.word(far, y, f"{'−' if side > 0 else '+'}{delay}")
