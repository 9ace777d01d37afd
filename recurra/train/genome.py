"""A memory cell as a mutable graph: nodes, their inputs, and the memories.

A genome builds into an ordinary `rc.Cell`: its nodes become the lines of a `step`, so it traces, compiles and prints
equations like a hand-written cell. It is plain data and is saved as JSON.
"""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recurra.affine import Affine
from recurra.argument_checks import true_or_false
from recurra.cell import Cell, register
from recurra.cells.surrogates import DERIVATIVES
from recurra.errors import InputError
from recurra.train.cell_nodes import WholeCell, asks_for_time, cell_class, count_weights, is_cell, state_names

Written = Callable[[str, list[str], float], str]


def _function(call: str) -> tuple[int, int, Written]:
    return 1, 1, lambda name, inputs, number: call.format(inputs[0], number)


def _learned(name: str, inputs: list[str], number: float) -> str:
    return f"self.{name}.expand_as(h)"  # one row per sequence, so that it can be a state


#: operation → (fewest inputs, most inputs, how it is written with the number of the node)
OPERATIONS: dict[str, tuple[int, int, Written]] = {
    "affine": (1, 8, lambda name, inputs, number: f"self.{name}({', '.join(inputs)})"),
    "sigmoid": _function("torch.sigmoid({0})"),
    "tanh": _function("torch.tanh({0})"),
    "relu": _function("torch.relu({0})"),
    "add": (2, 4, lambda name, inputs, number: " + ".join(inputs)),
    "multiply": (2, 4, lambda name, inputs, number: " * ".join(inputs)),
    "subtract": (2, 2, lambda name, inputs, number: " - ".join(inputs)),
    "divide": (2, 2, lambda name, inputs, number: " / ".join(inputs)),
    "complement": _function("1 - {0}"),
    "scale": (1, 1, lambda name, inputs, number: f"self.{name} * {inputs[0]}"),
    "vector": (0, 0, _learned),
    "number": (0, 0, _learned),
    "times": _function("{1!r} * {0}"),
    "plus": _function("{0} + {1!r}"),
    "clip": _function("torch.clamp({0}, 0.0, 1.0)"),
    **{name: _function(f"torch.{name}({{0}})") for name in ("exp", "expm1", "sqrt", "sin", "cos")},
    **{name: _function(f"torch.nn.functional.{name}({{0}})") for name in ("silu", "softplus")},
    "above": _function("torch.where({0} > {1!r}, torch.ones_like({0}), torch.zeros_like({0}))"),
    **{f"spike_{name}": _function(f"torch.ops.recurra.spike({{0}}, {name!r}, {{1!r}}, 1.0)") for name in DERIVATIVES},
}
ACTIVATIONS = ("sigmoid", "tanh", "relu")
NAME = re.compile(r"[a-z][a-z0-9_]{0,15}")  # names become Python source: nothing else is allowed
RESERVED = {"self", "torch", "x", "h", "t"}
LARGEST = 60


@dataclass(frozen=True)
class Node:
    """One operation: one of `OPERATIONS`, or "cell:<name>", a registered cell as a whole.

    `bias` is the initial bias of an affine node, the first value of a learned vector or number, or the fixed number of
    `times`, `plus` and `above`; of spikes it is the slope.
    """

    operation: str
    inputs: tuple[str, ...]
    bias: float = 0.0


@dataclass(frozen=True)
class Genome:
    """The graph of a cell: nodes in topological order, each reading only x, states and earlier nodes.

    States are `h`, the previous output, and the memories. `memories[c]` is the node whose value becomes c, `output` the
    node whose value becomes h. Cycles exist only through states.

    **Example**

    >>> cell = rc.train.lstm_genome().cell_class()
    >>> y, state = rc.Recurrent(cell, 3, 4)(torch.randn(5, 2, 3))
    """

    nodes: dict[str, Node]
    output: str
    memories: dict[str, str]

    def __post_init__(self):
        if not 0 < len(self.nodes) <= LARGEST:
            raise InputError("genome", f"{len(self.nodes)} nodes", f"1 to {LARGEST}")
        known = {"x", "h", *self.memories}
        for name, node in self.nodes.items():
            self._check_node(name, node, known)
            states = state_names(name, node.operation) if is_cell(node.operation) else ()
            if not known.isdisjoint(states):
                raise InputError("genome", f"{name} beside {', '.join(states)}", "names of their own for its states")
            known |= {name, *states}
        for state, source in (("h", self.output), *self.memories.items()):
            if source not in self.nodes:
                raise InputError("genome", f"{state} takes its value from {source!r}", "a node")
        for state in self.memories:
            _check_name(state, {*self.nodes, *self.cell_states(), "x", "h"})

    @staticmethod
    def _check_node(name: str, node: Node, known: set[str]) -> None:
        _check_name(name, known)
        if is_cell(node.operation):
            cell_class(node.operation)  # an unknown name raises
        elif node.operation not in OPERATIONS:
            raise InputError("genome", f"operation {node.operation!r}", f"one of {', '.join(OPERATIONS)}")
        fewest, most = arity(node.operation)
        if not fewest <= len(node.inputs) <= most:
            raise InputError("genome", f"{name}: {node.operation} of {len(node.inputs)}", f"{fewest} to {most} inputs")
        if node.operation == "affine" and len(set(node.inputs)) != len(node.inputs):
            raise InputError("genome", f"{name} reads {node.inputs}", "each input once")
        if not math.isfinite(node.bias):
            raise InputError("genome", f"{name}: the number {node.bias}", "finite numbers")
        late = [source for source in node.inputs if source not in known]
        weighted = node.operation == "affine" or is_cell(node.operation)
        if late or ("x" in node.inputs and not weighted):
            raise InputError("genome", f"{name} reads {node.inputs}", "states, nodes before it, and x through weights")

    def cells(self) -> dict[str, str]:
        """The nodes that are whole cells: name → operation."""
        return {name: node.operation for name, node in self.nodes.items() if is_cell(node.operation)}

    def cell_states(self) -> tuple[str, ...]:
        """The states of these cells, in order."""
        return tuple(state for name, operation in self.cells().items() for state in state_names(name, operation))

    # ------------------------------------------------------------------------------------------ as a cell

    def source(self) -> str:
        """The step as Python source."""
        inner = self.cell_states()
        time = ["*", "t"] if any(map(asks_for_time, self.cells().values())) else []
        lines = [f"def step(self, {', '.join(('x', 'h', *self.memories, *inner, *time))}):"]
        for name, node in self.nodes.items():
            if is_cell(node.operation):
                states = state_names(name, node.operation)
                read = [*node.inputs, *states, *(["t=t"] if asks_for_time(node.operation) else [])]
                lines.append(f"    {', '.join((name, *states))} = self.{name}({', '.join(read)})")
            else:
                lines.append(f"    {name} = {OPERATIONS[node.operation][2](name, list(node.inputs), node.bias)}")
        lines.append(f"    return {', '.join((self.output, *self.memories.values(), *inner))}")
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:10]

    def cell_class(self) -> type[Cell]:
        """The genome as a `Cell` class."""
        space: dict[str, Any] = {"torch": torch}
        exec(compile(self.source(), f"<evolved cell {self.digest}>", "exec"), space)
        body = {
            "states": ("h", *self.memories, *self.cell_states()),
            "step": space["step"],
            "genome": self,
            "__doc__": "An evolved cell.",
        }
        return type(f"Evolved_{self.digest}", (GraphCell,), body)

    def register(self, name: str) -> type[Cell]:
        """Register the cell as `name`, for `rc.layer(name, …)`."""
        return register(name)(self.cell_class())

    def equations(self) -> str:
        """LaTeX, derived from the step."""
        return self.cell_class().equations()

    def weights(self, input_size: int, hidden_size: int) -> int:
        """The number of weights of a cell of this size."""
        affine = [node.inputs for node in self.nodes.values() if node.operation == "affine"]
        vectors = sum(node.operation in ("scale", "vector") for node in self.nodes.values())
        numbers = sum(node.operation == "number" for node in self.nodes.values())
        deep = sum(sum(input_size if i == "x" else hidden_size for i in ins) + 1 for ins in affine)
        inner = sum(
            count_weights(node.operation, input_size if node.inputs == ("x",) else hidden_size, hidden_size)
            for node in self.nodes.values()
            if is_cell(node.operation)
        )
        return hidden_size * (deep + vectors) + numbers + inner

    # ------------------------------------------------------------------------------------------ as data

    def to_dict(self) -> dict[str, Any]:
        """The genome in values that JSON has."""
        nodes = [[name, node.operation, list(node.inputs), node.bias] for name, node in self.nodes.items()]
        return {"nodes": nodes, "output": self.output, "memories": dict(self.memories)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Genome":
        """A genome from what `to_dict` gave."""
        try:
            nodes = {str(n): Node(str(op), tuple(map(str, inputs)), float(b)) for n, op, inputs, b in data["nodes"]}
            memories = {str(state): str(source) for state, source in data["memories"].items()}
            return cls(nodes, str(data["output"]), memories)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("genome", f"data that is no genome ({error})", "what Genome.to_dict gives") from error

    def save(self, path: str | Path) -> None:
        """Write the genome to a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> "Genome":
        """Read a genome from a JSON file."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError("path", str(path), f"a genome as JSON ({error})") from error
        return cls.from_dict(data)

    def __hash__(self) -> int:
        return hash(self.digest)


class GraphCell(Cell):
    """Base class of cells built from genomes; makes their weights."""

    genome: Genome

    def __init__(self, input_size: int, hidden_size: int):
        cells = {
            name: WholeCell(cell_class(operation), self._read_size(name, input_size, hidden_size), hidden_size)
            for name, operation in self.genome.cells().items()
        }
        inner = {state: spec for name, cell in cells.items() for state, spec in cell.carried(name).items()}
        sizes = {state: spec.axes or spec.size for state, spec in inner.items()}
        delays = {state: spec.delays for state, spec in inner.items() if spec.delays}
        super().__init__(input_size, hidden_size, sizes=sizes, delays=delays)
        for name, cell in cells.items():
            self.add_module(name, cell)
            for state, start in cell.starts(name).items():
                self.start(state, start)
        for name, node in self.genome.nodes.items():
            if node.operation == "affine":
                widths = {source: input_size if source == "x" else hidden_size for source in node.inputs}
                affine = Affine(widths, hidden_size, True)
                nn.init.constant_(affine.b, node.bias)
                self.add_module(name, affine)
            elif node.operation == "scale":
                setattr(self, name, self.vector(fill=1.0))
            elif node.operation in ("vector", "number"):
                setattr(self, name, self.vector(1 if node.operation == "number" else None, fill=node.bias))

    def _read_size(self, name: str, input_size: int, hidden_size: int) -> int:
        return input_size if self.genome.nodes[name].inputs == ("x",) else hidden_size


def arity(operation: str) -> tuple[int, int]:
    """The fewest and the most inputs of an operation."""
    return (1, 1) if is_cell(operation) else OPERATIONS[operation][:2]


def _check_name(name: str, taken: Iterable[str]) -> None:
    if not NAME.fullmatch(name) or name in RESERVED or name in taken or hasattr(Cell, name):
        raise InputError("genome", f"a name {name!r}", "short lower-case names, each used once")


# ---------------------------------------------------------------------------------------------------- known cells


def lstm_genome(forget: bool = True) -> Genome:
    """The LSTM, or without its forget gate the original one: c = c + i ⊙ g.

    **Example**

        >>> layer = rc.Recurrent(rc.train.lstm_genome().cell_class(), 2, 4)
        >>> layer(torch.randn(5, 3, 2))[0].shape
        torch.Size([5, 3, 4])
    """
    true_or_false("forget", forget)
    nodes = {}
    for gate in ("i", "f", "g", "o") if forget else ("i", "g", "o"):
        nodes[f"a_{gate}"] = Node("affine", ("x", "h"), 1.0 if gate == "f" else 0.0)
        nodes[f"n_{gate}"] = Node("tanh" if gate == "g" else "sigmoid", (f"a_{gate}",))
    nodes["written"] = Node("multiply", ("n_i", "n_g"))
    if forget:
        nodes["kept"] = Node("multiply", ("n_f", "c"))
    nodes["total"] = Node("add", ("kept" if forget else "c", "written"))
    nodes["squashed"] = Node("tanh", ("total",))
    nodes["shown"] = Node("multiply", ("n_o", "squashed"))
    return Genome(nodes, "shown", {"c": "total"})


def rnn_genome() -> Genome:
    """The plain RNN: h = tanh(W h + U x + b).

    **Example**

        >>> layer = rc.Recurrent(rc.train.rnn_genome().cell_class(), 2, 4)
        >>> layer(torch.randn(5, 3, 2))[0].shape
        torch.Size([5, 3, 4])
    """
    return Genome({"a": Node("affine", ("x", "h")), "n": Node("tanh", ("a",))}, "n", {})
