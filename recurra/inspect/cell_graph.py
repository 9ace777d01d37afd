"""Reduces a traced step to the nodes of a diagram: gates as boxes, elementwise operations as circles, states as ends.

An affine map with its activation is one box. Inputs that several boxes share are joined in one point. Operations on
weights alone, and reshapes, are not drawn.
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
ACTIVATIONS: dict[Any, str] = {
    aten.sigmoid.default: r"\sigma",
    aten.tanh.default: r"\tanh",
    aten.relu.default: r"\mathrm{relu}",
    aten.exp.default: r"\exp",
    aten.softplus.default: r"\mathrm{softplus}",
    aten.sin.default: r"\sin",
    aten.cos.default: r"\cos",
}
#: labels of operations whose name in torch is no term of the field
LABELS = {
    "_fft_c2c": r"\mathrm{FFT}",
    "bmm": r"\mathrm{product}",
    "clamp": r"\mathrm{clip}",
    "clamp_max": r"\min",
    "clamp_min": r"\max",
    "div": r"\mathrm{divide}",
    "linalg_vector_norm": r"\mathrm{norm}",
    "log_sigmoid_forward": r"\log\sigma",
    "maximum": r"\max",
    "minimum": r"\min",
    "remainder": r"\mathrm{mod}",
    "view_as_complex": r"\mathrm{complex}",
    "view_as_real": r"\mathrm{real}",
    "where": r"\mathrm{choose}",
}
SUMS = (aten.add.Tensor, aten.add.Scalar)


@dataclass(eq=False)
class DiagramNode:
    """A node of the diagram; `shape` is "input", "output", "box", "circle", "join" or "bend"."""

    shape: str
    label: str  # LaTeX
    sources: list["DiagramNode"] = field(default_factory=list)
    name: str = ""  # LaTeX of the name that the step gives the value, if any
    title: str = ""  # the equation, shown on hover
    state: str = ""  # of an input or output: the name of the state
    lane: int | None = None  # the memory path it lies on (the "conveyor belt"), counted from the top
    layer: int = 0
    row: float = 0.0

    @property
    def belt(self) -> bool:
        return self.lane is not None


def diagram_nodes(cell: Cell) -> list[DiagramNode]:
    """The nodes of one step, sources first."""
    return _GraphBuilder(cell, trace_equations(cell)).nodes


class _GraphBuilder:
    """Builds the nodes from the traced step of a cell."""

    def __init__(self, cell: Cell, step: Step):
        self.cell, self.step = cell, step
        printer = StepPrinter(cell, step)
        self.symbols = dict(printer.symbols)
        self.names: dict[fx.Node, str] = {}
        results = step.results()
        for name, node in zip(step.named, results[len(step.outputs) :], strict=True):
            self.names.setdefault(node, symbol(name, "t"))
        self.dynamic = self._find_dynamic()
        self.nodes: list[DiagramNode] = []
        self.drawn: dict[fx.Node, DiagramNode] = {}
        for name in step.inputs:
            if name != TIME and name not in cell.drawn_inputs():
                self._add(step.node(name), DiagramNode("input", self.symbols[step.node(name)], state=_base(name)))
        outputs = list(zip(step.outputs, results, strict=False))
        for name, node in outputs[1:]:
            self.nodes.append(DiagramNode("output", symbol(name, "t"), [self._part(node)], state=name))
        if outputs[0][1] not in [node for _, node in outputs[1:]]:
            self.nodes.append(DiagramNode("output", "y_{t}", [self._part(outputs[0][1])], state="y"))
        self._join_shared_inputs()
        self._mark_memory_paths()
        self._drop_unused()

    # ------------------------------------------------------------------------------------------ from fx nodes

    def _find_dynamic(self) -> set[fx.Node]:
        """fx nodes whose value depends on the data."""
        dynamic = {self.step.node(name) for name in self.step.inputs}
        for node in self.step.graph.nodes:
            if node.op == "call_function" and node.target is not aten.sym_size.int:
                dynamic |= {node} if any(source in dynamic for source in node.all_input_nodes) else set()
        return dynamic

    def _add(self, node: fx.Node, part: DiagramNode) -> DiagramNode:
        self.nodes.append(part)
        self.drawn[node] = part
        return part

    def _part(self, node: fx.Node) -> DiagramNode:
        """The diagram node of an fx node, created on first use."""
        if node in self.drawn:
            return self.drawn[node]
        sources = [source for source in node.all_input_nodes if source in self.dynamic]
        title = self._equation_text(node)
        if self._is_gate(node):
            inner, label = self._gate(node)
            made = DiagramNode("box", label, [self._part(source) for source in inner], self.names.get(node, ""), title)
        elif len(sources) == 1 and (self._is_layout(node) or self._is_times_one(node)):
            self.drawn[node] = self._part(sources[0])
            return self.drawn[node]
        else:
            label = self._operation(node, sources)
            shape = "circle" if len(label) < 3 or label in (r"\odot",) else "box"
            made = DiagramNode(
                shape, label, [self._part(source) for source in sources], self.names.get(node, ""), title
            )
        return self._add(node, made)

    def _is_layout(self, node: fx.Node) -> bool:
        row = MEANING.get(node.target)
        return (row is not None and row.kind == "layout" and node.target is not aten.cat.default) or row is None

    def _is_times_one(self, node: fx.Node) -> bool:
        """A product with the constant 1."""
        return node.target in (aten.mul.Tensor, aten.mul.Scalar) and 1 in [
            a for a in node.args if isinstance(a, (int, float))
        ]

    def _is_gate(self, node: fx.Node) -> bool:
        inner = node.args[0] if node.target in ACTIVATIONS and node.args else node
        return isinstance(inner, fx.Node) and any(product_of(term) is not None for term in self._terms(inner))

    def _gate(self, node: fx.Node) -> tuple[list[fx.Node], str]:
        """The inputs of a box, and its label."""
        squash = node.target in ACTIVATIONS
        inner: fx.Node = node.args[0] if squash else node  # pyrefly: ignore
        reads: list[fx.Node] = []
        weights = []
        for term in self._terms(inner):
            product = product_of(term)
            if product is not None:
                weights.append(self.symbols.get(product[1], "W"))
                reads.append(product[0])
            elif term in self.dynamic:
                reads.append(self._skip_elementwise_weight(term))
        ordered = list(dict.fromkeys(read for read in reads if read in self.dynamic))
        return ordered, ACTIVATIONS[node.target] if squash else ",".join(dict.fromkeys(weights))

    def _skip_elementwise_weight(self, term: fx.Node) -> fx.Node:
        """For `p ⊙ c` in a sum, c: a peephole weight belongs to the box."""
        dynamic = [source for source in term.all_input_nodes if source in self.dynamic]
        scaled = term.target in (aten.mul.Tensor, aten.mul.Scalar) and len(dynamic) == 1 and term not in self.drawn
        return dynamic[0] if scaled else term

    def _terms(self, node: fx.Node) -> list[fx.Node]:
        if node.target in SUMS and node.kwargs.get("alpha", 1) == 1 and node in self.dynamic:
            found = []
            for argument in node.args[:2]:
                if isinstance(argument, fx.Node):
                    found += [argument] if argument in self.names and argument is not node else self._terms(argument)
            return found
        return [node]

    def _operation(self, node: fx.Node, sources: list[fx.Node]) -> str:
        if node.op == "placeholder":  # the time, a mask or noise
            return self.symbols[node]
        constant = [
            a for a in node.args if isinstance(a, (int, float)) or (isinstance(a, fx.Node) and a not in self.dynamic)
        ]
        if node.target in (aten.mul.Tensor, aten.mul.Scalar):
            return r"\odot" if len(sources) > 1 else rf"\odot {self._constant(constant)}"
        if node.target in SUMS:
            return "+" if len(sources) > 1 or not constant else f"+{self._constant(constant)}"
        if node.target is aten.rsub.Scalar or (node.target in (aten.sub.Tensor,) and node.args[0] not in self.dynamic):
            first = node.args[1] if node.target is aten.rsub.Scalar else node.args[0]
            return f"{self._constant([first])}-"
        if node.target in (aten.sub.Tensor, aten.sub.Scalar):
            return "-" if len(sources) > 1 else f"-{self._constant(constant)}"
        if node.target in ACTIVATIONS:
            return ACTIVATIONS[node.target]
        if node.target is aten.cat.default:
            return r"\left[\,;\,\right]"
        if node.target is aten.native_layer_norm.default:
            return r"\mathrm{LN}"
        name = str(getattr(node.target, "__name__", node.target)).split(".")[0]
        return LABELS.get(name) or rf"\mathrm{{{name.strip('_').replace('_', '')}}}"

    def _constant(self, values: list) -> str:
        if not values:
            return ""
        text = Expressions(self.symbols).print(values[0])[0]
        return text if len(text) < 28 else r"\mathrm{const}"

    def _equation_text(self, node: fx.Node) -> str:
        """The equation of a value as LaTeX."""
        text = Expressions({**self.symbols, **{n: s for n, s in self.names.items() if n is not node}}).print(
            node, top=True
        )[0]
        return f"{self.names[node]} = {text}" if node in self.names else text

    # ------------------------------------------------------------------------------------------ simplification

    def _join_shared_inputs(self) -> None:
        """Join the inputs that two or more boxes share in one point."""
        groups: dict[frozenset[DiagramNode], list[DiagramNode]] = {}
        for part in self.nodes:
            ends = [source for source in part.sources if source.shape == "input"]
            if part.shape == "box" and len(ends) > 1:
                groups.setdefault(frozenset(ends), []).append(part)
        for ends, readers in groups.items():
            if len(readers) > 1:
                join = DiagramNode("join", "", [part for part in self.nodes if part in ends])
                self.nodes.insert(max(self.nodes.index(end) for end in ends) + 1, join)
                for reader in readers:
                    reader.sources = [join, *(source for source in reader.sources if source not in ends)]

    def _mark_memory_paths(self) -> None:
        """Mark the paths from an old state to its new value that pass no box."""
        lane = 0
        for end in [part for part in self.nodes if part.shape == "output"]:
            start = [part for part in self.nodes if part.shape == "input" and part.state == end.state]
            path = _belt_path(end, start[0]) if len(start) == 1 else []
            for part in path:
                part.lane = lane if part.lane is None else part.lane
            lane += bool(path)

    def _drop_unused(self) -> None:
        read = {source for part in self.nodes for source in part.sources}
        self.nodes = [part for part in self.nodes if part.shape == "output" or part in read]


def _belt_path(end: DiagramNode, start: DiagramNode) -> list[DiagramNode]:
    """The shortest path from `end` back to `start` through circles only, both included; empty if there is none."""
    paths = [[end]]
    while paths:
        path = paths.pop(0)
        for source in path[-1].sources:
            if source is start:
                return [*path, source]
            if source.shape == "circle" or (source.shape == "box" and source.label.startswith(r"\odot")):
                paths.append([*path, source])
    return []


def _base(name: str) -> str:
    return name.partition("[")[0]


__all__ = ["DiagramNode", "diagram_nodes", "weight_symbol"]
