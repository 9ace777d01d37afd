"""Derives the backward program of a plan: reverse mode over one step, then the links from step to step."""

from itertools import pairwise
from typing import Any

from ..ir.buffers import CLOCK, D_X, D_Y, BufferKind, BufferRef, BufferSpec, Role, X
from ..ir.index_map import IndexMap
from ..ir.nodes import TABLE, Builder, Load, Matrix, Node, Vector, flip_matrix, slice_matrix, subgraph
from ..ir.values import Unsupported
from .exactness import decisions
from .program import Delta, Out, Plan, Product, Program


class BackwardPlanner:
    """Reverse mode over one step. `Role.HEAD` stands for the cotangent of a new state, until all cotangents of the step
    are known; then it is replaced by what the later steps give."""

    def __init__(self, planner: Any, plan: Plan):
        self.planner, self.result, self.builder = planner, plan, planner.builder
        self.forward = subgraph([o.node for o in plan.forward.outs])
        self.cotangents: dict[Node, list[Node]] = {}
        self.deltas: dict[Node, list[tuple[Node, Matrix]]] = {}  # δ → operands and matrices of its products
        self.sums: list[tuple[Vector, Node]] = []
        self.sought: list[Node] = []  # rows in which the derivative looks for their largest number
        self.direct: dict[BufferRef, list[tuple[int, int, Node]]] = {}  # carry, or dx → (offset, width, cotangent)

    def run(self) -> Plan:
        self._seed()
        for node in reversed(self.forward):
            if node in self.cotangents:
                self._pull(node, self._total(node))
        self._place_deltas()
        outs = self._outs()
        heads = self.builder.substitute(
            [o.node for o in outs] + [n for _, n in self.sums],
            lambda n: self._from_later_steps(n) if _is_head(n) else None,
        )
        outs = [Out(o.buffer, o.offset, heads[o.node]) for o in outs]
        sums = [(vector, heads[node]) for vector, node in self.sums]
        return self._build(outs, sums)

    # ------------------------------------------------------------------------------------------ one step

    def _seed(self) -> None:
        for out in self.result.forward.outs:
            width = out.node.width
            seeds = []
            if out.buffer.role is Role.STATE and out.buffer != CLOCK:
                seeds.append(BufferRef.head(out.buffer.name))
            if out.buffer == self.result.output:
                seeds.append(D_Y)
            if out.buffer.role is Role.NAMED:
                seeds.append(BufferRef.d_named(out.buffer.name))
            for seed in seeds:
                self._add_cotangent(out.node, self.builder.load(seed, width, offset=out.offset), width)

    def _add_cotangent(self, node: Node, cotangent: Node | None, width: int) -> None:
        """Add a cotangent that comes from a result of `width` numbers a row."""
        if cotangent is None or node.op in ("const", "literal"):
            return
        if node.op == "weight":
            if cotangent.width == 1 and width > 1:
                cotangent = cotangent * float(width) if node.width == 1 else self.builder.expand(cotangent, width)
        elif node.width == 1 and width > 1:
            cotangent = self.builder.rowsum(cotangent, width)
        self.cotangents.setdefault(node, []).append(cotangent)

    def _total(self, node: Node) -> Node:
        total, *rest = self.cotangents[node]
        for more in rest:
            total = total + more
        return total

    def _pull(self, node: Node, g: Node) -> None:
        if node.op == "weight":
            self.sums += [(node.attr, g) for g in self.cotangents[node]] if node.width == 1 else [(node.attr, g)]
        elif node.op == "load":
            target = self._cotangent_of(node.attr)
            if target is not None:
                piece = node.attr.offset, node.width, self.builder.expand(g, node.width)
                self.direct.setdefault(target, []).append(piece)
        elif node.op == "product":
            self._pull_product(node, self.builder.expand(g, node.width))
        elif node.op == "rowsum" and node.attr == "max":  # equal numbers share the cotangent, as in torch
            value, self.result.seeks_largest = node.args[0], True
            self.sought.append(value)
            highest = self.builder.make("eq", value, node)
            self._add_cotangent(value, highest * (g / self.builder.rowsum(highest, value.width)), value.width)
        elif node.op == "rowsum":
            self._add_cotangent(node.args[0], g, node.args[0].width)
        elif node.op == "expand":
            self._add_cotangent(node.args[0], g, node.width)
        elif node.op == "concat":
            self._pull_concat(node, self.builder.expand(g, node.width))
        elif node.op == "gather":
            self._pull_gather(node, self.builder.expand(g, node.width))
        else:
            for arg, cotangent in zip(node.args, TABLE[node.op].vjp(node, g), strict=True):
                self._add_cotangent(arg, cotangent, node.width)

    def _pull_concat(self, node: Node, g: Node) -> None:
        at = 0
        for part in node.args:
            self._add_cotangent(part, self.builder.cut(g, at, at + part.width), part.width)
            at += part.width

    def _pull_gather(self, node: Node, g: Node) -> None:
        """Each source gets the cotangents of the results that read it: a gather by the inverse map."""
        maps = node.attr.maps
        if len(node.args) == 2:
            for (arg, own), (other, its) in zip(zip(node.args, maps, strict=True), _swapped(node), strict=True):
                back, beside = own.inverse(arg.width, its)
                self._add_cotangent(arg, self.builder.dot((g, other), (back, beside)), arg.width)
            return
        value = node.args[0]
        (back,) = maps[0].inverse(value.width)
        if node.attr.kind == "max":
            if back.terms > 1:
                raise Unsupported("the derivative of a maximum over overlapping windows")
            self.result.seeks_largest = True
            self.sought.append(value)
            highest = self.builder.make("eq", value, self.builder.gather(node, back))
            share = g / self.builder.gather(highest, maps[0])
            self._add_cotangent(value, highest * self.builder.gather(share, back), value.width)
        else:
            self._add_cotangent(value, self.builder.gather(g, back), value.width)

    def _cotangent_of(self, load: Load) -> BufferRef | None:
        """The buffer for the cotangent of a loaded value; None if it is not needed."""
        if load.buffer == X:
            return D_X if self.result.needs_x else None
        if load.buffer.role is Role.STATE and load.buffer != CLOCK:
            return BufferRef.carry(load.buffer.name, load.lag)
        return None

    def _pull_product(self, node: Node, delta: Node) -> None:
        operand, matrix = node.args[0], node.attr
        self.deltas.setdefault(delta, []).append((operand, matrix))
        if operand.op != "load":
            self._add_cotangent(operand, self.builder.product(delta, flip_matrix(matrix)), operand.width)

    # ------------------------------------------------------------------------------------------ step to step

    def _place_deltas(self) -> None:
        """Assign columns to every δ. Those of the same operand are adjacent, so that one product takes them all."""

        def place(item: tuple[Node, list[tuple[Node, Matrix]]]) -> tuple[bool, bool]:
            sources = {operand.attr.buffer for operand, _ in item[1] if operand.op == "load"}
            return bool(sources - {X}), X not in sources

        self.delta_places: dict[Node, Delta] = {}
        widths: dict[BufferRef, int] = {}
        for delta, _ in sorted(self.deltas.items(), key=place):
            buffer = BufferRef.delta(delta.width)
            self.delta_places[delta] = Delta(buffer, widths.get(buffer, 0), delta.width)
            widths[buffer] = widths.get(buffer, 0) + delta.width
        self.delta_buffers = {buffer: BufferSpec(width, BufferKind.PER_STEP) for buffer, width in widths.items()}

    def _outs(self) -> list[Out]:
        outs = [Out(place.buffer, place.offset, delta) for delta, place in self.delta_places.items()]
        self.carries = tuple(buffer for buffer in self.direct if buffer != D_X)
        for buffer, parts in self.direct.items():
            pieces = _sum_overlapping(self.builder, parts)
            if buffer != D_X:
                pieces += self._zeros_for_gaps(pieces, self.planner.states[buffer.name].size)
            outs += [Out(buffer, low, node) for low, _, node in pieces]
        return outs

    def _zeros_for_gaps(self, pieces: list[tuple[int, int, Node]], size: int) -> list[tuple[int, int, Node]]:
        """Zeros for the columns that no piece covers: a carry starts as the final state's cotangent, and every column
        must be overwritten."""
        edges = [0, *(e for low, width, _ in pieces for e in (low, low + width)), size]
        gaps = [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
        return [(low, width, self.builder.expand(self.builder.const(0.0), width)) for low, width in gaps]

    def _from_later_steps(self, node: Node) -> Node:
        """The cotangent of a new state: what the later steps give."""
        name, low, high = node.attr.buffer.name, node.attr.offset, node.attr.offset + node.width
        state, parts = self.planner.states[name], []
        for delta, reads in self.deltas.items():
            for operand, matrix in reads:
                if operand.op == "load" and operand.attr.buffer == BufferRef.state(name):
                    parts += self._product_with_delta(delta, operand, matrix, low, high)
        carried = False
        for carry in self.carries:
            if carry.name == name and any(at < high and low < at + width for at, width, _ in self.direct[carry]):
                parts.append(self.builder.load(carry, high - low, lag=carry.lag, offset=low))
                carried = True
        if state.delays or not carried:  # a carry starts from the final state's cotangent: it is not added again
            final = BufferRef.d_final(name)
            parts.append(self.builder.load(final, high - low, offset=low, start=not state.delays))
        total, *rest = parts
        for more in rest:
            total = total + more
        if total.op == "load" and node in self.deltas:  # products read what a step stores, not what a loop starts from
            total = self.builder.make("stop", total)
        return total

    def _product_with_delta(self, delta: Node, operand: Node, matrix: Matrix, low: int, high: int) -> list[Node]:
        first = operand.attr.offset
        if high <= first or first + operand.width <= low:
            return []
        if low < first or first + operand.width < high:
            raise Unsupported("a product with a part of a state that is read in other parts too")
        place = self.delta_places[delta]
        earlier = self.builder.load(place.buffer, place.width, lag=operand.attr.lag, offset=place.offset)
        return [self.builder.product(earlier, slice_matrix(flip_matrix(matrix), low - first, high - first))]

    # ------------------------------------------------------------------------------------------ kept values

    def _build(self, outs: list[Out], sums: list[tuple[Vector, Node]]) -> Plan:
        forward = set(self.forward)
        roots = [o.node for o in outs] + [n for _, n in sums]
        available = self._available()
        reached = subgraph(roots, stop=lambda n: n in forward)
        needed = [n for n in reached if (n in forward and not n.is_leaf) or _is_cut_product(n, forward)]
        kept = _choose_kept(needed, set(available), self._exact(roots, forward))
        kept_outs, buffers = [], dict(self.result.forward.buffers)
        for i, node in enumerate(kept):
            buffer = BufferRef.kept(i)
            available[node] = self.builder.load(buffer, node.width)
            kept_outs.append(Out(buffer, 0, node))
            buffers[buffer] = BufferSpec(node.width, BufferKind.PER_STEP)
        operands = self._operands(available, kept_outs, buffers)
        renamed = self.builder.substitute(roots, lambda n: available.get(n) or self._as_past(n))
        program = Program(self.builder, [], buffers=self._buffers(buffers))
        program.outs = [Out(o.buffer, o.offset, renamed[o.node]) for o in outs]
        program.sums = [(vector, renamed[node]) for vector, node in sums]
        result = self.result
        result.forward.outs += kept_outs
        result.forward.buffers = buffers
        result.backward, result.carries, result.kept = program, self.carries, tuple(o.buffer for o in kept_outs)
        result.products = [
            Product(matrix, self.delta_places[delta], operands[operand].attr)
            for delta, reads in self.deltas.items()
            for operand, matrix in reads
        ]
        return result

    def _exact(self, roots: list[Node], forward: set[Node]) -> list[Node]:
        """Values of the step that the backward program must not round otherwise: they are kept."""
        exact = {*self.sought, *decisions(self.forward)}
        reached = subgraph(roots, stop=lambda n: n in forward and n.op in ("product", "rowsum", "gather"))
        return [n for n in reached if n in exact and n in forward and not n.is_leaf and n.op != "concat"]

    def _available(self) -> dict[Node, Node]:
        """Values that the forward program stores anyway, and the loads that read them."""
        found = {}
        for out in self.result.forward.outs:
            if not out.node.is_leaf:
                buffer = BufferRef.past(out.buffer.name, 0) if out.buffer.role is Role.STATE else out.buffer
                found.setdefault(out.node, self.builder.load(buffer, out.node.width, offset=out.offset))
        return found

    def _operands(
        self, available: dict[Node, Node], outs: list[Out], buffers: dict[BufferRef, BufferSpec]
    ) -> dict[Node, Node]:
        """The load of each product's operand; an operand that is not stored yet becomes a kept value."""
        found = {}
        for reads in self.deltas.values():
            for operand, _ in reads:
                if not operand.is_leaf and operand not in available:
                    buffer = BufferRef.kept(len(outs))
                    outs.append(Out(buffer, 0, operand))
                    buffers[buffer] = BufferSpec(operand.width, BufferKind.PER_STEP)
                    available[operand] = self.builder.load(buffer, operand.width)
                found[operand] = available.get(operand) or self._as_past(operand) or operand
        return found

    def _as_past(self, node: Node) -> Node | None:
        if node.op == "load" and node.attr.buffer.role is Role.STATE:
            buffer = BufferRef.past(node.attr.buffer.name, node.attr.lag)
            return self.builder.load(buffer, node.width, offset=node.attr.offset)
        return None

    def _buffers(self, forward: dict[BufferRef, BufferSpec]) -> dict[BufferRef, BufferSpec]:
        rows, states = BufferKind.PER_STEP, self.planner.states
        buffers = {ref: spec for ref, spec in forward.items() if spec.kind is not BufferKind.STATE} | self.delta_buffers
        for state in states.values():
            for lag in (0, *(state.delays or (1,))):
                buffers[BufferRef.past(state.name, lag)] = BufferSpec(state.size, rows)
            kind = rows if state.delays else BufferKind.PER_SEQUENCE
            buffers[BufferRef.d_final(state.name)] = BufferSpec(state.size, kind)
        buffers |= {carry: BufferSpec(states[carry.name].size, BufferKind.CARRY) for carry in self.carries}
        buffers[D_Y] = BufferSpec(self.planner.cell.output_size, rows)
        buffers |= {BufferRef.d_named(name): forward[buffer] for name, buffer in self.result.named.items()}
        if D_X in self.direct:
            buffers[D_X] = BufferSpec(self.planner.cell.input_size, rows)
        return buffers


def _is_cut_product(node: Node, forward: set[Node]) -> bool:
    """Whether it is a product of the forward program cut to some columns. It is kept: no product is made twice."""
    return node.op == "product" and node not in forward and node.args[0] in forward


def _swapped(node: Node) -> list[tuple[Node, IndexMap]]:
    """For each of the two arguments of a gather the other one and its map."""
    return list(zip(node.args[::-1], node.attr.maps[::-1], strict=True))


def _is_head(node: Node) -> bool:
    return node.op == "load" and node.attr.buffer.role is Role.HEAD


def _sum_overlapping(builder: Builder, parts: list[tuple[int, int, Node]]) -> list[tuple[int, int, Node]]:
    """Sum overlapping pieces (offset, width, node), cut at each other's edges."""
    edges = sorted({e for at, width, _ in parts for e in (at, at + width)})
    found = []
    for low, high in pairwise(edges):
        covering = [builder.cut(node, low - at, high - at) for at, w, node in parts if at <= low and high <= at + w]
        if covering:
            total, *rest = covering
            for more in rest:
                total = total + more
            found.append((low, high - low, builder.expand(total, high - low)))
    return found


def _choose_kept(needed: list[Node], available: set[Node], exact: list[Node]) -> list[Node]:
    """Of the forward values that backward reads, those to keep; the rest is cheap to compute again from them. `exact`
    are kept in any case."""
    kept = [node for node in exact if node not in available]
    have = {*available, *kept}

    def is_cheap(node: Node, allowed: int) -> bool:
        """Whether it can be recomputed with at most `allowed` costly operations."""
        if node in have or node.is_leaf:
            return True
        if node.op == "gather" and node.attr.moves:
            source = node.args[0]
            return source in have or source.is_leaf or (source.width < node.width and is_cheap(source, allowed))
        if not node.is_elementwise and node.op != "expand":
            return False
        costly = node.is_elementwise and TABLE[node.op].costly and node.width > 1
        return (allowed > 0 or not costly) and all(is_cheap(a, allowed - costly) for a in node.args)

    def keep(node: Node) -> None:
        if node not in have and not is_cheap(node, 1):
            sources = _narrow_sources(node, have)
            for source in sources or [node]:
                have.add(source)
                kept.append(source)

    for node in sorted(needed, key=lambda n: (n.is_elementwise and not TABLE[n.op].costly, n.index)):
        keep(node)
    return kept


def _narrow_sources(node: Node, have: set[Node]) -> list[Node]:
    """Values from which a wide one is cheap to make, if they are narrower: those that gathers spread over it."""
    found: dict[Node, None] = {}
    todo = [node]
    while todo:
        part = todo.pop()
        if part in have or part.is_leaf:
            continue
        if part.is_elementwise or part.op == "expand":
            todo.extend(part.args)
        elif part.op == "gather" and part.attr.moves:
            todo.append(part.args[0])
        else:
            found[part] = None
    return list(found) if found and sum(part.width for part in found) < node.width else []
