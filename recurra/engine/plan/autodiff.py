"""The backward program of a plan: reverse mode over one step, with the loop closed around it."""

from itertools import pairwise
from typing import Any

from ...cell import TIME, State
from ..ir.nodes import TABLE, Builder, Matrix, Node, Vector, _narrowed, below
from ..ir.values import Unsupported
from .program import D_OUTPUT, D_X, Buffer, Delta, Out, Plan, Product, Program


class Reverse:
    """Reverse mode over one step; then the loop is closed: what a step receives from the next one is spelled out."""

    def __init__(self, planner: Any, plan: Plan):
        self.planner, self.result, self.builder = planner, plan, planner.builder
        self.forward = below([o.node for o in plan.forward.outs])
        self.cotangents: dict[Node, list[Node]] = {}
        self.deltas: dict[Node, list[tuple[Node, Matrix]]] = {}  # δ → what it was the cotangent of
        self.sums: list[tuple[Vector, Node]] = []
        self.plain: dict[
            tuple[str, int], list[tuple[int, int, Node]]
        ] = {}  # (buffer, lag) → (offset, width, cotangent)

    def run(self) -> Plan:
        self._seed()
        for node in reversed(self.forward):
            if node in self.cotangents:
                self._pull(node, self._total(node))
        self._name_deltas()
        outs = self._outs()
        heads = self.builder.substitute(
            [o.node for o in outs] + [n for _, n in self.sums], lambda n: self._head(n) if _is_head(n) else None
        )
        outs = [Out(o.buffer, o.offset, heads[o.node]) for o in outs]
        sums = [(vector, heads[node]) for vector, node in self.sums]
        return self._with_kept(outs, sums)

    # ------------------------------------------------------------------------------------------ one step back

    def _seed(self) -> None:
        for out in self.result.forward.outs:
            width = out.node.width
            if out.buffer in self.planner.new and out.buffer != TIME:
                self._give(out.node, self.builder.load(f"head:{out.buffer}", width, offset=out.offset), width)
            if out.buffer == self.result.output:
                self._give(out.node, self.builder.load(D_OUTPUT, width, offset=out.offset), width)
            if out.buffer in self.result.named.values():
                self._give(out.node, self.builder.load(f"d{out.buffer}", width, offset=out.offset), width)

    def _give(self, node: Node, cotangent: Node | None, width: int) -> None:
        """Add to a node's cotangent what comes from a result of `width` numbers a row."""
        if cotangent is None or node.op == "const":
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
            if node.attr.buffer == "x" and not self.result.needs_x:
                return
            if node.attr.buffer not in self.result.masks and node.attr.buffer != TIME:
                key = (node.attr.buffer, node.attr.lag)
                self.plain.setdefault(key, []).append(
                    (node.attr.offset, node.width, self.builder.expand(g, node.width))
                )
        elif node.op == "product":
            self._pull_product(node, self.builder.expand(g, node.width))
        elif node.op == "rowsum" and node.attr == "max":  # those that are equal share, as in torch
            value, self.result.seeks_largest = node.args[0], True
            highest = self.builder.make("eq", value, node)
            self._give(value, highest * (g / self.builder.rowsum(highest, value.width)), value.width)
        elif node.op == "rowsum":
            self._give(node.args[0], g, node.args[0].width)
        elif node.op == "expand":
            self._give(node.args[0], g, node.width)
        else:
            for arg, cotangent in zip(node.args, TABLE[node.op].pull(node, g), strict=True):
                self._give(arg, cotangent, node.width)

    def _pull_product(self, node: Node, delta: Node) -> None:
        operand, matrix = node.args[0], node.attr
        self.deltas.setdefault(delta, []).append((operand, matrix))
        if operand.op != "load":
            self._give(operand, self.builder.product(delta, _flip(matrix)), operand.width)

    # ------------------------------------------------------------------------------------------ closing the loop

    def _name_deltas(self) -> None:
        """Columns for every δ; those that meet the same operand side by side, so that one product takes them all."""

        def place(item: tuple[Node, list[tuple[Node, Matrix]]]) -> tuple[bool, bool]:
            sources = {operand.attr.buffer for operand, _ in item[1] if operand.op == "load"}
            return bool(sources - {"x"}), "x" not in sources

        self.places: dict[Node, Delta] = {}
        widths: dict[str, int] = {}
        for delta, _ in sorted(self.deltas.items(), key=place):
            buffer = f"delta:{delta.width}"
            self.places[delta] = Delta(buffer, widths.get(buffer, 0), delta.width)
            widths[buffer] = widths.get(buffer, 0) + delta.width
        self.delta_buffers = {name: Buffer(width, "time") for name, width in widths.items()}

    def _outs(self) -> list[Out]:
        outs = [Out(place.buffer, place.offset, delta) for delta, place in self.places.items()]
        self.carries = {key: f"carry:{key[0]}@{key[1]}" for key in self.plain if key[0] != "x"}
        for key, parts in self.plain.items():
            buffer = D_X if key[0] == "x" else self.carries[key]
            pieces = _disjoint(self.builder, parts)
            if key[0] != "x":
                pieces += self._rest(pieces, self.planner.states[key[0]].size)
            outs += [Out(buffer, low, node) for low, _, node in pieces]
        return outs

    def _rest(self, pieces: list[tuple[int, int, Node]], size: int) -> list[tuple[int, int, Node]]:
        """Zeros for what no piece covers: a carry starts from the final state's cotangent, and all of it must end."""
        edges = [0, *(e for low, width, _ in pieces for e in (low, low + width)), size]
        gaps = [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]
        return [(low, width, self.builder.expand(self.builder.const(0.0), width)) for low, width in gaps]

    def _head(self, node: Node) -> Node:
        """What a state receives from the steps after this one."""
        name, low, high = node.attr.buffer.removeprefix("head:"), node.attr.offset, node.attr.offset + node.width
        state, parts = self.planner.states[name], []
        for delta, reads in self.deltas.items():
            for operand, matrix in reads:
                if operand.op == "load" and operand.attr.buffer == name:
                    parts += self._received(delta, operand, matrix, low, high)
        carried = False
        for (source, lag), buffer in self.carries.items():
            if source == name and any(at < high and low < at + width for at, width, _ in self.plain[source, lag]):
                parts.append(self.builder.load(buffer, high - low, lag=lag, offset=low))
                carried = True
        if (
            state.delays or not carried
        ):  # a carry starts from the final state's cotangent, and needs no other word of it
            parts.append(self.builder.load(f"dfinal:{name}", high - low, offset=low, start=not state.delays))
        total, *rest = parts
        for more in rest:
            total = total + more
        return total

    def _received(self, delta: Node, operand: Node, matrix: Matrix, low: int, high: int) -> list[Node]:
        first = operand.attr.offset
        if high <= first or first + operand.width <= low:
            return []
        if low < first or first + operand.width < high:
            raise Unsupported("a product with a part of a state that is read in other parts too")
        place = self.places[delta]
        earlier = self.builder.load(place.buffer, place.width, lag=operand.attr.lag, offset=place.offset)
        return [self.builder.product(earlier, _narrowed(_flip(matrix), low - first, high - first))]

    # ------------------------------------------------------------------------------------------ what is kept

    def _with_kept(self, outs: list[Out], sums: list[tuple[Vector, Node]]) -> Plan:
        forward = set(self.forward)
        roots = [o.node for o in outs] + [n for _, n in sums]
        available = self._available()
        reached = below(roots, stop=lambda n: n in forward)
        needed = [n for n in reached if (n in forward and not n.is_leaf) or _is_piece(n, forward)]
        kept = _choose_kept(needed, set(available))
        kept_outs, buffers = [], dict(self.result.forward.buffers)
        for i, node in enumerate(kept):
            available[node] = self.builder.load(f"kept:{i}", node.width)
            kept_outs.append(Out(f"kept:{i}", 0, node))
            buffers[f"kept:{i}"] = Buffer(node.width, "time")
        operands = self._operands(available, kept_outs, buffers)
        renamed = self.builder.substitute(roots, lambda n: available.get(n) or self._renamed(n))
        program = Program(self.builder, [], buffers=self._buffers(buffers))
        program.outs = [Out(o.buffer, o.offset, renamed[o.node]) for o in outs]
        program.sums = [(vector, renamed[node]) for vector, node in sums]
        result = self.result
        result.forward.outs += kept_outs
        result.forward.buffers = buffers
        result.backward, result.carries, result.kept = program, self.carries, tuple(o.buffer for o in kept_outs)
        result.products = [
            Product(matrix, self.places[delta], operands[operand].attr, *_state_of(operand, self.planner.states))
            for delta, reads in self.deltas.items()
            for operand, matrix in reads
        ]
        return result

    def _available(self) -> dict[Node, Node]:
        """What lies in memory anyway after the forward pass."""
        found = {}
        for out in self.result.forward.outs:
            if not out.node.is_leaf:
                name = f"{out.buffer}@0" if out.buffer in self.planner.states else out.buffer
                found.setdefault(out.node, self.builder.load(name, out.node.width, offset=out.offset))
        return found

    def _operands(self, available: dict[Node, Node], outs: list[Out], buffers: dict[str, Buffer]) -> dict[Node, Node]:
        """Where the operand of each product lies; those that lie nowhere are kept."""
        found = {}
        for reads in self.deltas.values():
            for operand, _ in reads:
                if not operand.is_leaf and operand not in available:
                    name = f"kept:{len(outs)}"
                    outs.append(Out(name, 0, operand))
                    buffers[name] = Buffer(operand.width, "time")
                    available[operand] = self.builder.load(name, operand.width)
                found[operand] = available.get(operand) or self._renamed(operand) or operand
        return found

    def _renamed(self, node: Node) -> Node | None:
        if node.op == "load" and node.attr.buffer in self.planner.states:
            return self.builder.load(f"{node.attr.buffer}@{node.attr.lag}", node.width, offset=node.attr.offset)
        return None

    def _buffers(self, forward: dict[str, Buffer]) -> dict[str, Buffer]:
        buffers = {n: b for n, b in forward.items() if b.kind != "state"} | self.delta_buffers
        for state in self.planner.states.values():
            for lag in (0, *(state.delays or (1,))):
                buffers[f"{state.name}@{lag}"] = Buffer(state.size, "time", source=state.name, lag=lag)
            buffers[f"dfinal:{state.name}"] = Buffer(state.size, "time" if state.delays else "sequence")
        for (name, lag), buffer in self.carries.items():
            buffers[buffer] = Buffer(self.planner.states[name].size, "carry", lag + 1)
        buffers[D_OUTPUT] = Buffer(self.planner.cell.output_size, "time")
        buffers |= {f"d{name}": forward[name] for name in self.result.named.values()}
        if ("x", 0) in self.plain:
            buffers[D_X] = Buffer(self.planner.cell.input_size, "time")
        return buffers


def _is_piece(node: Node, forward: set[Node]) -> bool:
    """Whether it is some columns of a product of the forward program, cut for this one: no product is taken twice."""
    return node.op == "product" and node not in forward and node.args[0] in forward


def _is_head(node: Node) -> bool:
    return node.op == "load" and node.attr.buffer.startswith("head:")


def _flip(matrix: Matrix) -> Matrix:
    return Matrix(matrix.weight, matrix.rows, matrix.cols, not matrix.flipped)


def _state_of(operand: Node, states: dict[str, State]) -> tuple[str | None, int]:
    if operand.op == "load" and operand.attr.buffer in states:
        return operand.attr.buffer, operand.attr.lag
    return None, 0


def _disjoint(builder: Builder, parts: list[tuple[int, int, Node]]) -> list[tuple[int, int, Node]]:
    """Sum overlapping pieces, cut at each other's edges."""
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


def _choose_kept(needed: list[Node], available: set[Node]) -> list[Node]:
    """Of the forward values that backward reads, those to keep; the rest is cheap to compute again from them."""
    have, kept = set(available), []

    def again(node: Node, dear: int) -> bool:
        """Whether it can be recomputed with at most `dear` costly operations."""
        if node in have or node.is_leaf:
            return True
        if not node.is_elementwise and node.op != "expand":
            return False
        costly = node.is_elementwise and TABLE[node.op].costly and node.width > 1
        return (dear > 0 or not costly) and all(again(a, dear - costly) for a in node.args)

    dear_first = sorted(needed, key=lambda n: (n.is_elementwise and not TABLE[n.op].costly, n.index))
    for node in dear_first:
        if node not in have and not again(node, 1):
            have.add(node)
            kept.append(node)
    return kept
