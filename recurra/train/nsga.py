"""Selection of NSGA-II (Deb et al. 2002): Pareto fronts and crowding distance, all objectives minimised."""

import math
from collections.abc import Sequence

Objectives = Sequence[float]


def dominates(one: Objectives, other: Objectives) -> bool:
    """Whether `one` is nowhere worse and somewhere better than `other`."""
    return all(a <= b for a, b in zip(one, other, strict=True)) and any(a < b for a, b in zip(one, other, strict=True))


def fronts(points: Sequence[Objectives]) -> list[list[int]]:
    """Indices by rank: the first front is not dominated, the second only by the first, …."""
    left, ranked = set(range(len(points))), []
    while left:
        front = sorted(i for i in left if not any(dominates(points[j], points[i]) for j in left))
        ranked.append(front)
        left -= set(front)
    return ranked


def crowding(points: Sequence[Objectives], front: Sequence[int]) -> dict[int, float]:
    """Crowding distance of each point on a front; infinite at the ends."""
    distance = dict.fromkeys(front, 0.0)
    for k in range(len(points[front[0]])):
        ordered = sorted(front, key=lambda i: points[i][k])
        span = points[ordered[-1]][k] - points[ordered[0]][k]
        distance[ordered[0]] = distance[ordered[-1]] = math.inf
        for before, i, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
            gap = points[after][k] - points[before][k]
            distance[i] += gap / span if span > 0 and math.isfinite(span) else 0.0
    return distance


def select(points: Sequence[Objectives], count: int) -> list[int]:
    """The `count` survivors, best first: by front, within a front by crowding distance."""
    kept: list[int] = []
    for front in fronts(points):
        distance = crowding(points, front)
        kept += sorted(front, key=lambda i: -distance[i])
        if len(kept) >= count:
            break
    return kept[:count]
