"""Which values as wide as a matrix a loop over its axes computes, and which sums it makes on the way.

A row of n · k · v numbers is a matrix of every head. A flat loop over it looks up in tables which number of another row
each place reads. A nest of loops over heads, keys and values does not: it reads numbers of other rows at a stride of
each axis, and sums over an axis in registers while it computes what they are of. So an update and the readings of what
it gives are one pass over the matrix.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from operator import mul

import torch
from torch import Tensor

from ..ir.index_map import IndexMap
from ..ir.nodes import Node

FEWEST = 1024  # numbers of a row from which on loops over axes pay
SHORTEST = 8  # the last axis, which vectors run along


@dataclass(frozen=True)
class Places:
    """A place in a row for every place of a nest: the first one, and a stride for each of its axes."""

    first: int
    strides: tuple[int, ...]

    @property
    def by_column(self) -> int:
        """Along the last axis."""
        return self.strides[-1]

    @property
    def by_row(self) -> int:
        """Along the axis before it."""
        return self.strides[-2]


@dataclass(frozen=True)
class Reduction:
    """A sum over axes of a nest: where its results lie, and where its arguments do; None: at the nest's own places."""

    result: Places
    args: tuple[Places | None, ...]


class Nests:
    """The nests of a program: the axes of each width, and what they compute."""

    def __init__(self, nodes: Sequence[Node]):
        maps: dict[int, list[bytes]] = {}
        for node in nodes:
            for width, places in _maps(node):
                maps.setdefault(width, []).append(places)
        self.axes = {width: axes for width, found in maps.items() if (axes := _common_axes(width, found)) is not None}
        self._holds: dict[Node, bool] = {}
        self.reductions: dict[Node, Reduction] = {}
        for node in nodes:
            reduction = self._reduction(node)
            if reduction is not None:
                self.reductions[node] = reduction

    def holds(self, node: Node) -> bool:
        """Whether a nest computes a wide value: from rows, and numbers of rows at strides of its axes."""
        if node not in self._holds:
            self._holds[node] = node.width in self.axes and self._is_made_of_rows(node)
        return self._holds[node]

    def _is_made_of_rows(self, node: Node) -> bool:
        if node.op == "gather":
            return self.places(node) is not None
        if node.op == "expand":
            return True
        if node.is_elementwise:
            return all(arg.width == 1 or self.holds(arg) for arg in node.args)
        return node.op in ("load", "weight", "literal")

    def places(self, node: Node) -> Places | None:
        """Which numbers of another row a gather that only moves them reads; None if not at strides of axes."""
        if not node.attr.moves or node.width not in self.axes:
            return None
        return _fitting(node.attr.maps[0].data, self.axes[node.width])

    def wide_args(self, node: Node) -> list[Node]:
        """Those arguments of a reduction that its nest computes."""
        return [a for a, at in zip(node.args, self.reductions[node].args, strict=True) if at is None]

    def width(self, node: Node) -> int:
        """Of the nest that makes a reduction."""
        return self.wide_args(node)[0].width

    def _reduction(self, node: Node) -> Reduction | None:
        found = _inverted(node)
        if found is None or found[0] not in self.axes:
            return None
        axes, made = self.axes[found[0]], [_fitting(data, self.axes[found[0]]) for data in found[1]]
        result, *args = made
        if result is None or any(places is None for places in args):
            return None
        own = Places(0, tuple(accumulate(reversed(axes[1:]), mul, initial=1))[::-1])
        args = [None if p == own and a.width == found[0] else p for p, a in zip(args, node.args, strict=True)]
        wide = [a for a, at in zip(node.args, args, strict=True) if at is None]
        outer = all(stride for stride, size in zip(result.strides[:-2], axes[:-2], strict=True) if size > 1)
        if not outer or (result.by_row and result.by_column) or not wide or not all(map(self.holds, wide)):
            return None
        return Reduction(result, tuple(args))


# ---------------------------------------------------------------------------------------------------- maps


def _maps(node: Node) -> Iterable[tuple[int, bytes]]:
    """(width of a nest, places in another row for each of its places) of a gather."""
    if node.op == "gather" and node.attr.moves and node.width >= FEWEST:
        yield node.width, node.attr.maps[0].data
    elif (found := _inverted(node)) is not None:
        yield from ((found[0], data) for data in found[1])


def _inverted(node: Node) -> tuple[int, tuple[bytes, ...]] | None:
    """Of a gather that sums over a wide row, every number of which it reads once: its width; for each number the result
    that reads it, and the place of each argument that is read with it."""
    if node.op != "gather" or node.attr.kind != "sum" or node.attr.terms == 1:
        return None
    widths = [arg.width for arg in node.args]
    wide = max(widths)
    if wide < FEWEST or node.attr.terms * node.width != wide:
        return None
    return _inverse(node.attr.maps, widths.index(wide), wide)


@functools.lru_cache(maxsize=256)
def _inverse(maps: tuple[IndexMap, ...], which: int, wide: int) -> tuple[int, tuple[bytes, ...]] | None:
    places = maps[which].places.flatten()
    if not torch.equal(places.sort().values, torch.arange(wide)):
        return None
    order = places.argsort()
    results = torch.arange(maps[which].width).expand(maps[which].terms, -1).flatten()
    rows = [results[order], *(index.places.flatten()[order] for index in maps)]
    return wide, tuple(IndexMap.of(row).data for row in rows)


@functools.lru_cache(maxsize=256)
def _fitting(data: bytes, axes: tuple[int, ...]) -> Places | None:
    """Places as strides of axes that vectors can read: next to each other along the last one, or all the same."""
    places = _tensor(data)
    steps = tuple(accumulate(reversed(axes[1:]), mul, initial=1))[::-1]
    strides = tuple(int(places[step] - places[0]) if size > 1 else 0 for step, size in zip(steps, axes, strict=True))
    expected, index = places[0].expand(len(places)).clone(), torch.arange(len(places))
    for step, size, stride in zip(steps, axes, strides, strict=True):
        expected += stride * (index // step % size)
    if bool((places < 0).any()) or strides[-1] not in (0, 1) or not torch.equal(places, expected):
        return None
    return Places(int(places[0]), strides)


def _common_axes(width: int, maps: Iterable[bytes]) -> tuple[int, ...] | None:
    """The axes of all maps of a row, the last one fastest; None if they have no two in common."""
    ends = {width}
    for data in set(maps):
        sizes = _axes(data)
        ends |= set(accumulate(reversed(sizes or ()), mul))
    chain = sorted(ends - {1})
    if any(end % start for start, end in pairwise(chain)):
        return None
    axes = tuple(end // start for start, end in pairwise([1, *chain]))[::-1]
    return axes if len(axes) > 1 and axes[-1] >= SHORTEST and prod(axes) == width else None


@functools.lru_cache(maxsize=256)
def _axes(data: bytes) -> tuple[int, ...] | None:
    """The sizes of axes, the last one fastest, along each of which places move by a stride of its own."""
    rest, found = _tensor(data), []
    while len(rest) > 1:
        steady = rest == rest[0] + (rest[1] - rest[0]) * torch.arange(len(rest))
        run = len(rest) if bool(steady.all()) else int(steady.int().argmin())
        size = next((n for n in range(run, 1, -1) if len(rest) % n == 0 and _repeats(rest, n)), 0)
        if not size:
            return None
        found.append(size)
        rest = rest[::size]
    return tuple(found[::-1])


def _repeats(places: Tensor, size: int) -> bool:
    """Whether stretches of a size are alike, but for where they begin."""
    parts = places.reshape(-1, size)
    return bool((parts - parts[:, :1] == parts[:1] - parts[0, 0]).all())


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.int32).long()
