"""Rewrites a program so that its row sums need fewer exchanges: every row sum waits for all columns of a row.

A sum of row sums becomes one row sum. In a gradient, a row sum of terms that contain an earlier row sum is linear in
it, so it is taken apart: Σ (a + s b) = Σ a + s Σ b, where s is one number a row. The gradient of a normalisation then
has all of its sums at once. Forward programs keep such sums: Σ (a - mean) is more exact than Σ a - n mean.
"""

from collections import Counter
from collections.abc import Iterable

from ..ir.nodes import Builder, Node, subgraph
from ..plan.program import Out, Program


def with_early_row_sums(program: Program, is_gradient: bool) -> Program:
    """The same program with fewer row sums, which wait for as few others as possible."""
    builder = program.builder
    roots = [out.node for out in program.outs] + [node for _, node in program.sums]
    if not any(node.op == "rowsum" for node in subgraph(builder.expand_composites(roots).values())):
        return program
    new = roots
    for rewrite in (Builder.expand_composites, _merge, *([_take_apart] if is_gradient else [])):
        changed = rewrite(builder, new)
        new = [changed[node] for node in new]
    made = dict(zip(roots, new, strict=True))
    outs = [Out(out.buffer, out.offset, made[out.node]) for out in program.outs]
    return Program(builder, outs, [(vector, made[node]) for vector, node in program.sums], program.buffers)


# ---------------------------------------------------------------------------------------------------- one for many


def _merge(builder: Builder, roots: list[Node]) -> dict[Node, Node]:
    """Replace sums of row sums by row sums of sums. Returns old → new."""
    nodes = subgraph(roots)
    uses = Counter(arg for node in nodes for arg in node.args) + Counter(roots)
    inner = {a for n in nodes if n.op == "add" for a in n.args if a.op == "add" and uses[a] == 1 and a.width == 1}
    done: dict[Node, Node] = {}

    def terms(node: Node) -> list[Node]:
        return [t for a in node.args for t in (terms(a) if a in inner else [a])]

    for node in nodes:
        if node.op != "add" or node.width > 1:
            done[node] = node if node.is_leaf else builder.rebuild(node, tuple(done[a] for a in node.args))
            continue
        groups: dict[int, list[Node]] = {}
        rest = []
        for term in terms(node):
            if is_row_sum(term) and uses[term] == 1:
                groups.setdefault(term.args[0].width, []).append(done[term.args[0]])
            else:
                rest.append(done[term])
        sums = [builder.rowsum(_total(values), width) for width, values in groups.items()]
        done[node] = _total([*sums, *rest])
    return done


def is_row_sum(node: Node) -> bool:
    return node.op == "rowsum" and node.attr is None


def _total(values: Iterable[Node]) -> Node:
    first, *others = values
    for value in others:
        first = first + value
    return first


# ---------------------------------------------------------------------------------------------------- linear parts


def _take_apart(builder: Builder, roots: list[Node]) -> dict[Node, Node]:
    """Replace row sums of terms with earlier row sums by row sums without them, where they are linear."""
    done: dict[Node, Node] = {}
    waits: dict[Node, int] = {}  # value → row sums before it, one after another

    def waits_of(node: Node) -> int:
        for part in subgraph([node], stop=waits.__contains__):
            if part not in waits:
                waits[part] = max((waits[a] for a in part.args), default=0) + (part.op == "rowsum")
        return waits[node]

    def linear(node: Node, scale: Node, most: int) -> list[tuple[Node, Node]] | None:
        """(factor, value) of each term; values with fewer than `most` row sums before them."""
        if waits_of(node) < most:
            return [(scale, node)]
        if node.width == 1:
            return [(scale * node, builder.const(1.0))]
        if node.op == "neg":
            return linear(node.args[0], scale * -1.0, most)
        if node.op == "expand":
            return linear(node.args[0], scale, most)
        if len(node.args) != 2:
            return None
        one, other = node.args
        if node.op in ("add", "sub"):
            left, right = linear(one, scale, most), linear(other, scale if node.op == "add" else scale * -1.0, most)
            return None if left is None or right is None else left + right
        if node.op == "mul" and 1 in (one.width, other.width):
            factor, value = (one, other) if one.width == 1 else (other, one)
            return linear(value, scale * factor, most)
        if node.op == "div" and other.width == 1:
            return linear(one, builder.make("div", scale, other), most)
        return None

    for node in subgraph(roots):
        args = tuple(done[a] for a in node.args)
        new = node if node.is_leaf else builder.rebuild(node, args)
        if is_row_sum(new) and waits_of(new.args[0]):
            parts = linear(new.args[0], builder.const(1.0), waits_of(new.args[0]))
            new = new if parts is None else _sum_of(builder, parts, new.args[0].width)
        done[node] = new
    return done


def _sum_of(builder: Builder, parts: list[tuple[Node, Node]], width: int) -> Node:
    """The row sum of all terms: one for every factor."""
    factors: dict[Node, list[Node]] = {}  # value → its factors
    for factor, value in parts:
        factors.setdefault(value, []).append(factor)
    values: dict[Node, list[Node]] = {}  # factor → the values it multiplies
    for value, found in factors.items():
        values.setdefault(_total(found), []).append(value)
    return _total(builder.rowsum(_total(found), width) * factor for factor, found in values.items())


# ---------------------------------------------------------------------------------------------------- squares


def centred_squares(node: Node) -> tuple[list[Node], Node] | None:
    """(values v, row scalar m) if a row sum is that of Σ (v - m)²; else None."""
    if not is_row_sum(node):
        return None
    todo = [node.args[0]]
    values: list[Node] = []
    means: set[Node] = set()
    while todo:
        term = todo.pop()
        if term.op == "add":
            todo += term.args
            continue
        if term.op != "mul" or term.args[0] is not term.args[1] or term.args[0].op != "sub":
            return None
        value, mean = term.args[0].args
        if mean.width != 1 or value.width != node.args[0].width:
            return None
        values.append(value)
        means.add(mean)
    return (values[::-1], means.pop()) if len(means) == 1 else None
