"""NSGA-II (Deb et al. 2002): who survives when there are several objectives, all to be made small."""

import math
from collections.abc import Sequence

Objectives = Sequence[float]


def dominates(one: Objectives, other: Objectives) -> bool:
    """Nowhere worse, somewhere better."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


def fronts(points: Sequence[Objectives]) -> list[list[int]]:
    """Indices by rank: the first front is dominated by nobody, the next only by the first, …"""
    left, ranked = set(range(len(points))), []
    while left:
        front = sorted(i for i in left if not any(dominates(points[j], points[i]) for j in left))
        ranked.append(front)
        left -= set(front)
    return ranked


def crowding(points: Sequence[Objectives], front: Sequence[int]) -> dict[int, float]:
    """How much room each has to its neighbours on the front; the ends have endless room."""
    room = dict.fromkeys(front, 0.0)
    for k in range(len(points[front[0]])):
        ordered = sorted(front, key=lambda i: points[i][k])
        span = points[ordered[-1]][k] - points[ordered[0]][k]
        room[ordered[0]] = room[ordered[-1]] = math.inf
        for before, i, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
            gap = points[after][k] - points[before][k]
            room[i] += gap / span if span > 0 and math.isfinite(span) else 0.0
    return room


def select(points: Sequence[Objectives], count: int) -> list[int]:
    """The `count` to keep, best first: by front, within a front by room."""
    kept: list[int] = []
    for front in fronts(points):
        room = crowding(points, front)
        kept += sorted(front, key=lambda i: -room[i])
        if len(kept) >= count:
            break
    return kept[:count]
