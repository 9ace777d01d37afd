"""Renders planned nodes as ONNX nodes; columns are the last axis, so one step (B, n) and all (T, B, n) are alike."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from ...engine.ir.nodes import Node
from .graph import Graph
from .operations import ONNX


class Renderer:
    """Writes nodes into a graph. `load` names the value that a node loads; `values` maps nodes to names."""

    def __init__(self, graph: Graph, weights: dict[str, Tensor], load: Callable[[Node], str]):
        self.graph, self.weights, self.load = graph, weights, load
        self.values: dict[Node, str] = {}

    def write(self, nodes: Iterable[Node]) -> None:
        """Write nodes in the given order, arguments first; nodes that already have a value are skipped."""
        new = [node for node in nodes if node not in self.values]
        groups: dict[Node, list[Node]] = {}
        for node in new:
            if node.op == "product":
                groups.setdefault(node.args[0], []).append(node)
        for node in new:
            if node.op == "product":
                self._products(node.args[0], groups)
            else:
                self.values[node] = self._value(node, [self.values[a] for a in node.args])

    def _value(self, node: Node, args: list[str]) -> str:
        graph = self.graph
        if node.op == "const":
            return graph.number(node.attr)
        if node.op == "weight":
            return graph.constant(node.attr.of(self.weights)[None], "vector")
        if node.op == "load":
            return self.load(node)
        if node.op == "rowsum":
            return graph.add(
                "ReduceMax" if node.attr == "max" else "ReduceSum", args[0], graph.integers(-1), keepdims=1
            )
        if node.op == "literal":
            return graph.constant(torch.tensor([node.attr], dtype=graph.dtype), "literal")
        if node.op == "concat":
            return ""  # gathers read its parts
        if node.op == "gather":
            return self._gather(node)
        if node.op == "expand":
            return graph.add("Expand", args[0], graph.integers(1, node.width))
        return ONNX[node.op](graph, args, node.attr)

    def _gather(self, node: Node) -> str:
        """What the places of its index maps read, (…, terms, width), reduced over the terms."""
        empty = 0.0 if node.attr.kind == "sum" else -float("inf")
        pairs = zip(node.args, node.attr.maps, strict=True)
        read = [self._read(arg, index.places, empty) for arg, index in pairs]
        product = read[0] if len(read) == 1 else self.graph.add("Mul", *read)
        reduce = "ReduceSum" if node.attr.kind == "sum" else "ReduceMax"
        return self.graph.add(reduce, product, self.graph.integers(-2), keepdims=0)

    def _read(self, source: Node, places: Tensor, empty: float) -> str:
        """The numbers at these places, and `empty` where a place is negative or past the end."""
        if source.op == "concat":
            parts, at = [], 0
            for part in source.args:
                parts.append(self._read(part, places - at, empty))
                at += part.width
            return self.graph.add("Sum" if empty == 0.0 else "Max", *parts)
        inside = (places >= 0) & (places < source.width)
        read = self.graph.add(
            "Gather", self.values[source], self.graph.constant(places.clamp(0, source.width - 1), "places"), axis=-1
        )
        if bool(inside.all()):
            return read
        return self.graph.add("Where", self.graph.constant(inside, "inside"), read, self.graph.number(empty))

    def _products(self, operand: Node, groups: dict[Node, list[Node]]) -> None:
        """Write all products of one operand as one MatMul, when the first of them is needed."""
        group = groups.pop(operand, [])
        if not group:
            return
        stacked = torch.cat([node.attr.of(self.weights) for node in group])
        product = self.graph.add("MatMul", self.values[operand], self.graph.constant(stacked.t(), "matrix"))
        parts = self.graph.split(product, [node.width for node in group], axis=-1)
        self.values.update(zip(group, parts, strict=True))
