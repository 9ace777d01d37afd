"""∂s'/∂s of a step as far as it is elementwise: a number for each unit, or a small matrix where states read each other.

The entries are nodes of the lowered step, so they are exact for a step that mixes no units. A product `W v` contributes
the diagonal of W; what else a product, a sum over a row or a gather does is left out. `is_complete` says whether
anything was.
"""

from dataclasses import dataclass

from ..forward_mode.partials import partials
from ..ir.buffers import Role
from ..ir.nodes import Matrix, Node, subgraph
from ..ir.values import Unsupported
from ..plan.affine import Piece
from ..plan.program import Plan

MAX_BLOCK = 4  # pieces of states whose units are solved together


@dataclass(frozen=True)
class Term:
    """A part of an entry: `outer ⊙ diagonal of the matrix ⊙ inner`; `outer` alone without a matrix."""

    outer: Node
    matrix: Matrix | None = None
    inner: Node | None = None


@dataclass(frozen=True)
class Block:
    """Pieces of one width, and `entries[i, j]`: the terms of ∂(new piece i)/∂(old piece j). None: zero."""

    pieces: tuple[Piece, ...]
    entries: dict[tuple[int, int], tuple[Term, ...]]

    @property
    def width(self) -> int:
        return self.pieces[0].width


@dataclass(frozen=True)
class Jacobian:
    """Blocks that cover all states. Complete: these are all derivatives of the step by its states."""

    blocks: tuple[Block, ...]
    is_complete: bool

    def nodes(self) -> list[Node]:
        """What must be known of a step to compute the entries."""
        terms = [term for block in self.blocks for entry in block.entries.values() for term in entry]
        return [node for term in terms for node in (term.outer, term.inner) if node is not None]


def jacobian_of(plan: Plan) -> Jacobian:
    """The elementwise part of ∂s'/∂s of a planned step."""
    outs = [out for out in plan.forward.outs if out.buffer.role is Role.STATE]
    pieces = [Piece(out.buffer.name, out.offset, out.node.width, out.node) for out in outs]
    live = live_nodes([piece.new for piece in pieces])
    found: dict[tuple[Piece, Piece], list[Term]] = {}
    complete = True
    for piece in pieces:
        terms, is_whole = _terms(piece, pieces, live)
        complete = complete and is_whole
        for other, term in terms:
            found.setdefault((piece, other), []).append(term)
    groups = _groups(pieces, list(found))
    blocks = []
    for group in groups:
        inside = {(i, j): found[a, b] for i, a in enumerate(group) for j, b in enumerate(group) if (a, b) in found}
        blocks.append(Block(tuple(group), {at: tuple(terms) for at, terms in inside.items()}))
    covered = sum(len(block.entries) for block in blocks)
    return Jacobian(tuple(blocks), complete and covered == len(found))


def live_nodes(roots: list[Node]) -> set[Node]:
    """The nodes that depend on a state."""
    live: set[Node] = set()
    for node in subgraph(roots):
        if _is_state(node) or any(argument in live for argument in node.args):
            live.add(node)
    return live


def _is_state(node: Node) -> bool:
    return node.op == "load" and node.attr.buffer.role is Role.STATE


def _terms(piece: Piece, pieces: list[Piece], live: set[Node]) -> tuple[list[tuple[Piece, Term]], bool]:
    """The elementwise derivatives of one new piece by old ones, and whether these are all."""
    found: list[tuple[Piece, Term]] = []
    whole = True
    for end, row in partials(piece.new, live).items():
        other = _piece_of(end, pieces)
        if other is not None and other.width == piece.width:
            found.append((other, Term(row)))
            continue
        whole = False
        if end.op != "product" or end.width != piece.width:
            continue
        try:
            inner = partials(end.args[0], live)
        except Unsupported:
            continue
        for load, slope in inner.items():
            other = _piece_of(load, pieces)
            if other is not None and other.width == piece.width == end.args[0].width:
                found.append((other, Term(row, end.attr, slope)))
    return found, whole


def _piece_of(node: Node, pieces: list[Piece]) -> Piece | None:
    """The piece that a node reads whole, one step back."""
    if not _is_state(node) or node.attr.lag != 1:
        return None
    at = node.attr.buffer.name, node.attr.offset, node.width
    return next((piece for piece in pieces if (piece.state, piece.offset, piece.width) == at), None)


def _groups(pieces: list[Piece], pairs: list[tuple[Piece, Piece]]) -> list[list[Piece]]:
    """Pieces that read each other, each group in the order of the pieces; one by one where a group is too large."""
    group = {piece: {piece} for piece in pieces}
    for a, b in pairs:
        joined = group[a] | group[b]
        for piece in joined:
            group[piece] = joined
    found: list[list[Piece]] = []
    for piece in pieces:
        if not any(piece in known for known in found):
            members = [other for other in pieces if other in group[piece]]
            found += [members] if len(members) <= MAX_BLOCK else [[other] for other in members]
    return found


__all__ = ["Block", "Jacobian", "Term", "jacobian_of", "live_nodes"]
