"""Edits a copy of a traced step: adds masks, weights and operations, and redirects what reads a value.

The modifiers of `recurra/modifiers.py` are written with it.
"""

from dataclasses import replace

import torch
from torch import Tensor, fx

from ..cell import Cell
from .trace import Step

aten = torch.ops.aten
AFTER_EQUATIONS = "after equations"  # meta key of a node between the cell's equations and what the step returns


class GraphRewriter:
    """A copy of a step's graph, and the edits of it. `finish()` returns the edited step.

    A new operation goes after `cursor`, where one is set, and otherwise before the output.
    """

    def __init__(self, step: Step):
        self.graph = fx.Graph()
        self.graph.output(self.graph.graph_copy(step.graph, {}))
        self.graph.set_codegen(fx.CodeGen())
        self.step = replace(step, graph=self.graph)
        self.cursor: fx.Node | None = None

    def finish(self) -> Step:
        """Check the graph and return the edited step."""
        self.graph.lint()
        return self.step

    # ------------------------------------------------------------------------------------------ finding values

    def input(self, name: str) -> fx.Node:
        """The node of an input: "x", a state, a delayed state "h[3]", or a mask."""
        return self.step.node(name)

    def output(self, state: str) -> fx.Node:
        """The new state that the step returns."""
        return self.step.results()[self.step.outputs.index(state)]

    def computed_state(self, state: str) -> fx.Node:
        """The new state as the equations compute it. Zoneout may return another value."""
        named = dict(zip(self.step.named, self.step.results()[len(self.step.outputs) :], strict=True))
        return named.get(state, self.output(state))

    # ------------------------------------------------------------------------------------------ adding nodes

    def add_mask(self, name: str, cell: Cell) -> fx.Node:
        """A new input for a mask of the cell, after the other inputs."""
        like = self.step.node("x").meta["val"]
        node = self._placeholder(len(self.step.inputs), name, like.new_empty(2, cell.masks[name].size))
        self.step = replace(self.step, inputs=(*self.step.inputs, name))
        return node

    def add_weight(self, name: str, tensor: Tensor) -> fx.Node:
        """A new weight, after the other weights; `name` is its dotted name in the cell."""
        node = self._placeholder(len(self.step.inputs) + len(self.step.weights), name, tensor.detach())
        self.step = replace(self.step, weights=(*self.step.weights, name))
        return node

    def _placeholder(self, position: int, name: str, stand_in: Tensor) -> fx.Node:
        with self.graph.inserting_after(self.step.placeholders()[position - 1]):
            node = self.graph.placeholder(name.replace(".", "_"))
        node.meta["val"] = stand_in
        return node

    def call(self, target: object, *arguments: object, at: fx.Node | None = None) -> fx.Node:
        """Add an operation after `at`, else after the cursor (which moves on), else before the output."""
        place = at or self.cursor
        if place is None:
            with self.graph.inserting_before(self._output_node()):
                return self.graph.call_function(target, arguments)  # pyrefly: ignore
        with self.graph.inserting_after(place):
            node = self.graph.call_function(target, arguments)  # pyrefly: ignore
        if at is None:
            self.cursor = node
        return node

    def row_mean(self, values: list[fx.Node], count: int) -> fx.Node:
        """The mean over all features of all values, `count` numbers together: (B, 1)."""
        total = self.call(aten.sum.dim_IntList, values[0], [-1], True)
        for value in values[1:]:
            total = self.call(aten.add.Tensor, total, self.call(aten.sum.dim_IntList, value, [-1], True))
        return self.call(aten.mul.Tensor, total, 1.0 / count)

    def move_together(self, values: list[fx.Node]) -> None:
        """Move products of one operand to the place of the first, and set the cursor after the last."""
        order = list(self.graph.nodes)
        self.cursor, *others = sorted(values, key=order.index)
        for node in others:
            self.cursor.append(node)
            self.cursor = node

    # ------------------------------------------------------------------------------------------ redirecting uses

    def replace_uses(self, old: fx.Node, new: fx.Node) -> None:
        """Equations that read `old` read `new`. What the step returns stays."""
        for user in list(old.users):
            if user.op != "output" and AFTER_EQUATIONS not in user.meta and not _depends_on(new, user):
                user.replace_input_with(old, new)

    def replace_everywhere(self, old: fx.Node, new: fx.Node) -> None:
        """Everything that reads `old` reads `new`, and the step returns `new` for it."""
        for user in list(old.users):
            if user.op != "output" and not _depends_on(new, user):
                user.replace_input_with(old, new)
        self.replace_output(old, new)

    def replace_output(self, old: fx.Node, new: fx.Node) -> None:
        """The step returns `new` where it returned `old`. Equations that read `old`, and its name, stay.

        An output that concatenates states, [h; s], is rebuilt from the new ones.
        """
        returned, count = self.step.results(), len(self.step.outputs)
        output = returned[0]
        if output.target is aten.cat.default and old in output.all_input_nodes:
            parts = [new if part is old else part for part in output.args[0]]  # pyrefly: ignore
            returned[0] = self.call(aten.cat.default, parts, *output.args[1:])
        returned[:count] = [new if value is old else value for value in returned[:count]]
        self._output_node().args = (returned,)

    def replace_state(self, state: str, new: fx.Node) -> None:
        """The step returns `new` as this state. Its output and everything else stays, even if it was the same value."""
        returned = self.step.results()
        returned[self.step.outputs.index(state)] = new
        self._output_node().args = (returned,)

    def _output_node(self) -> fx.Node:
        return next(node for node in self.graph.nodes if node.op == "output")


def _depends_on(node: fx.Node, source: fx.Node) -> bool:
    """Whether `node` is `source` or computed from it. Then `source` must go on reading the old value."""
    seen, stack = set(), [node]
    while stack:
        current = stack.pop()
        if current is source:
            return True
        stack += [n for n in current.all_input_nodes if n not in seen]
        seen.update(current.all_input_nodes)
    return False
