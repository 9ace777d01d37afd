"""Whether a plan compares numbers of a step with each other, and so needs the same bits wherever it computes one again.

`v == v.amax(-1, keepdim=True)` holds for one number at least, `v >= v[:, :1]` for the first one; the largest of a row,
its index and a sorted row rest on that. A fused loop computes v again instead of loading it, and may round it otherwise
than the loop that sought the largest: the compiler fuses a multiplication into an addition here and not there.
"""

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from ..ir.nodes import Node, subgraph

TRUTHS = {"eq", "ne", "lt", "le", "gt", "ge", "and", "or", "not"}
COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge", "sign", "floor", "ceil", "trunc", "round", "integer"}
COMPARISONS |= {"remainder", "fmod", "floor_divide", "hardshrink"}


def compares_numbers(forward: Iterable[Node], backward: Iterable[Node]) -> bool:
    """Whether the roots of a step, or of its derivative, seek an extreme and compare, or make a decision; or whether
    some number is a part of two rows, which a kink such as that of `maximum(v, v[:, :1])` compares."""
    step = subgraph(forward)
    nodes = [*step, *subgraph(backward)]
    if any(map(_seeks_extreme, nodes)) and any(node.op in COMPARISONS | {"spike"} for node in nodes):
        return True
    return _have_common_columns(step) or bool(decisions(step))


def decisions(step: Iterable[Node]) -> list[Node]:
    """The comparisons of two numbers that are computed from what a step is given. The derivative must not decide
    otherwise."""
    nodes = list(step)
    given: set[Node] = set()  # what depends on x, a state or a mask
    for node in nodes:
        if node.op == "load" or any(argument in given for argument in node.args):
            given.add(node)
    return [node for node in nodes if node.op in COMPARISONS and _are_two(node, given)]


def _seeks_extreme(node: Node) -> bool:
    """A maximum over numbers of a row, or how many of them compare so: the place of a number in an order."""
    if node.op not in ("rowsum", "gather", "add"):
        return False
    kind = node.attr.kind if node.op == "gather" else node.attr
    return kind == "max" or any(argument.op in TRUTHS for argument in node.args)


def _are_two(node: Node, given: set[Node]) -> bool:
    """Whether a comparison is one of two different numbers, or of their difference with a constant."""
    numbers = {argument for argument in node.args if argument in given}
    return len(numbers) > 1 or any(argument.op == "sub" and _are_two(argument, given) for argument in numbers)


def _have_common_columns(step: list[Node]) -> bool:
    """Whether two rows are different pieces, with a column in common, of one product or of what a step is given."""
    found: dict[Any, set[tuple[int, int]]] = {}
    for node in step:
        if node.op == "product":
            matrix = node.attr
            inputs, outputs = (matrix.rows, matrix.cols) if matrix.flipped else (matrix.cols, matrix.rows)
            found.setdefault((node.args[0], matrix.weight, matrix.flipped, inputs), set()).add(outputs)
            continue
        for load in (argument for argument in node.args if argument.op == "load"):
            at = load.attr
            found.setdefault((at.buffer, at.lag, at.start), set()).add((at.offset, at.offset + load.width))
    return any(a[0] < b[1] and b[0] < a[1] for pieces in found.values() for a, b in combinations(pieces, 2))
