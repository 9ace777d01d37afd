"""A registered cell as a genome, read from its traced step: where evolution may start."""

from dataclasses import dataclass, field
from typing import Any, TypeGuard

import torch
from torch import fx

from recurra.cell import REGISTRY, TIME, Cell
from recurra.cells import find
from recurra.engine.trace import trace
from recurra.errors import InputError, OptionError
from recurra.train.cell_nodes import PREFIX
from recurra.train.genome import RESERVED, Genome, Node

aten = torch.ops.aten
INPUTS, UNITS = 3, 4
FUNCTIONS: dict[Any, str] = {
    getattr(aten, name).default: name
    for name in ("sigmoid", "tanh", "relu", "exp", "expm1", "sqrt", "sin", "cos", "silu", "softplus")
}
CONSTANTS = {aten.ones_like.default: 1.0, aten.zeros_like.default: 0.0}


def genome_of(cell: str | type[Cell]) -> Genome:
    """The genome of a cell: a start for `rc.train.evolve_cells`.

    **Arguments**

    - `cell`: a registered name or a class. Its step may hold products with weights, sums, differences, products,
      quotients, learned vectors and numbers, the usual functions of one number, thresholds and spikes, on values of the
      hidden size. A registered cell with more than these, such as derived weights or states of other sizes, becomes one
      node: mutations change what is around it. For other classes an `OptionError` names what they have.

    **Returns** a `Genome` with the equations of the cell, and of its first biases, vectors and numbers the means.
    Weights are initialised as in all evolved cells, and every sum of products has a bias; a cell that is one node has
    its own initial weights.

    **Example**

    >>> genome = rc.train.genome_of("gru")
    >>> rc.Recurrent(genome.cell_class(), 3, 4)(torch.randn(5, 2, 3))[0].shape
    torch.Size([5, 2, 4])
    """
    kind = find(cell) if isinstance(cell, str) else cell
    if not (isinstance(kind, type) and issubclass(kind, Cell)):
        raise InputError("cell", repr(cell), "the name of a cell, or its class")
    try:
        return read_genome(kind)[0]
    except OptionError:
        names = [name for name, registered in REGISTRY.items() if registered is kind]
        if not names:
            raise
        return whole_genome(names[0])


def whole_genome(name: str) -> Genome:
    """A registered cell as one node; the factor behind it is where mutations begin."""
    return Genome({"n0": Node(f"{PREFIX}{name}", ("x",)), "n1": Node("times", ("n0",), 1.0)}, "n1", {})


@dataclass
class Pending:
    """A sum of products with weights, to which more may be added: input → weight."""

    weights: dict[str, str] = field(default_factory=dict)
    bias: str = ""
    shift: float = 0.0


Value = str | Pending | float  # a name that nodes may read, a sum that is not a node yet, or a fixed number


def read_genome(kind: type[Cell]) -> tuple[Genome, dict[str, dict[str, str]]]:
    """The genome, and for each of its nodes with weights: input, "bias" or "scale" → the cell's own weight."""
    return Reader(kind).read()


class Reader:
    """Walks through the graph of a step."""

    def __init__(self, kind: type[Cell]):
        self.cell, self.kind = kind(INPUTS, UNITS), kind
        states = self.cell.carried
        if self.cell.masks or any(s.delays or s.size != UNITS or s.name == TIME for s in states):
            raise self.refusal("delayed states, states of other sizes, the time or noise")
        if self.cell.derived():
            raise self.refusal("weights that are derived from others")
        if any(self.cell.starts.values()):
            raise self.refusal("states that do not start from 0")
        self.step = trace(self.cell)
        self.nodes: dict[str, Node] = {}
        self.origin: dict[str, dict[str, str]] = {}
        self.values: dict[fx.Node, Any] = {}
        self.shared: set[str] = set()  # weights that the step reads more than once
        self.learned: dict[str, str] = {}  # weight → the node that holds it

    def refusal(self, what: str) -> OptionError:
        return OptionError("cell", f"{self.kind.__name__}, which has {what}", "a cell of the operations of genomes")

    def read(self) -> tuple[Genome, dict[str, dict[str, str]]]:
        states = self._name_states()
        learned, fixed = dict(self.cell.named_parameters()), dict(self.cell.named_buffers())
        for node, name in zip(self.step.placeholders(), (*self.step.inputs, *self.step.weights), strict=True):
            if name in fixed and bool((fixed[name] == fixed[name].flatten()[0]).all()) and fixed[name].dim() < 2:
                self.values[node] = float(fixed[name].flatten()[0])
            elif name in states or name in learned:
                self.values[node] = states.get(name, ("weight", name))
            else:
                raise self.refusal(f"{name}, a constant")
            if name in learned and len(node.users) > 1:
                self.shared.add(name)
        for node in self.step.graph.nodes:
            if node.op == "call_function":
                value = self._value(node)  # a sum that is read twice is one node, with one set of weights
                shared = isinstance(value, Pending) and len(node.users) > 1
                self.values[node] = self._node(value) if shared else value
        output, *new = (self._node(self.values[node]) for node in self.step.results()[: len(self.step.outputs)])
        memories = dict(zip([states[name] for name in self.step.outputs[1:]], new, strict=True))
        memories.pop("h", None)
        return Genome(self.nodes, output, memories), self.origin

    def _name_states(self) -> dict[str, str]:
        """x and the states under the names of a genome: h is the state that the cell puts out."""
        output, *new = self.step.results()[: len(self.step.outputs)]
        names = {"x": "x"}
        for k, (state, node) in enumerate(zip(self.step.outputs[1:], new, strict=True)):
            shown = node is output and "h" not in names.values()
            names[state] = "h" if shown else state if state.islower() and state not in RESERVED else f"c{k}"
        return names

    def _value(self, node: fx.Node) -> Value:
        target: Any = node.target
        given: list[Any] = [self.values.get(a, a) if isinstance(a, fx.Node) else a for a in node.args]
        if target is aten.linear.default and _is_weight(given[1]) and len(given) == 2:
            return self._product(given[0], given[1][1])
        if target in FUNCTIONS and len(given) == 1:
            return self._add_node(FUNCTIONS[target], self._node(given[0]))
        if target in (aten.add.Tensor, aten.add.Scalar):
            return self._sum(*given)
        if target in (aten.mul.Tensor, aten.mul.Scalar):
            return self._multiply(*given)
        if target is aten.div.Tensor:
            return self._divide(*given)
        if target is aten.neg.default:
            return self._multiply(given[0], -1.0)
        if target is aten.rsub.Scalar:
            if given[1] == 1:
                return self._add_node("complement", self._node(given[0]))
            return self._sum(self._multiply(given[0], -1.0), given[1])
        if target is aten.sub.Tensor:
            if _is_number(given[1]):
                return self._sum(given[0], -given[1])
            return self._add_node("subtract", self._node(given[0]), self._node(given[1]))
        if (found := self._threshold(target, given)) is not None:
            return found
        raise self.refusal(f"the operation {getattr(target, '__name__', target)}")

    def _threshold(self, target: Any, given: list[Any]) -> Value | None:
        """Hard limits, thresholds and spikes."""
        if target is aten.clamp.default and tuple(given[1:]) == (0.0, 1.0):
            return self._add_node("clip", self._node(given[0]))
        if target is aten.gt.Scalar:
            return self._add_node("above", self._node(given[0]), bias=float(given[1]))
        if target in CONSTANTS:
            return CONSTANTS[target]
        if target is aten.where.self and given[1:] == [1.0, 0.0] and self._is("above", given[0]):
            return given[0]
        if target is torch.ops.recurra.spike.default and given[3] == 1:
            return self._add_node(f"spike_{given[1]}", self._node(given[0]), bias=float(given[2]))
        return None

    def _is(self, operation: str, value: Any) -> bool:
        return isinstance(value, str) and value in self.nodes and self.nodes[value].operation == operation

    def _product(self, operand: Any, weight: str) -> Pending:
        if weight in self.shared:
            raise self.refusal(f"a matrix {weight} that several products share")
        rows, columns = self.cell.get_parameter(weight).shape
        name = operand if operand == "x" else self._node(operand)
        if (rows, columns) != (UNITS, INPUTS if name == "x" else UNITS):
            raise self.refusal(f"a matrix {weight} of another size")
        return Pending({name: weight})

    def _sum(self, a: Any, b: Any) -> Value:
        a, b = (b, a) if isinstance(b, Pending) and not isinstance(a, Pending) else (a, b)
        if isinstance(a, Pending):
            if isinstance(b, (int, float)):
                return Pending(a.weights, a.bias, a.shift + b)
            if _is_weight(b) and not a.bias and b[1] not in self.shared:
                return Pending(a.weights, b[1], a.shift)
            if isinstance(b, Pending) and not a.weights.keys() & b.weights.keys() and not (a.bias and b.bias):
                return Pending(a.weights | b.weights, a.bias or b.bias, a.shift + b.shift)
        a, b = (b, a) if _is_number(a) else (a, b)
        if _is_number(b):
            return self._add_node("plus", self._node(a), bias=float(b))
        return self._add_node("add", self._node(a), self._node(b))

    def _multiply(self, a: Any, b: Any) -> str:
        a, b = (b, a) if _is_weight(a) or _is_number(a) else (a, b)
        if _is_number(b):
            return self._add_node("times", self._node(a), bias=float(b))
        if not _is_weight(b) or b[1] in self.shared or self.cell.get_parameter(b[1]).shape == (1,):
            return self._add_node("multiply", self._node(a), self._node(b))
        if self.cell.get_parameter(b[1]).shape != (UNITS,):
            raise self.refusal(f"a vector {b[1]} of another size")
        name = self._add_node("scale", self._node(a))
        self.origin[name] = {"scale": b[1]}
        return name

    def _divide(self, a: Any, b: Any) -> str:
        if _is_number(b):
            return self._multiply(a, 1 / b)
        return self._add_node("divide", self._node(a), self._node(b))

    def _node(self, value: Any) -> str:
        """The name of a value as something that nodes may read."""
        if isinstance(value, str) and value != "x":
            return value
        if _is_weight(value):
            return self._learned(value[1])
        if not isinstance(value, Pending):
            raise self.refusal("x or a number where a value of the step is expected")
        bias = self.cell.get_parameter(value.bias).detach() if value.bias else torch.zeros(1)
        name = self._add_node("affine", *value.weights, bias=float(bias.mean()) + value.shift)
        self.origin[name] = value.weights | ({"bias": value.bias} if value.bias else {})
        return name

    def _learned(self, weight: str) -> str:
        """The node of a vector with one number per unit, or of one number for all."""
        if weight not in self.learned:
            value = self.cell.get_parameter(weight).detach()
            if tuple(value.shape) not in ((UNITS,), (1,)):
                raise self.refusal(f"a weight {weight} where a value of the step is expected")
            name = self._add_node("number" if value.shape == (1,) else "vector", bias=float(value.mean()))
            self.learned[weight], self.origin[name] = name, {"vector": weight}
        return self.learned[weight]

    def _add_node(self, operation: str, *inputs: str, bias: float = 0.0) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes[name] = Node(operation, inputs, bias)
        return name


def _is_weight(value: Any) -> TypeGuard[tuple[str, str]]:
    return isinstance(value, tuple) and value[0] == "weight"


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
