"""A program → its schedule: levels in sequence, each of groups made of matrix products and one fused elementwise loop.

Products that are added up become one *lane*, that is one accumulator. A level ends where a product or a row sum needs
values of other columns. Values are computed as late as possible, so that few wait in memory; cheap ones are computed
again instead of stored and loaded.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from math import prod

from ..ir.buffers import BufferKind, BufferRef, BufferSpec
from ..ir.nodes import TABLE, Builder, Matrix, Node, Vector, subgraph
from .nests import FEWEST, Nests
from .program import Out, Program

WIDE = 1024  # columns of a loop that does not compute the exponential of one number a row again for every column
OPERATION = 8  # the cost of one elementwise operation with the memory it reads, in multiply-adds


@dataclass
class Group:
    """One fused loop over `width` columns, after the products it needs."""

    level: int
    width: int
    lanes: list[Node] = field(default_factory=list)
    stores: list[Out] = field(default_factory=list)
    sums: list[tuple[int, Node]] = field(default_factory=list)  # (number of the sum, what is summed over rows)
    rowsums: list[Node] = field(default_factory=list)  # whose sum over columns this group makes
    body: list[Node] = field(default_factory=list)  # in the order they are computed
    loads: dict[Node, Node] = field(default_factory=dict)  # computed by an earlier group → where it was stored
    axes: tuple[int, ...] = ()  # of a loop over the axes of a matrix
    reductions: list[Node] = field(default_factory=list)  # sums over some of them that this loop makes

    @property
    def heads(self) -> int:
        """How many matrices of a row the loop visits one after another."""
        return prod(self.axes[:-2])

    def classes(self) -> list[tuple[tuple[Node, ...], list[Node]]]:
        """Lanes by what they multiply: those with the same operands run through one loop."""
        found: dict[tuple[Node, ...], list[Node]] = {}
        for lane in self.lanes:
            found.setdefault(lane.args, []).append(lane)
        return list(found.items())


@dataclass
class Schedule:
    levels: list[list[Group]]
    buffers: dict[BufferRef, BufferSpec]
    sums: list[tuple[Vector, Node]]
    rowsums: list[Node]  # numbered
    stored: dict[Node, Node]  # value → the load that reads it from memory
    nests: Nests

    @property
    def groups(self) -> list[Group]:
        return [group for level in self.levels for group in level]

    @property
    def has_independent_columns(self) -> bool:
        """Whether no column reads another one: threads can share the columns and run all steps without waiting."""
        mixed = any(g.lanes or g.reductions or any(n.op == "gather" for n in g.body) for g in self.groups)
        return len({group.width for group in self.groups}) == 1 and not mixed and not self.rowsums

    def multiplications(self) -> int:
        """Multiply-adds a row."""
        return sum(m.multiplications for g in self.groups for lane in g.lanes for m in lane.attr)

    def work(self) -> int:
        """The cost of a row, in multiply-adds."""
        equations = sum(_operations(node) * group.width for group in self.groups for node in group.body)
        equations += sum(len(group.reductions) * group.width for group in self.groups)
        return self.multiplications() + OPERATION * equations

    def matrices(self) -> list[Matrix]:
        return [m for g in self.groups for lane in g.lanes for m in lane.attr]


def _operations(node: Node) -> int:
    return node.attr.terms if node.op == "gather" else 1


def schedule(program: Program, nested: bool = False) -> Schedule:
    """`nested`: values as wide as a matrix are computed in loops over its axes."""
    return _Scheduler(program, nested).run()


class _Scheduler:
    def __init__(self, program: Program, nested: bool = False):
        self.builder: Builder = program.builder
        roots = [o.node for o in program.outs] + [n for _, n in program.sums]
        plain = self.builder.expand_composites(roots)
        if nested:
            apart = _split_outer_products(self.builder, plain.values())
            plain = {node: apart[value] for node, value in plain.items()}
        lanes = _fuse(self.builder, [plain[root] for root in roots])
        fused = {root: lanes[plain[root]] for root in roots}
        self.outs = [Out(o.buffer, o.offset, fused[o.node]) for o in program.outs]
        self.sums = [(vector, fused[node]) for vector, node in program.sums]
        self.buffers = dict(program.buffers)
        self.roots = [o.node for o in self.outs] + [n for _, n in self.sums]
        self.nodes = subgraph(self.roots)
        self.nests = Nests(self.nodes if nested else [])
        self.level = self._levels()
        self.rowsums = [n for n in self.nodes if n.op == "rowsum"]
        self.stored: dict[Node, Node] = {}  # → the load that reads it back
        for out in self.outs:
            if not out.node.is_leaf:
                self.stored.setdefault(out.node, self.builder.load(out.buffer, out.node.width, offset=out.offset))
        self.outs = [part for out in self.outs for part in _side_by_side(out)]
        for node in self.nests.reductions:  # the loop that makes a sum stores it
            if node in self.stored:
                place = self.stored[node].attr
                self.outs = [o for o in self.outs if (o.buffer, o.offset) != (place.buffer, place.offset)]

    # ------------------------------------------------------------------------------------------ levels

    def _levels(self) -> dict[Node, int]:
        soonest: dict[Node, int] = {}
        for node in self.nodes:
            later = (soonest[a] + self._distance(a, node) for a in node.args if not a.is_leaf)
            soonest[node] = max(later, default=0)
            if node in self.nests.reductions:
                soonest[node] = max(soonest[node], 1)
        users: dict[Node, list[Node]] = {}
        for node in self.nodes:
            for arg in node.args:
                users.setdefault(arg, []).append(node)
        latest = dict(soonest)
        for node in reversed(self.nodes):
            if node in users and node not in self.nests.reductions:  # one pass over a matrix makes many sums
                latest[node] = min(latest[u] - self._distance(node, u) for u in users[node])
        return latest

    def _distance(self, arg: Node, user: Node) -> int:
        if user in self.nests.reductions and arg not in self.nests.wide_args(user):
            return 2  # the loop before the level of a sum reads it
        if user.op in ("lane", "rowsum", "gather"):
            return 1
        return int(arg.width == 1 < user.width and _contains_lane(arg))

    def _group_key(self, node: Node) -> tuple[int, int]:
        """(level, width) of the group that computes a node."""
        return self.level[node], node.width

    # ------------------------------------------------------------------------------------------ groups

    def run(self) -> Schedule:
        for node in self.nodes:
            if node.op == "lane":
                for operand in node.args:
                    if operand.op != "load":
                        self._store(operand)
            elif node in self.nests.reductions:
                self._reserve(node)
                for source in node.args:
                    if source not in self.nests.wide_args(node) and source.op not in ("load", "weight", "literal"):
                        self._store(source)
            elif node.op == "gather":
                for source in node.args:
                    if source.op not in ("load", "weight", "literal"):
                        self._store(source)
        groups, count = self._groups(), -1
        while count != len(self.stored):  # storing one value may require another one
            count = len(self.stored)
            groups = self._groups()
        levels = sorted({group.level for group in groups})
        by_level = [[g for g in groups if g.level == level] for level in levels]
        return Schedule(by_level, self.buffers, self.sums, self.rowsums, self.stored, self.nests)

    def _store(self, node: Node) -> Node:
        """Store a value, if it is not stored yet; the load that reads it back."""
        if node not in self.stored:
            self.outs += _side_by_side(Out(self._reserve(node).attr.buffer, 0, node))
        return self.stored[node]

    def _reserve(self, node: Node) -> Node:
        """Room for a value, if it has none; the load that reads it."""
        if node not in self.stored:
            buffer = BufferRef.scratch(len(self.stored))
            self.buffers[buffer] = BufferSpec(node.width, BufferKind.SCRATCH)
            self.stored[node] = self.builder.load(buffer, node.width)
        return self.stored[node]

    def _groups(self) -> list[Group]:
        found: dict[tuple[int, int, bool], Group] = {}

        def at(level: int, width: int, nested: bool = False) -> Group:
            axes = self.nests.axes[width] if nested else ()
            return found.setdefault((level, width, nested), Group(level, width, axes=axes))

        for out in self.outs:
            at(*self._group_key(out.node), self.nests.holds(out.node)).stores.append(out)
        for node in self.nests.reductions:
            at(self.level[node] - 1, self.nests.width(node), True).reductions.append(node)
        for number, (_, node) in enumerate(self.sums):
            at(*self._group_key(node)).sums.append((number, node))
        for node in self.rowsums:
            at(self.level[node] - 1, node.args[0].width).rowsums.append(node)
        for group in found.values():
            targets = [o.node for o in group.stores] + [n for _, n in group.sums] + [n.args[0] for n in group.rowsums]
            targets += [arg for node in group.reductions for arg in self.nests.wide_args(node)]
            self._fill(group, targets)
        return [found[key] for key in sorted(found)]

    def _fill(self, group: Group, targets: Iterable[Node]) -> None:
        todo, seen = list(targets), set()
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.is_leaf or node.op == "rowsum":
                continue
            elsewhere = self._group_key(node) != (group.level, group.width)
            if node in self.nests.reductions or (elsewhere and self._is_loaded(node, group)):
                group.loads[node] = self.stored[node]
            elif node.op == "lane":
                group.lanes.append(node)
            elif node.op != "gather":  # a gather reads memory
                todo.extend(node.args)
        group.body = sorted(seen, key=lambda n: n.index)
        group.lanes.sort(key=lambda n: n.index)

    def _is_loaded(self, node: Node, group: Group) -> bool:
        """Whether a group loads what an earlier one computed. A value that is costly to compute is stored for it."""
        if self.level[node] >= group.level:
            return False
        costly = node.op == "lane" or _is_costly_gather(node)
        wide = node.width > 1 or group.width >= WIDE
        costly = costly or (node.is_elementwise and TABLE[node.op].costly and wide)
        if costly:
            self._store(node)
        return node in self.stored


def _split_outer_products(builder: Builder, roots: Iterable[Node]) -> dict[Node, Node]:
    """Rewrite wide products of two rows that are read in other orders as two reads and a product. Returns old → new."""
    done: dict[Node, Node] = {}
    for node in subgraph(roots):
        args = tuple(done[a] for a in node.args)
        if node.op == "gather" and len(args) == 2 and node.attr.terms == 1 and node.width >= FEWEST:
            one, other = (builder.gather(a, m) for a, m in zip(args, node.attr.maps, strict=True))
            done[node] = builder.expand(one * other, node.width)
        else:
            done[node] = node if node.is_leaf else builder.rebuild(node, args)
    return done


def _contains_lane(node: Node) -> bool:
    """Whether it is made of what a group of width 1 computes."""
    return node.op in ("lane", "gather") or (node.op != "rowsum" and any(_contains_lane(a) for a in node.args))


def _is_costly_gather(node: Node) -> bool:
    return node.op == "gather" and (node.width == 1 or not node.attr.moves)


def _side_by_side(out: Out) -> list[Out]:
    """The parts of a concatenation, stored one after another."""
    if out.node.op != "concat":
        return [out]
    starts = accumulate((part.width for part in out.node.args), initial=out.offset)
    return [Out(out.buffer, at, part) for at, part in zip(starts, out.node.args, strict=False)]


def _fuse(builder: Builder, roots: list[Node]) -> dict[Node, Node]:
    """Rewrite sums that contain products: the products of a sum become one lane. Returns old node → new node."""
    nodes = subgraph(roots)
    uses = Counter(arg for node in nodes for arg in node.args) + Counter(roots)
    inner = {n for n in nodes if n.op == "add" for n in n.args if n.op == "add" and uses[n] == 1}
    done: dict[Node, Node] = {}

    def terms(node: Node) -> list[Node]:
        return [t for a in node.args for t in (terms(a) if a in inner else [a])]

    for node in nodes:
        if node in inner or (node.op == "product" and uses[node] == 1 and _only_in_sum(node, nodes)):
            continue
        if node.op == "product":
            done[node] = builder.lane([(done[node.args[0]], node.attr)])
        elif node.op == "add":
            parts = terms(node)
            products = [p for p in parts if p not in done]
            rest = sorted((done[p] for p in parts if p in done), key=_is_no_lane)  # as where they are fused
            rest = [
                builder.lane([(done[p.args[0]], p.attr) for p in same_width]) for same_width in _by_width(products)
            ] + rest
            total = rest[0]
            for more in rest[1:]:
                total = total + more
            done[node] = total
        else:
            done[node] = node if node.is_leaf else builder.rebuild(node, tuple(done[a] for a in node.args))
    return done


def _is_no_lane(node: Node) -> bool:
    return node.op != "lane"


def _by_width(products: list[Node]) -> list[list[Node]]:
    """Products by width: one accumulator holds products of one width only."""
    found: dict[int, list[Node]] = {}
    for product in products:
        found.setdefault(product.width, []).append(product)
    return list(found.values())


def _only_in_sum(product: Node, nodes: list[Node]) -> bool:
    return any(product in node.args for node in nodes if node.op == "add")
