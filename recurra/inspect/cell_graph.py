"""A traced step → the few nodes a person would draw: gates as boxes, elementwise operations as circles, states as ends.

A sum of products and biases with the squashing function around it is one box; what every box of a cell reads in common
is joined once, before the boxes. Operations on weights alone, and those that only move numbers, are not drawn.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from ..cell import TIME, Cell
from ..engine.latex import Expressions, StepPrinter, symbol, weight_symbol
from ..engine.operations import MEANING, product_of
from ..engine.trace import Step, trace_equations

aten = torch.ops.aten
SQUASHING: dict[Any, str] = {
    aten.sigmoid.default: r"\sigma",
    aten.tanh.default: r"\tanh",
    aten.relu.default: r"\mathrm{relu}",
    aten.exp.default: r"\exp",
    aten.softplus.default: r"\mathrm{softplus}",
    aten.sin.default: r"\sin",
    aten.cos.default: r"\cos",
}
SUMS = (aten.add.Tensor, aten.add.Scalar)


@dataclass(eq=False)
class Part:
    """`shape` is "input", "output", "box", "circle" or "join"."""

    shape: str
    label: str  # LaTeX
    sources: list["Part"] = field(default_factory=list)
    name: str = ""  # LaTeX of the value's own name, where the step gave one
    title: str = ""  # the equation, as a person would say it
    state: str = ""  # of an input or output: whose
    lane: int | None = None  # of the conveyor belt it lies on, counted from the top
    layer: int = 0
    row: float = 0.0

    @property
    def belt(self) -> bool:
        return self.lane is not None


def parts_of(cell: Cell) -> list[Part]:
    """Everything to draw of one step, sources first."""
    return _Reduction(cell, trace_equations(cell)).parts


class _Reduction:
    def __init__(self, cell: Cell, step: Step):
        self.cell, self.step = cell, step
        printer = StepPrinter(cell, step)
        self.symbols = dict(printer.symbols)
        self.names: dict[fx.Node, str] = {}
        results = step.results()
        for name, node in zip(step.named, results[len(step.outputs) :], strict=True):
            self.names.setdefault(node, symbol(name, "t"))
        self.moving = self._moving()
        self.parts: list[Part] = []
        self.drawn: dict[fx.Node, Part] = {}
        for name in step.inputs:
            if name != TIME and name not in cell.masks:
                self._add(step.node(name), Part("input", self.symbols[step.node(name)], state=_base(name)))
        outputs = list(zip(step.outputs, results, strict=False))
        for name, node in outputs[1:]:
            self.parts.append(Part("output", symbol(name, "t"), [self._part(node)], state=name))
        if outputs[0][1] not in [node for _, node in outputs[1:]]:
            self.parts.append(Part("output", "y_{t}", [self._part(outputs[0][1])], state="y"))
        self._join_common()
        self._mark_belts()
        self._forget_unused()

    # ------------------------------------------------------------------------------------------ from nodes to parts

    def _moving(self) -> set[fx.Node]:
        """Nodes whose value depends on the data."""
        moving = {self.step.node(name) for name in self.step.inputs}
        for node in self.step.graph.nodes:
            if node.op == "call_function" and node.target is not aten.sym_size.int:
                moving |= {node} if any(source in moving for source in node.all_input_nodes) else set()
        return moving

    def _add(self, node: fx.Node, part: Part) -> Part:
        self.parts.append(part)
        self.drawn[node] = part
        return part

    def _part(self, node: fx.Node) -> Part:
        """The part that draws a node, made when first asked for."""
        if node in self.drawn:
            return self.drawn[node]
        sources = [source for source in node.all_input_nodes if source in self.moving]
        title = self._say(node)
        if self._is_gate(node):
            inner, label = self._gate(node)
            made = Part("box", label, [self._part(source) for source in inner], self.names.get(node, ""), title)
        elif len(sources) == 1 and (self._is_layout(node) or self._is_idle(node)):
            self.drawn[node] = self._part(sources[0])
            return self.drawn[node]
        else:
            label = self._operation(node, sources)
            shape = "circle" if len(label) < 3 or label in (r"\odot",) else "box"
            made = Part(shape, label, [self._part(source) for source in sources], self.names.get(node, ""), title)
        return self._add(node, made)

    def _is_layout(self, node: fx.Node) -> bool:
        row = MEANING.get(node.target)
        return (row is not None and row.kind == "layout" and node.target is not aten.cat.default) or row is None

    def _is_idle(self, node: fx.Node) -> bool:
        """A product with the number one."""
        return node.target in (aten.mul.Tensor, aten.mul.Scalar) and 1 in [
            a for a in node.args if isinstance(a, (int, float))
        ]

    def _is_gate(self, node: fx.Node) -> bool:
        inner = node.args[0] if node.target in SQUASHING and node.args else node
        return isinstance(inner, fx.Node) and any(product_of(term) is not None for term in self._terms(inner))

    def _gate(self, node: fx.Node) -> tuple[list[fx.Node], str]:
        """What a box reads, and what stands in it."""
        squash = node.target in SQUASHING
        inner: fx.Node = node.args[0] if squash else node  # pyrefly: ignore
        reads: list[fx.Node] = []
        weights = []
        for term in self._terms(inner):
            product = product_of(term)
            if product is not None:
                weights.append(self.symbols.get(product[1], "W"))
                reads.append(product[0])
            elif term in self.moving:
                reads.append(self._through_weights(term))
        ordered = list(dict.fromkeys(read for read in reads if read in self.moving))
        return ordered, SQUASHING[node.target] if squash else ",".join(dict.fromkeys(weights))

    def _through_weights(self, term: fx.Node) -> fx.Node:
        """`p ⊙ c` in a sum reads c: the peephole is part of the box."""
        moving = [source for source in term.all_input_nodes if source in self.moving]
        scaled = term.target in (aten.mul.Tensor, aten.mul.Scalar) and len(moving) == 1 and term not in self.drawn
        return moving[0] if scaled else term

    def _terms(self, node: fx.Node) -> list[fx.Node]:
        if node.target in SUMS and node.kwargs.get("alpha", 1) == 1 and node in self.moving:
            found = []
            for argument in node.args[:2]:
                if isinstance(argument, fx.Node):
                    found += [argument] if argument in self.names and argument is not node else self._terms(argument)
            return found
        return [node]

    def _operation(self, node: fx.Node, sources: list[fx.Node]) -> str:
        constant = [
            a for a in node.args if isinstance(a, (int, float)) or (isinstance(a, fx.Node) and a not in self.moving)
        ]
        if node.target in (aten.mul.Tensor, aten.mul.Scalar):
            return r"\odot" if len(sources) > 1 else rf"\odot {self._constant(constant)}"
        if node.target in SUMS:
            return "+" if len(sources) > 1 or not constant else f"+{self._constant(constant)}"
        if node.target is aten.rsub.Scalar or (node.target in (aten.sub.Tensor,) and node.args[0] not in self.moving):
            first = node.args[1] if node.target is aten.rsub.Scalar else node.args[0]
            return f"{self._constant([first])}-"
        if node.target in (aten.sub.Tensor, aten.sub.Scalar):
            return "-" if len(sources) > 1 else f"-{self._constant(constant)}"
        if node.target in SQUASHING:
            return SQUASHING[node.target]
        if node.target is aten.cat.default:
            return r"\left[\,;\,\right]"
        if node.target is aten.native_layer_norm.default:
            return r"\mathrm{LN}"
        name = str(getattr(node.target, "__name__", node.target)).split(".")[0].strip("_").replace("_", "")
        return rf"\mathrm{{{name}}}"

    def _constant(self, values: list) -> str:
        if not values:
            return ""
        text = Expressions(self.symbols).print(values[0])[0]
        return text if len(text) < 28 else r"\mathrm{const}"

    def _say(self, node: fx.Node) -> str:
        """The value as an equation in plain letters."""
        text = Expressions({**self.symbols, **{n: s for n, s in self.names.items() if n is not node}}).print(
            node, top=True
        )[0]
        return f"{self.names[node]} = {text}" if node in self.names else text

    # ------------------------------------------------------------------------------------------ tidying

    def _join_common(self) -> None:
        """Where two boxes and more read the same things, join those once."""
        groups: dict[frozenset[Part], list[Part]] = {}
        for part in self.parts:
            ends = [source for source in part.sources if source.shape == "input"]
            if part.shape == "box" and len(ends) > 1:
                groups.setdefault(frozenset(ends), []).append(part)
        for ends, readers in groups.items():
            if len(readers) > 1:
                join = Part("join", "", [part for part in self.parts if part in ends])
                self.parts.insert(max(self.parts.index(end) for end in ends) + 1, join)
                for reader in readers:
                    reader.sources = [join, *(source for source in reader.sources if source not in ends)]

    def _mark_belts(self) -> None:
        """The way from an old state to its new value that no box interrupts: the conveyor belt."""
        lane = 0
        for end in [part for part in self.parts if part.shape == "output"]:
            start = [part for part in self.parts if part.shape == "input" and part.state == end.state]
            way = _way(end, start[0]) if len(start) == 1 else []
            for part in way:
                part.lane = lane if part.lane is None else part.lane
            lane += bool(way)

    def _forget_unused(self) -> None:
        read = {source for part in self.parts for source in part.sources}
        self.parts = [part for part in self.parts if part.shape == "output" or part in read]


def _way(end: Part, start: Part) -> list[Part]:
    """The shortest way back from `end` to `start` over circles alone, both included; empty if there is none."""
    ways = [[end]]
    while ways:
        way = ways.pop(0)
        for source in way[-1].sources:
            if source is start:
                return [*way, source]
            if source.shape == "circle" or (source.shape == "box" and source.label.startswith(r"\odot")):
                ways.append([*way, source])
    return []


def _base(name: str) -> str:
    return name.partition("[")[0]


__all__ = ["Part", "parts_of", "weight_symbol"]
