"""Find the axes of every value of a loop, from the index maps between values.

A row of n · k · v numbers is a matrix of every head: axes (n, k, v), the last one fastest. Programs share some axes, so
each value needs its own. Maps say how they belong together: a sum that reads place `k · v₀ + v` for result v sums over
k, and a map that repeats numbers adds an axis. Axes are joined where two values meet number by number.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from ....cell import State
from ...ir.buffers import Role
from ...ir.index_map import IndexMap
from ...ir.nodes import Node, subgraph
from ...ir.values import Unsupported
from .phases import Place

STATES = (Role.STATE, Role.PAST, Role.CARRY, Role.HEAD)


class Axis:
    """One axis of some values; joined axes have one root."""

    def __init__(self, size: int):
        self.size = size
        self.parent: Axis = self

    def root(self) -> "Axis":
        while self.parent is not self:
            self = self.parent
        return self


@dataclass(frozen=True)
class Reading:
    """How a gather reads one argument: for each axis of it the position among the result's axes and those summed."""

    positions: tuple[int, ...]


@dataclass
class Combination:
    """A gather as an operation on axes. The first axes of the iteration are the result's, then those summed over."""

    axes: list[Axis]  # of the iteration
    results: int  # how many of them are the result's
    readings: list[Reading] = field(default_factory=list)


class Axes:
    """The axes of all values that some nodes depend on; `carried`: what replaces a value for the next step."""

    def __init__(self, roots: Iterable[Node], states: Sequence[State], carried: Mapping[Place, Node]):
        self.nodes = subgraph(roots)
        self.parents: dict[Node, Node] = {}
        self.known: dict[Node, list[Axis]] = {}  # by the representative of values that meet number by number
        self.combinations: dict[Node, Combination] = {}
        self.states = {state.name: state for state in states}
        self._join_elementwise()
        for load in self.nodes:  # a new value has the axes of the one it replaces
            new = carried.get((load.attr.buffer, load.attr.offset, load.width)) if load.op == "load" else None
            if new is not None and load.width == new.width > 1:
                self._join(load, new)
        self._start_from_states()
        self._propagate()

    def of(self, node: Node) -> list[Axis]:
        """The axes of a value, the last one fastest; none of a single number."""
        if node.width == 1:
            return []
        found = self._find(node)
        if found not in self.known:
            self.known[found] = [Axis(node.width)]
        return [axis.root() for axis in self.known[found]]

    # ------------------------------------------------------------------------------------------ values that meet

    def _find(self, node: Node) -> Node:
        while self.parents.get(node, node) is not node:
            node = self.parents[node]
        return node

    def _join(self, one: Node, other: Node) -> None:
        first, second = self._find(one), self._find(other)
        if first is not second:
            self.parents[second] = first

    def _join_elementwise(self) -> None:
        for node in self.nodes:
            if node.is_elementwise:
                for arg in node.args:
                    if arg.width == node.width > 1:
                        self._join(node, arg)

    def _start_from_states(self) -> None:
        """The axes of states that are loaded, and of the new values that replace them."""
        of_state: dict[str, list[Axis]] = {}
        for node in self.nodes:
            if node.op != "load" or node.attr.buffer.role not in STATES or node.width == 1:
                continue
            state = self.states.get(node.attr.buffer.name)
            if state is None or not state.axes or node.width != state.size:
                continue
            axes = of_state.setdefault(state.name, [Axis(size) for size in state.axes if size > 1])
            self._set(node, axes)

    def _set(self, node: Node, axes: list[Axis]) -> bool:
        """Note the axes of a value; whether they are new."""
        found = self._find(node)
        if found not in self.known:
            self.known[found] = axes
            return True
        own = self.known[found]
        if [a.size for a in own] != [a.size for a in axes]:
            raise Unsupported(f"a row of {node.width} numbers with two different shapes")
        return sum(_unite(a, b) for a, b in zip(own, axes, strict=True)) > 0

    # ------------------------------------------------------------------------------------------ gathers

    def _propagate(self) -> None:
        gathers = [node for node in self.nodes if node.op == "gather"]
        products = [node for node in self.nodes if node.op == "product"]
        waiting, forced = list(gathers), list(products)
        while True:
            count = len(waiting)
            waiting = [node for node in waiting if not self._relate(node)]
            if not waiting:
                break
            if len(waiting) == count:
                if not forced:
                    raise Unsupported("a row that is read in an order without axes")
                for node in forced:  # operands and results of products are rows without a structure of their own
                    for value in (node, *node.args):
                        if value.width > 1:
                            self.of(value)
                forced = []
        for _ in range(len(gathers) + 1):
            if not sum(self._relate_again(node) for node in gathers):
                break
        for node in gathers:
            self._combine(node)

    def _relate(self, node: Node) -> bool:
        """Learn the axes of a gather's result and arguments from those that are known; whether all are known now."""
        found = self._iteration(node)
        if found is None:
            return False
        axes, coordinates, results, _ = found
        if node.width > 1 and self._find(node) not in self.known:
            self._set(node, axes[:results])
        for arg, index in zip(node.args, node.attr.maps, strict=True):
            if arg.width > 1 and self._find(arg) not in self.known:
                self._set(arg, _fit(arg.width, index, axes, coordinates))
        return True

    def _relate_again(self, node: Node) -> bool:
        """Join axes that belong together; whether any were not joined before."""
        found = self._iteration(node)
        assert found is not None
        return found[3]

    def _iteration(self, node: Node):
        """(axes, their coordinates (terms, width), number of the result's, whether any were joined), or None."""
        maps: tuple[IndexMap, ...] = node.attr.maps
        terms, width = maps[0].terms, maps[0].width
        if any(bool((m.places < 0).any()) for m in maps):
            raise Unsupported("zeros among the numbers that a matrix reads")
        across = torch.arange(width).expand(terms, width)
        axes: list[Axis] = []
        coordinates: list[Tensor] = []
        summed: list[tuple[Axis, Tensor]] = []
        joined = False
        if width > 1 and self._find(node) in self.known:
            axes = [axis.root() for axis in self.known[self._find(node)]]
            coordinates = _decode(across, axes)
        fixed = bool(axes) or width == 1
        for arg, index in zip(node.args, maps, strict=True):
            if arg.width == 1 or self._find(arg) not in self.known:
                continue
            own = [axis.root() for axis in self.known[self._find(arg)]]
            for axis, place in zip(own, _decode(index.places, own), strict=True):
                if bool((place == place[:1]).all()) and bool((place != place[0, 0]).any()):
                    joined |= _place_axis(axis, place, axes, coordinates, not fixed)
                elif bool((place == place[:, :1]).all()) and bool((place != place[0, 0]).any()):
                    pairs = [other for other, at in summed if torch.equal(at, place)]
                    if pairs:
                        joined |= _unite(axis, pairs[0])
                    else:
                        summed.append((axis, place))
                else:
                    raise Unsupported("a part of a matrix, or a diagonal of it")
        if not fixed:
            if prod(axis.size for axis in axes) != width:
                return None
            order = sorted(range(len(axes)), key=lambda i: int((coordinates[i][0] == 1).int().argmax()), reverse=True)
            axes, coordinates = [axes[i] for i in order], [coordinates[i] for i in order]
            if any(not torch.equal(a, b) for a, b in zip(coordinates, _decode(across, axes), strict=True)):
                raise Unsupported("a row in an order of its own")
        if prod(axis.size for axis, _ in summed) != terms:
            if summed:
                return None
            if all(arg.width == 1 or self._find(arg) in self.known for arg in node.args):
                raise Unsupported("a sum of numbers that are read twice")
            summed = [(Axis(terms), torch.arange(terms)[:, None].expand(terms, width))]
        results = len(axes)
        return [*axes, *(a for a, _ in summed)], [*coordinates, *(c for _, c in summed)], results, joined

    def _combine(self, node: Node) -> None:
        found = self._iteration(node)
        assert found is not None
        axes, coordinates, results = found[:3]
        made = Combination([axis.root() for axis in axes], results)
        for arg, index in zip(node.args, node.attr.maps, strict=True):
            own = self.of(arg)
            positions = []
            for place in _decode(index.places, own):
                at = [i for i, known in enumerate(coordinates) if torch.equal(known, place)]
                if not at:
                    raise Unsupported("a row that is read in an order without axes")
                positions.append(at[0])
            made.readings.append(Reading(tuple(positions)))
        self.combinations[node] = made


def _unite(one: Axis, other: Axis) -> bool:
    """Join two axes; whether they were apart."""
    first, second = one.root(), other.root()
    if first is second:
        return False
    if first.size != second.size:
        raise Unsupported("axes of two sizes for the same numbers")
    second.parent = first
    return True


def _place_axis(axis: Axis, place: Tensor, axes: list[Axis], coordinates: list[Tensor], may_add: bool) -> bool:
    """Join an axis with that of the result which has the same coordinates, or add it; whether two were joined."""
    for i, known in enumerate(coordinates):
        if torch.equal(known, place):
            return _unite(axes[i], axis)
    if not may_add:
        raise Unsupported("a row that is cut into pieces of another shape")
    axes.append(axis)
    coordinates.append(place)
    return False


def _decode(places: Tensor, axes: Sequence[Axis]) -> list[Tensor]:
    """The coordinates of places in a row with these axes."""
    found, rest = [], places
    for axis in reversed(axes):
        found.append(rest % axis.size)
        rest = rest // axis.size
    return found[::-1]


def _fit(width: int, index: IndexMap, axes: list[Axis], coordinates: list[Tensor]) -> list[Axis]:
    """The axes of an argument of which a map reads a place for every iteration."""
    places, expected = index.places, torch.zeros_like(index.places)
    strides: list[tuple[int, int]] = []
    for i, place in enumerate(coordinates):
        others = [other == 0 for j, other in enumerate(coordinates) if j != i]
        first = place == 1
        for other in others:
            first = first & other
        stride = int(places[first][0]) - int(places[0, 0])
        expected = expected + stride * place
        if stride:
            strides.append((stride, i))
    strides.sort(reverse=True)
    sizes = [axes[i].size for _, i in strides]
    compact = [prod(sizes[n + 1 :]) for n in range(len(sizes))]
    if not torch.equal(places, expected) or [s for s, _ in strides] != compact or prod(sizes) != width:
        raise Unsupported("a part of a row, read as axes of a matrix")
    return [axes[i] for _, i in strides]
