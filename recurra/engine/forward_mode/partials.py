"""Rows of derivatives along elementwise paths: from a value of a step to what it is made of, element by element.

A path ends at what mixes columns (a product, a sum over a row, a gather) and at what a step reads (states, weights, x).
Between ends every derivative is one number per column: a node like any other, which the same operations compute.
"""

from ..ir.nodes import TABLE, Node, subgraph
from ..ir.values import Unsupported

ENDS = ("load", "weight", "product", "rowsum", "gather", "concat")


def is_end(node: Node) -> bool:
    return node.op in ENDS or node.is_leaf


def partials(value: Node, live: set[Node]) -> dict[Node, Node]:
    """End → the row of derivatives of `value` by it; of an end of width 1, by column of `value`."""
    cotangents: dict[Node, list[Node]] = {value: [value.builder.const(1.0)]}
    found: dict[Node, Node] = {}
    for node in reversed(subgraph([value], stop=is_end)):
        if node not in cotangents:
            continue
        total, *rest = cotangents[node]
        for more in rest:
            total = total + more
        if is_end(node):
            if node in live:
                found[node] = total
        elif node.op == "expand":
            cotangents.setdefault(node.args[0], []).append(total)
        elif node.is_elementwise:
            for argument, cotangent in zip(node.args, TABLE[node.op].vjp(node, total), strict=True):
                if cotangent is not None and argument in live:
                    cotangents.setdefault(argument, []).append(cotangent)
        else:
            raise Unsupported(f"the derivative of {node.op}")
    return found
