"""Layered graph layout (Sugiyama): columns by dependency, rows that keep line crossings few."""

from collections.abc import Sequence
from itertools import pairwise

from .cell_graph import DiagramNode

Route = list[DiagramNode]
Routes = dict[tuple[DiagramNode, DiagramNode], Route]
Readers = dict[DiagramNode, list[DiagramNode]]


def assign_positions(nodes: Sequence[DiagramNode]) -> Routes:
    """Set `layer` and `row` of every node, and return for every line the invisible bend nodes it passes."""
    _assign_columns(nodes)
    routes, all_nodes = _insert_bends(nodes)
    last = max(node.layer for node in nodes)
    columns = [[node for node in all_nodes if node.layer == layer] for layer in range(last + 1)]
    readers: Readers = {node: [] for node in all_nodes}
    for node in all_nodes:
        for source in node.sources if node.shape == "bend" else _neighbours(node, routes):
            readers[source].append(node)
    for column in columns:
        column.sort(key=_initial_order)
        for row, node in enumerate(column):
            node.row = float(row)
    for sweep in range(24):
        _sweep(columns, routes, readers, forwards=sweep % 2 == 0)
    return routes


def _assign_columns(nodes: Sequence[DiagramNode]) -> None:
    """Columns as late as possible; inputs are on the left, outputs on the right."""
    readers: Readers = {node: [] for node in nodes}
    for node in nodes:
        for source in node.sources:
            readers[source].append(node)
    for node in nodes:
        node.layer = 1 + max((source.layer for source in node.sources), default=-1)
    last = max(node.layer for node in nodes if node.shape == "output")
    for node in sorted(nodes, key=lambda item: -item.layer):
        if node.shape == "output":
            node.layer = last
        elif node.shape not in ("input", "join"):
            node.layer = min((reader.layer for reader in readers[node]), default=last) - 1


def _insert_bends(
    nodes: Sequence[DiagramNode],
) -> tuple[Routes, list[DiagramNode]]:
    """Give a line over several columns an invisible node in each; lines from the same source share them."""
    routes: Routes = {}
    bends: dict[tuple[DiagramNode, int, bool], DiagramNode] = {}
    for node in nodes:
        for source in node.sources:
            lane, before, route = node.lane if node.lane == source.lane else None, source, []
            for layer in range(source.layer + 1, node.layer):
                key = (source, layer, lane is not None)
                if key not in bends:
                    bends[key] = DiagramNode("bend", "", [before], lane=lane, layer=layer)
                before = bends[key]
                route.append(before)
            routes[source, node] = route
    return routes, [*nodes, *bends.values()]


def _neighbours(node: DiagramNode, routes: Routes) -> list[DiagramNode]:
    """The nodes directly before a node on its lines."""
    return [(routes[source, node] or [source])[-1] for source in node.sources]


def _initial_order(node: DiagramNode) -> tuple[int, int]:
    """Sort key: memory paths on top, x at the bottom."""
    rank = {"circle": 1, "box": 2, "output": 1, "bend": 3, "join": 4, "input": 3}[node.shape]
    return node.lane if node.lane is not None else 99, 9 if node.state == "x" else rank


def _sweep(columns: list[list[DiagramNode]], routes: Routes, readers: Readers, forwards: bool) -> None:
    """Move every node towards the mean row of its neighbours, at least one row apart; memory paths stay on top."""
    for column in columns if forwards else columns[::-1]:
        preferred = {}
        for node in column:
            before = node.sources if node.shape == "bend" else _neighbours(node, routes)
            near = before if forwards else readers[node]
            near = near or (readers[node] if forwards else before)
            preferred[node] = sum(item.row for item in near) / len(near) if near else node.row
            if node.lane is not None:
                preferred[node] = float(node.lane)
            elif node.state == "x" and node.shape == "input":
                preferred[node] = max(preferred[node], 2.0)
        column.sort(key=lambda item: (item.lane is None, preferred[item]))
        _spread(column, preferred)


def _spread(column: list[DiagramNode], preferred: dict[DiagramNode, float]) -> None:
    """Rows near the preferred ones, in order, one row apart: pushed down first, then back up where there is room."""
    column[0].row = preferred[column[0]]
    for above, node in pairwise(column):
        node.row = max(preferred[node], above.row + _gap(above, node))
    for above, below in zip(column[-2::-1], column[:0:-1], strict=True):
        if not above.belt:
            slack = below.row - _gap(above, below) - above.row
            above.row += max(0.0, min(slack, preferred[above] - above.row))
    excess = sum(node.row - preferred[node] for node in column) / max(1, len(column))
    if excess > 0 and not any(node.belt for node in column):
        for node in column:
            node.row -= excess / 2


def _gap(above: DiagramNode, below: DiagramNode) -> float:
    """Rows between two nodes; a line stays clear of the label below a named node."""
    if below.shape != "bend":
        return 1.0
    return 0.86 if above.name and above.shape in ("box", "circle") else 0.62
