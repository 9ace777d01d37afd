"""The graph of a step for any number of sequences, from its graphs for two and for three.

Where these differ by the batch size itself, the merged graph reads it from x. `difference_at` compares the merged graph
with the one traced at another batch size: a step may do something else for some number of sequences.
"""

import operator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx

from .custom_vjp import custom_vjp_of
from .operations import BATCH_AXIS
from .user_code import Untraceable

aten = torch.ops.aten

# ---------------------------------------------------------------------------------------------------- batch sizes


def merge_batch_sizes(two: fx.Graph, three: fx.Graph) -> fx.Graph:
    """Make the graph for 2 sequences one for any number, from its differences to the graph for 3. Edits `two`."""
    compare_operations(two, three, 3)
    first, second = list(two.nodes), list(three.nodes)
    placeholders = [node for node in first if node.op == "placeholder"]
    with two.inserting_after(placeholders[-1]):
        batch = two.call_function(aten.sym_size.int, (placeholders[0], 0))
    twin = dict(zip(second, first, strict=True))
    for a, b in zip(first, second, strict=True):
        a.meta[BATCH_AXIS] = _batch_axis(a, b)
        if (custom := custom_vjp_of(a)) is not None:
            merge_batch_sizes(custom.graph, custom_vjp_of(b).graph)  # pyrefly: ignore
            a.target = replace(custom).target()  # its name changes with its graph
        if a.op != "placeholder":
            a.args = tuple(_merge(p, q, batch, twin) for p, q in zip(a.args, b.args, strict=True))
            a.kwargs = {k: _merge(v, b.kwargs[k], batch, twin) for k, v in a.kwargs.items()}
    if not batch.users:
        two.erase_node(batch)
    return two


def compare_operations(one: fx.Graph, other: fx.Graph, batch: int, line: str = "") -> None:
    """Check that the step runs the same operations for 2 sequences as for another number."""
    if [_kind(node) for node in one.nodes if node.target is not aten.sym_size.int] != [
        _kind(node) for node in other.nodes if node.target is not aten.sym_size.int
    ]:
        at = f" ({line})" if line else ""
        raise Untraceable(f"runs other operations for 2 sequences than for {batch}: it branches on the batch size{at}")


def _kind(node: fx.Node) -> tuple:
    """What two nodes at the same place of two graphs have in common."""
    custom = custom_vjp_of(node)
    if custom is not None:
        return custom.name, custom.outputs, custom.inputs, custom.reads
    return node.op, node.target if node.op == "call_function" else None


def _batch_axis(two: fx.Node, three: fx.Node) -> int | None:
    """The axis along which the two values differ in size."""
    shapes = [getattr(node.meta.get("val"), "shape", ()) for node in (two, three)]
    return next((axis for axis, (a, b) in enumerate(zip(*shapes, strict=False)) if a != b), None)


def _merge(two: Any, three: Any, batch: fx.Node, twin: dict[fx.Node, fx.Node]) -> Any:
    """One argument of a node, for any batch size. `twin` maps nodes of the second graph to those of the first."""
    if isinstance(two, fx.Node):
        if not isinstance(three, fx.Node) or twin[three] is not two:
            raise Untraceable("step reads another value for 2 sequences than for 3: it branches on the batch size")
        return two
    if isinstance(two, (list, tuple)):
        return type(two)(_merge(a, b, batch, twin) for a, b in zip(two, three, strict=True))
    if two == three or (two != two and three != three):  # or both are NaN
        return two
    if (two, three) == (2, 3):
        return batch
    if isinstance(two, int) and isinstance(three, int) and two * 3 == three * 2:  # the batch and other axes as one
        with batch.graph.inserting_after(batch):
            return batch.graph.call_function(operator.mul, (batch, two // 2))
    raise Untraceable(f"step holds {two} for 2 sequences and {three} for 3: it folds the batch into another size")


# ---------------------------------------------------------------------------------------------------- other batch sizes


class Batch(NamedTuple):
    """A multiple of the batch size."""

    times: int


class Operation(NamedTuple):
    """A node of the merged graph as plain data."""

    kind: tuple
    args: Any  # nodes as places in the graph, the batch size as Batch
    shape: Any  # of its value, with Batch along the batch axis
    inner: "list[Operation]"  # of a recorded `backward`


class _Place(NamedTuple):
    """A node, by its number in the graph."""

    number: int


def pattern_of(merged: fx.Graph) -> list[Operation]:
    """The operations of a merged graph, traced for two sequences, for any number of them."""
    batch = next((node for node in merged.nodes if node.target is aten.sym_size.int), None)
    factors: dict[fx.Node, Any] = {} if batch is None else {batch: Batch(1)}
    if batch is not None:
        own = [node for node in merged.nodes if node.target is operator.mul and node.args[0] is batch]
        factors |= {node: Batch(node.args[1]) for node in own}
    return _operations(merged, factors)


def _operations(graph: fx.Graph, factors: dict[fx.Node, Any]) -> list[Operation]:
    nodes = [node for node in graph.nodes if node not in factors]
    known = factors | {node: _Place(number) for number, node in enumerate(nodes)}
    found = []
    for node in nodes:
        custom = custom_vjp_of(node)
        args = [_plain(value, known) for value in (node.args, tuple(sorted(node.kwargs.items())))]
        inner = [] if custom is None else pattern_of(custom.graph)
        found.append(Operation(_kind(node), args, _shape(node), inner))
    return found


def _plain(value: Any, known: dict[fx.Node, Any]) -> Any:
    """An argument without nodes. Lists are tuples, NaN equals itself."""
    if isinstance(value, fx.Node):
        return known[value]
    if isinstance(value, (list, tuple)):
        return tuple(_plain(each, known) for each in value)
    return "nan" if isinstance(value, float) and value != value else value


def _shape(node: fx.Node) -> Any:
    """The shape of a value, which for two sequences is even along the batch axis."""
    value, axis = node.meta.get("val"), node.meta.get(BATCH_AXIS)
    if not isinstance(value, Tensor):
        return None
    return tuple(Batch(size // 2) if i == axis else int(size) for i, size in enumerate(value.shape))


def difference_at(pattern: list[Operation], other: fx.Graph, batch: int) -> bool:
    """Whether a graph traced for `batch` sequences has other operations than the merged one."""
    return _differ(pattern, _operations(other, {}), batch)


def _differ(pattern: list[Operation], found: list[Operation], batch: int) -> bool:
    return len(found) != len(pattern) or any(
        one.kind != two.kind
        or _at(one.args, batch) != two.args
        or (one.shape is not None and _at(one.shape, batch) != two.shape)
        or _differ(one.inner, two.inner, batch)
        for one, two in zip(pattern, found, strict=True)
    )


def _at(value: Any, batch: int) -> Any:
    """The same for a number of sequences."""
    if isinstance(value, Batch):
        return value.times * batch
    if isinstance(value, _Place):
        return value
    return type(value)(_at(each, batch) for each in value) if isinstance(value, (list, tuple)) else value
