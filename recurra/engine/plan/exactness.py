"""Whether a plan compares numbers with extremes of a row, and so needs the same bits wherever it computes one again.

`v == v.amax(-1, keepdim=True)` holds for one number at least, and the largest of a row, its index and a sorted row rest
on that. A fused loop computes v again instead of loading it, and may round it otherwise than the loop that sought the
largest: one compiler fuses a multiplication into an addition here and not there. Then no number is the largest.
"""

from collections.abc import Iterable

from ..ir.nodes import Node, subgraph

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "sign", "floor", "ceil", "trunc", "round", "integer"}
COMPARISONS |= {"remainder", "fmod", "floor_divide", "spike", "hardshrink"}
TRUTHS = {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}


def compares_extremes(roots: Iterable[Node]) -> bool:
    """Whether nodes seek an extreme and compare: with it, or, through a state, with one of an earlier step."""
    nodes = subgraph(roots)
    return any(map(_seeks_extreme, nodes)) and any(node.op in COMPARISONS for node in nodes)


def _seeks_extreme(node: Node) -> bool:
    """A maximum over numbers of a row, or how many of them compare so: the place of a number in an order."""
    if node.op not in ("rowsum", "gather"):
        return False
    kind = node.attr.kind if node.op == "gather" else node.attr
    return kind == "max" or any(argument.op in TRUTHS for argument in node.args)
