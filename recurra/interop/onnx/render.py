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
        if node.op == "expand":
            return graph.add("Expand", args[0], graph.integers(1, node.width))
        return ONNX[node.op](graph, args, node.attr)

    def _products(self, operand: Node, groups: dict[Node, list[Node]]) -> None:
        """Write all products of one operand as one MatMul, when the first of them is needed."""
        group = groups.pop(operand, [])
        if not group:
            return
        stacked = torch.cat([node.attr.of(self.weights) for node in group])
        product = self.graph.add("MatMul", self.values[operand], self.graph.constant(stacked.t(), "matrix"))
        parts = self.graph.split(product, [node.width for node in group], axis=-1)
        self.values.update(zip(group, parts, strict=True))
