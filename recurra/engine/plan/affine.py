"""Finds the states of a step that are affine and elementwise in themselves: `h' = a ⊙ h + b`, with a and b free of h.

Such a state needs no loop over time: a scan gives all its values. New states are cut into pieces, and pieces that read
each other, directly or in a circle, form a block. Blocks are solved in order, so that a and b of a later one may read
the values of an earlier one. A block of two pieces is a scan with a 2×2 matrix for each unit: rotation and decay of a
complex number. The algebra runs on the nodes of the lowered step: it does not matter how the equations are spelled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ir.buffers import Role
from ..ir.nodes import Node, subgraph
from .program import Plan, Program

MAX_BLOCK = 2  # pieces that one scan solves together


@dataclass(frozen=True)
class Piece:
    """Columns `offset` to `offset + width` of a state, and their new value."""

    state: str
    offset: int
    width: int
    new: Node

    def overlaps(self, load: Node) -> bool:
        """Whether a load reads some of these columns, at any number of steps back."""
        first, end = load.attr.offset, load.attr.offset + load.width
        return load.attr.buffer.name == self.state and first < self.offset + self.width and self.offset < end


@dataclass(frozen=True)
class ScanBlock:
    """Pieces with `new_i = Σ_j a[i][j] ⊙ old_j + b[i]`. In `a`, None is zero; a block without any a is no recurrence:
    its values follow from those of x and of earlier blocks."""

    pieces: tuple[Piece, ...]
    a: tuple[tuple[Node | None, ...], ...]
    b: tuple[Node, ...]

    @property
    def recurs(self) -> bool:
        return any(coefficient is not None for row in self.a for coefficient in row)


@dataclass(frozen=True)
class LoopBlock:
    """Pieces that need a loop over time; `why` names the term that forbids the scan."""

    pieces: tuple[Piece, ...]
    why: str


Block = ScanBlock | LoopBlock


def find_blocks(plan: Plan) -> list[Block]:
    """The blocks of a plan's states, in an order in which they can be solved."""
    return _find_blocks(plan, plan.forward, Role.STATE)


def find_carry_blocks(plan: Plan) -> list[Block]:
    """The blocks of what flows back to the states, from the last step to the first."""
    assert plan.backward is not None
    return _find_blocks(plan, plan.backward, Role.CARRY)


def _find_blocks(plan: Plan, program: Program, role: Role) -> list[Block]:
    pieces = [
        Piece(out.buffer.name, out.offset, out.node.width, out.node) for out in program.outs if out.buffer.role is role
    ]
    return [_solve(block, plan) for block in _circles(pieces)]


def why_not_scanned(plan: Plan) -> dict[str, str]:
    """State → the term that forbids a scan; an empty text if it is affine and elementwise in itself."""
    reasons = {state.name: "" for state in plan.states}
    for block in find_blocks(plan):
        if isinstance(block, LoopBlock):
            reasons |= {piece.state: block.why for piece in block.pieces}
    return reasons


def is_scan(plan: Plan) -> bool:
    """Whether all states are affine and elementwise in themselves."""
    return not any(why_not_scanned(plan).values())


def describe_scans(plan: Plan) -> list[str]:
    """Lines for `rc.explain`: which states a scan over time can compute, and why others need the loop."""
    reasons = why_not_scanned(plan)
    scanned = [state for state, why in reasons.items() if not why]
    lines = [f"  parallel in time: {', '.join(scanned)}, affine in the step before, unit by unit"] if scanned else []
    alike: dict[str, list[str]] = {}
    for state, why in reasons.items():
        alike.setdefault(why, []).append(state)
    return lines + [f"  one step after another: {', '.join(states)}, as {why}" for why, states in alike.items() if why]


# ---------------------------------------------------------------------------------------------------- blocks in order


def _circles(pieces: list[Piece]) -> list[list[Piece]]:
    """Groups of pieces that read each other in a circle, those that are read first."""
    reads = {}
    for piece in pieces:
        loads = [n for n in subgraph([piece.new]) if _is_state(n)]
        reads[piece] = [other for other in pieces if any(other.overlaps(load) for load in loads)]
    reached = {piece: _reachable(piece, reads) for piece in pieces}
    groups: list[list[Piece]] = []
    for piece in sorted(pieces, key=lambda p: len(reached[p])):  # what a circle reads reaches fewer than the circle
        if not any(piece in group for group in groups):
            others = (other for other in pieces if other is not piece and other in reached[piece])
            groups.append([piece, *(other for other in others if piece in reached[other])])
    return groups


def _reachable(start: Piece, reads: Mapping[Piece, list[Piece]]) -> set[Piece]:
    found: set[Piece] = set()
    todo = list(reads[start])
    while todo:
        piece = todo.pop()
        if piece not in found:
            found.add(piece)
            todo += reads[piece]
    return found


def _is_state(node: Node) -> bool:
    """Whether it loads what the program stored at another step; a backward program loads no states, but carries."""
    return node.op == "load" and node.attr.buffer.role in (Role.STATE, Role.CARRY)


# ---------------------------------------------------------------------------------------------------- one block


class _ForbidsScan(Exception):
    """The term that forbids a scan."""

    def __init__(self, node: Node, reason: str):
        super().__init__(reason)
        self.node = node


def _solve(pieces: list[Piece], plan: Plan) -> Block:
    try:
        rows = [_AffineForm(pieces).of(piece) for piece in pieces]
        if len(pieces) > MAX_BLOCK:
            names = ", ".join(dict.fromkeys(piece.state for piece in pieces))
            raise _ForbidsScan(pieces[0].new, f"{len(pieces)} pieces of {names} read each other")
    except _ForbidsScan as found:
        return LoopBlock(tuple(pieces), str(found) + _name_around(found.node, plan))
    a = tuple(tuple(coefficients.get(piece) for piece in pieces) for coefficients, _ in rows)
    return ScanBlock(tuple(pieces), a, tuple(rest for _, rest in rows))


def _name_around(node: Node, plan: Plan) -> str:
    """The first named value of the step that contains a node."""
    for name, segments in plan.equations.named.items():
        if node in subgraph(segments):
            return f", in {name}"
    return ""


Coefficients = dict[Piece, Node]  # without those that are zero
Form = tuple[Coefficients, Node]  # Σ coefficient ⊙ piece + the rest


class _AffineForm:
    """Writes values as affine functions of the old values of some pieces."""

    def __init__(self, pieces: list[Piece]):
        self.pieces = pieces
        self.builder = pieces[0].new.builder
        self.zero = self.builder.const(0.0)

    def of(self, piece: Piece) -> Form:
        forms: dict[Node, Form] = {}
        for node in subgraph([piece.new]):
            forms[node] = self._form(node, [forms[a] for a in node.args])
        coefficients, rest = forms[piece.new]
        for other in coefficients:
            if other.width != piece.width:
                raise _ForbidsScan(piece.new, f"{other.state} of width {other.width} enters {piece.width} units")
        return coefficients, self.builder.expand(rest, piece.width)

    def _form(self, node: Node, args: list[Form]) -> Form:
        if _is_state(node):
            return self._load(node)
        if not any(coefficients for coefficients, _ in args):
            return {}, node
        state = next(piece.state for coefficients, _ in args for piece in coefficients)
        if node.op in _RULES:
            return _RULES[node.op](self, node, args)
        if node.op == "product":
            raise _ForbidsScan(node, f"{state} is multiplied by the matrix {node.attr.weight}")
        if node.op in ("rowsum", "gather", "concat"):
            raise _ForbidsScan(node, f"units of {state} are mixed")
        raise _ForbidsScan(node, f"{state} is detached" if node.op == "stop" else f"{state} enters {node.op}")

    def _load(self, node: Node) -> Form:
        for piece in self.pieces:
            if piece.overlaps(node):
                if node.attr.lag != 1:
                    raise _ForbidsScan(node, f"{piece.state} is read {node.attr.lag} steps back")
                if (node.attr.offset, node.width) != (piece.offset, piece.width):
                    raise _ForbidsScan(node, f"{piece.state} is read in other pieces than it is written")
                return {piece: self.builder.const(1.0)}, self.zero
        return {}, node

    # ------------------------------------------------------------------------------------------ rules

    def _map(self, form: Form, change: Callable[[Node], Node]) -> Form:
        coefficients, rest = form
        return {piece: change(value) for piece, value in coefficients.items()}, change(rest)

    def add(self, node: Node, args: list[Form]) -> Form:
        (first, b), (second, d) = args
        return {**first, **second, **{p: first[p] + second[p] for p in first.keys() & second}}, _plus(b, d)

    def sub(self, node: Node, args: list[Form]) -> Form:
        return self.add(node, [args[0], self._map(args[1], _minus)])

    def neg(self, node: Node, args: list[Form]) -> Form:
        return self._map(args[0], _minus)

    def mul(self, node: Node, args: list[Form]) -> Form:
        (first, b), (second, d) = args
        if first and second:
            one, other = (next(iter(c)).state for c in (first, second))
            raise _ForbidsScan(node, f"{one} is multiplied by a value that reads {other}")
        return self._map(args[0], lambda v: _times(v, d)) if first else self._map(args[1], lambda v: _times(v, b))

    def div(self, node: Node, args: list[Form]) -> Form:
        (_, _), (second, d) = args
        if second:
            raise _ForbidsScan(node, f"{next(iter(second)).state} is a divisor")
        return self._map(args[0], lambda v: v if _is_zero(v) else v / d)

    def where(self, node: Node, args: list[Form]) -> Form:
        (condition, c), (first, b), (second, d) = args
        if condition:
            raise _ForbidsScan(node, f"a choice depends on {next(iter(condition)).state}")
        make = self.builder.make
        pieces = {**first, **second}
        chosen = {p: make("where", c, first.get(p, self.zero), second.get(p, self.zero)) for p in pieces}
        return chosen, make("where", c, b, d)

    def lerp(self, node: Node, args: list[Form]) -> Form:
        """`start + weight · (end - start)`."""
        start, end, weight = args
        return self.add(node, [start, self.mul(node, [weight, self.sub(node, [end, start])])])

    def addcdiv(self, node: Node, args: list[Form]) -> Form:
        """`x + value · a / b`."""
        quotient = self.div(node, args[1:])
        return self.add(node, [args[0], self._map(quotient, lambda v: _times(v, self.builder.const(node.attr)))])

    def expand(self, node: Node, args: list[Form]) -> Form:
        return self._map(args[0], lambda v: v)


_RULES = {
    name: getattr(_AffineForm, name)
    for name in ("add", "sub", "neg", "mul", "div", "where", "lerp", "addcdiv", "expand")
}


def _is_zero(node: Node) -> bool:
    return node.op == "const" and node.attr == 0.0


def _plus(a: Node, b: Node) -> Node:
    return b if _is_zero(a) else a if _is_zero(b) else a + b


def _minus(a: Node) -> Node:
    return a if _is_zero(a) else -a


def _times(a: Node, b: Node) -> Node:
    return a if _is_zero(a) else b if _is_zero(b) else a * b
