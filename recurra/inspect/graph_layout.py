"""Where the parts of a graph stand: columns by what depends on what, rows so that lines cross little (Sugiyama)."""

from collections.abc import Sequence

from .cell_graph import Part

Way = list[Part]


def place(parts: Sequence[Part]) -> dict[tuple[Part, Part], Way]:
    """Set `layer` and `row` of every part. Returns, for every line, the invisible parts it passes on its way."""
    _columns(parts)
    ways, everything = _with_bends(parts)
    last = max(part.layer for part in parts)
    columns = [[part for part in everything if part.layer == layer] for layer in range(last + 1)]
    readers: dict[Part, list[Part]] = {part: [] for part in everything}
    for part in everything:
        for source in part.sources if part.shape == "bend" else _neighbours(part, ways):
            readers[source].append(part)
    for column in columns:
        column.sort(key=_first_guess)
        for row, part in enumerate(column):
            part.row = float(row)
    for sweep in range(24):
        _sweep(columns, ways, readers, forwards=sweep % 2 == 0)
    return ways


def _columns(parts: Sequence[Part]) -> None:
    """As late as possible, except the ends: what a step starts from stands left, what it gives right."""
    readers: dict[Part, list[Part]] = {part: [] for part in parts}
    for part in parts:
        for source in part.sources:
            readers[source].append(part)
    for part in parts:
        part.layer = 1 + max((source.layer for source in part.sources), default=-1)
    last = max(part.layer for part in parts if part.shape == "output")
    for part in sorted(parts, key=lambda one: -one.layer):
        if part.shape == "output":
            part.layer = last
        elif part.shape not in ("input", "join"):
            part.layer = min((reader.layer for reader in readers[part]), default=last) - 1


def _with_bends(parts: Sequence[Part]) -> tuple[dict[tuple[Part, Part], Way], list[Part]]:
    """A line over several columns gets an invisible part in each of them, shared by lines from the same source."""
    ways: dict[tuple[Part, Part], Way] = {}
    bends: dict[tuple[Part, int, bool], Part] = {}
    for part in parts:
        for source in part.sources:
            lane, before, way = part.lane if part.lane == source.lane else None, source, []
            for layer in range(source.layer + 1, part.layer):
                key = (source, layer, lane is not None)
                if key not in bends:
                    bends[key] = Part("bend", "", [before], lane=lane, layer=layer)
                before = bends[key]
                way.append(before)
            ways[source, part] = way
    return ways, [*parts, *bends.values()]


def _neighbours(part: Part, ways: dict[tuple[Part, Part], Way]) -> list[Part]:
    """What stands just before a part on its lines."""
    return [(ways[source, part] or [source])[-1] for source in part.sources]


def _first_guess(part: Part) -> tuple[int, int]:
    """Belts on top, inputs from outside at the bottom."""
    rank = {"circle": 1, "box": 2, "output": 1, "bend": 3, "join": 4, "input": 3}[part.shape]
    return part.lane if part.lane is not None else 99, 9 if part.state == "x" else rank


def _sweep(columns: list[list[Part]], ways: dict, readers: dict[Part, list[Part]], forwards: bool) -> None:
    """Move every part towards the middle of its neighbours, keep a distance of one row; belts stay on top."""
    for column in columns if forwards else columns[::-1]:
        wanted = {}
        for part in column:
            before = part.sources if part.shape == "bend" else _neighbours(part, ways)
            near = before if forwards else readers[part]
            near = near or (readers[part] if forwards else before)
            wanted[part] = sum(one.row for one in near) / len(near) if near else part.row
            if part.lane is not None:
                wanted[part] = float(part.lane)
            elif part.state == "x" and part.shape == "input":
                wanted[part] = max(wanted[part], 2.0)
        column.sort(key=lambda one: (one.lane is None, wanted[one]))
        _spread(column, wanted)


def _spread(column: list[Part], wanted: dict[Part, float]) -> None:
    """Rows near those wanted, in order, a row apart: pushed down first, then back up as far as there is room."""
    floor = float("-inf")
    for part in column:
        part.row = max(wanted[part], floor + _gap(part))
        floor = part.row
    for above, below in zip(column[-2::-1], column[:0:-1], strict=True):
        if not above.belt:
            slack = below.row - _gap(below) - above.row
            above.row += max(0.0, min(slack, wanted[above] - above.row))
    excess = sum(part.row - wanted[part] for part in column) / max(1, len(column))
    if excess > 0 and not any(part.belt for part in column):
        for part in column:
            part.row -= excess / 2


def _gap(part: Part) -> float:
    return 0.62 if part.shape == "bend" else 1.0
