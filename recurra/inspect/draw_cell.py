"""The inside of a cell as a picture, once or unrolled over several steps with the states running through."""

import re

from ..cell import Cell
from .cell_graph import Part, parts_of
from .graph_layout import Way, place
from .svg import Canvas, text_width

ROW, GAP = 52.0, 44.0


def draw_cell(canvas: Canvas, cell: Cell, steps: int = 1) -> None:
    """`steps` copies side by side; the new states of one are the old states of the next."""
    parts = parts_of(cell)
    ways = place(parts)
    columns = _column_centres(parts)
    width = max(columns.values()) - min(columns.values())
    name = type(cell).__name__
    ends: dict[str, tuple[float, float]] = {}
    for copy in range(steps):
        offset, shift = copy * (width + 86), copy - (steps - 1) // 2 if steps > 1 else 0
        panel = _Panel(canvas, parts, ways, columns, offset, shift)
        panel.frame(name if copy == (steps - 1) // 2 else "")
        panel.lines(ends)
        panel.shapes(first=copy == 0, single=steps == 1)
        ends = panel.ends()


def _column_centres(parts: list[Part]) -> dict[int, float]:
    widths: dict[int, float] = {}
    for part in parts:
        widths[part.layer] = max(widths.get(part.layer, 0.0), _width(part))
    centres, x = {}, 0.0
    for layer in range(max(widths) + 1):
        half = widths.get(layer, 20.0) / 2
        centres[layer] = x + half
        x += 2 * half + GAP
    return centres


def _width(part: Part) -> float:
    if part.shape == "box":
        return max(40.0, 9.6 * text_width(part.label) + 14)
    return {"circle": 28.0, "join": 8.0, "bend": 4.0}.get(part.shape, 30.0)


def shifted(latex: str, shift: int) -> str:
    """`h_{t-1}` seen from another step: `h_{t}`, `h_{t+1}`, …"""

    def move(match: re.Match) -> str:
        total = int(match[1] or 0) + shift
        return f"t{total:+d}" if total else "t"

    return re.sub(r"(?<![a-zA-Z\\])t([-+]\d+)?(?=[,}])", move, latex) if shift else latex


class _Panel:
    """One copy of the cell."""

    def __init__(
        self,
        canvas: Canvas,
        parts: list[Part],
        ways: dict[tuple[Part, Part], Way],
        columns: dict[int, float],
        offset: float,
        shift: int,
    ):
        self.canvas, self.parts, self.ways = canvas, parts, ways
        self.columns, self.offset, self.shift = columns, offset, shift

    def at(self, part: Part) -> tuple[float, float]:
        return self.offset + self.columns[part.layer], part.row * ROW

    def frame(self, name: str) -> None:
        inner = [part for part in self.parts if part.shape not in ("input", "output")]
        if not inner:
            return
        xs, ys = zip(*(self.at(part) for part in inner), strict=True)
        left, right = min(xs) - 38, max(xs) + 38
        rows = [*ys, *(bend.row * ROW for way in self.ways.values() for bend in way)]
        top, bottom = min(rows) - 34, max(rows) + 40
        self.canvas.box((left + right) / 2, (top + bottom) / 2, right - left, bottom - top, "frame", round_=12)
        if name:
            self.canvas.word((left + right) / 2, top - 12, name)

    def lines(self, ends: dict[str, tuple[float, float]]) -> None:
        for part in self.parts:
            for source in part.sources:
                belt = "belt" if part.belt and part.lane == source.lane else ""
                x0, y0 = self.at(source)
                x1, y1 = self.at(part)
                start = (x0 + _out(source), y0)
                if source.shape == "input" and source.state in ends and not source.label.endswith("x_{t}"):
                    start = (x0 + 4, y0)
                way = [start, *(self.at(bend) for bend in self.ways[source, part]), (x1 - _in(part), y1)]
                self.canvas.arrow(way, belt, head=part.shape != "join")
        for part in self.parts:  # from the step before
            if part.shape == "input" and part.state in ends:
                x, y = self.at(part)
                self.canvas.arrow([ends[part.state], (x + 4, y)], "belt" if part.belt else "", head=False)

    def shapes(self, first: bool, single: bool) -> None:
        for part in self.parts:
            x, y = self.at(part)
            label = shifted(part.label, self.shift)
            if part.shape == "input":
                if first or part.state == "x":
                    self.canvas.label(x + 8, y, label, "end")
            elif part.shape == "output":
                self.canvas.label(x - 8, y - (0 if single else 13), label, "start")
            elif part.shape == "join":
                self.canvas.circle(x, y, 3.4, "dot", "read together")
            elif part.shape == "circle":
                self.canvas.circle(x, y, 13, "box tint2", part.title)
                self.canvas.label(x, y, part.label, tight=True)
            else:
                self.canvas.box(x, y, _width(part), 30, "box" if r"\sigma" in part.label else "box tint1", part.title)
                self.canvas.label(x, y, part.label, tight=True)
            if part.name and part.shape in ("box", "circle"):
                self.canvas.label(x + 2, y + 24, shifted(part.name, self.shift), "middle", "small")

    def ends(self) -> dict[str, tuple[float, float]]:
        """Where the new states leave this copy."""
        found = {}
        for part in self.parts:
            if part.shape == "output" and part.state != "y":
                x, y = self.at(part)
                found[part.state] = (x - 12, y)
        return found


def _out(part: Part) -> float:
    return {"input": 11.0, "join": 3.4, "circle": 13.0}.get(part.shape, _width(part) / 2)


def _in(part: Part) -> float:
    return {"output": 12.0, "join": 3.4, "circle": 14.5}.get(part.shape, _width(part) / 2 + 1.5)
