"""Registered cells as nodes of a genome, for cells that its operations cannot say.

Such a node has the operation "cell:<name>" and one input, x or another value. The evolved cell carries its states.
"""

from functools import cache

from torch import Tensor, nn

from recurra.affine import Affine
from recurra.cell import TIME, Cell, State
from recurra.cells import find

PREFIX = "cell:"


def is_cell(operation: str) -> bool:
    """Whether an operation is a registered cell."""
    return operation.startswith(PREFIX)


def cell_class(operation: str) -> type[Cell]:
    """The class of "cell:<name>"; an unknown name is an `UnknownNameError`."""
    return find(operation.removeprefix(PREFIX))


@cache
def _sample(kind: type[Cell]) -> Cell:
    return kind(3, 4)


def state_names(node: str, operation: str) -> tuple[str, ...]:
    """The names under which the evolved cell carries the states of a node."""
    kind = cell_class(operation)
    return tuple(f"{node}_{state}" for state in _sample(kind).states)


def asks_for_time(operation: str) -> bool:
    """Whether the step of the cell takes the time."""
    return TIME in _sample(cell_class(operation)).keyword_inputs()


@cache
def _weights(kind: type[Cell], input_size: int, hidden_size: int) -> int:
    return sum(weight.numel() for weight in WholeCell(kind, input_size, hidden_size).parameters())


def count_weights(operation: str, input_size: int, hidden_size: int) -> int:
    """The number of weights of a node."""
    return _weights(cell_class(operation), input_size, hidden_size)


class WholeCell(nn.Module):
    """The cell of a node; where its output has another size than the hidden one, a matrix makes it that."""

    def __init__(self, kind: type[Cell], input_size: int, hidden_size: int):
        super().__init__()
        self.cell = kind(input_size, hidden_size)
        size = self.cell.output_size
        self.readout = None if size == hidden_size else Affine({"output": size}, hidden_size, True)

    def carried(self, node: str) -> dict[str, State]:
        """Name in the evolved cell → state."""
        return {f"{node}_{state.name}": state for state in self.cell.carried if state.name != TIME}

    def starts(self, node: str) -> dict[str, float | str]:
        """Name in the evolved cell → its first value: a number, or the path of a tensor."""
        found = self.cell.starts.items()
        return {f"{node}_{s}": f"{node}.cell.{start}" if isinstance(start, str) else start for s, start in found}

    def forward(self, x: Tensor, *states: Tensor, **time: Tensor) -> tuple[Tensor, ...]:
        """The output in the hidden size, then the new states."""
        made = self.cell.step(x, *states, **time)
        made = made if isinstance(made, tuple) else (made,)
        output, *new = made if len(made) > len(states) else (made[0], *made)
        return (output if self.readout is None else self.readout(output)), *new
