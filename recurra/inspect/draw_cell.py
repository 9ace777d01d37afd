"""Draws the inside of a cell: one step, or several steps connected by their states."""

import re

from ..cell import Cell
from .cell_graph import DiagramNode, diagram_nodes
from .graph_layout import Route, assign_positions
from .svg import Canvas, text_width

ROW, GAP = 52.0, 44.0


def draw_cell(canvas: Canvas, cell: Cell, steps: int = 1) -> None:
    """Draw `steps` copies of the cell; the new states of one copy are the old states of the next."""
    nodes = diagram_nodes(cell)
    routes = assign_positions(nodes)
    columns = _column_centres(nodes)
    width = max(columns.values()) - min(columns.values())
    name = type(cell).__name__
    ends: dict[str, tuple[float, float]] = {}
    for copy in range(steps):
        offset, shift = copy * (width + 86), copy - (steps - 1) // 2 if steps > 1 else 0
        drawn = _CellCopy(canvas, nodes, routes, columns, offset, shift)
        drawn.frame(name if copy == (steps - 1) // 2 else "")
        drawn.lines(ends)
        drawn.shapes(first=copy == 0, single=steps == 1)
        ends = drawn.ends()


def _column_centres(nodes: list[DiagramNode]) -> dict[int, float]:
    widths: dict[int, float] = {}
    for node in nodes:
        widths[node.layer] = max(widths.get(node.layer, 0.0), _width(node))
    centres, x = {}, 0.0
    for layer in range(max(widths) + 1):
        half = widths.get(layer, 20.0) / 2
        centres[layer] = x + half
        x += 2 * half + GAP
    return centres


def _width(node: DiagramNode) -> float:
    if node.shape == "box":
        return max(40.0, 9.6 * text_width(node.label) + 14)
    return {"circle": 28.0, "join": 8.0, "bend": 4.0}.get(node.shape, 30.0)


def shift_time(latex: str, shift: int) -> str:
    """The LaTeX with its time index shifted: `h_{t-1}` → `h_{t}`, `h_{t+1}`, …"""

    def move(match: re.Match) -> str:
        total = int(match[1] or 0) + shift
        return f"t{total:+d}" if total else "t"

    return re.sub(r"(?<![a-zA-Z\\])t([-+]\d+)?(?=[,}])", move, latex) if shift else latex


class _CellCopy:
    """One copy of the cell."""

    def __init__(
        self,
        canvas: Canvas,
        nodes: list[DiagramNode],
        routes: dict[tuple[DiagramNode, DiagramNode], Route],
        columns: dict[int, float],
        offset: float,
        shift: int,
    ):
        self.canvas, self.nodes, self.routes = canvas, nodes, routes
        self.columns, self.offset, self.shift = columns, offset, shift

    def at(self, node: DiagramNode) -> tuple[float, float]:
        return self.offset + self.columns[node.layer], node.row * ROW

    def frame(self, name: str) -> None:
        inner = [node for node in self.nodes if node.shape not in ("input", "output")]
        if not inner:
            return
        xs, ys = zip(*(self.at(node) for node in inner), strict=True)
        left, right = min(xs) - 38, max(xs) + 38
        rows = [*ys, *(bend.row * ROW for route in self.routes.values() for bend in route)]
        top, bottom = min(rows) - 34, max(rows) + 40
        self.canvas.box((left + right) / 2, (top + bottom) / 2, right - left, bottom - top, "frame", round_=12)
        if name:
            self.canvas.word((left + right) / 2, top - 12, name)

    def lines(self, ends: dict[str, tuple[float, float]]) -> None:
        for node in self.nodes:
            for source in node.sources:
                belt = "belt" if node.belt and node.lane == source.lane else ""
                x0, y0 = self.at(source)
                x1, y1 = self.at(node)
                start = (x0 + _out(source), y0)
                if source.shape == "input" and source.state in ends and not source.label.endswith("x_{t}"):
                    start = (x0 + 4, y0)
                route = [start, *(self.at(bend) for bend in self.routes[source, node]), (x1 - _in(node), y1)]
                self.canvas.arrow(route, belt, head=node.shape != "join")
        for node in self.nodes:  # from the previous step
            if node.shape == "input" and node.state in ends:
                x, y = self.at(node)
                self.canvas.arrow([ends[node.state], (x + 4, y)], "belt" if node.belt else "", head=False)

    def shapes(self, first: bool, single: bool) -> None:
        for node in self.nodes:
            x, y = self.at(node)
            label = shift_time(node.label, self.shift)
            if node.shape == "input":
                if first or node.state == "x":
                    self.canvas.label(x + 8, y, label, "end")
            elif node.shape == "output":
                self.canvas.label(x - 8, y - (0 if single else 13), label, "start")
            elif node.shape == "join":
                self.canvas.circle(x, y, 3.4, "dot", "shared input")
            elif node.shape == "circle":
                self.canvas.circle(x, y, 13, "box tint2", node.title)
                self.canvas.label(x, y, node.label, tight=True)
            else:
                self.canvas.box(x, y, _width(node), 30, "box" if r"\sigma" in node.label else "box tint1", node.title)
                self.canvas.label(x, y, node.label, tight=True)
            if node.name and node.shape in ("box", "circle"):
                self.canvas.label(x + 2, y + 24, shift_time(node.name, self.shift), "middle", "small")

    def ends(self) -> dict[str, tuple[float, float]]:
        """The points where the new states leave this copy."""
        found = {}
        for node in self.nodes:
            if node.shape == "output" and node.state != "y":
                x, y = self.at(node)
                found[node.state] = (x - 12, y)
        return found


def _out(node: DiagramNode) -> float:
    return {"input": 11.0, "join": 3.4, "circle": 13.0}.get(node.shape, _width(node) / 2)


def _in(node: DiagramNode) -> float:
    return {"output": 12.0, "join": 3.4, "circle": 14.5}.get(node.shape, _width(node) / 2 + 1.5)
