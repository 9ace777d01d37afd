"""NARX and hierarchical networks as a layer of one cell, whose states hold the delay lines or the slow levels.

The layer shares the weights of the network and steps its cells: no equation is written again. Learners that go forward
step by step (RTRL and all others on `StepFunction`) read a network in this form.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..cell import TIME, Cell
from ..engine.trace import trace
from ..errors import OptionError
from ..layers import Recurrent
from .hierarchical import HierarchicalRNN
from .narx import NARX


def as_layer(model: NARX | HierarchicalRNN) -> Recurrent:
    """A layer of one cell with the same outputs as the network and the same parameters."""
    cell = _narx_cell(model) if isinstance(model, NARX) else _hierarchical_cell(model)
    layer = Recurrent(cell, model.input_size, 1, network=model)
    weight = next(model.parameters())
    return layer.to(weight.device).train(model.training)


def _narx_cell(model: NARX) -> type[Cell]:
    return NARXWithInputs if any(model.input_delays) else NARXOfPresentInput


class NARXOfPresentInput(Cell):
    """A NARX network that reads x_t alone: the state is the delay line of its outputs."""

    states = ("y",)

    def __init__(self, input_size: int, hidden_size: int, network: NARX):
        super().__init__(input_size, network.output_size, delays={"y": network.output_delays})
        self.network = network.cell

    def step(self, x: Tensor, y: tuple[Tensor, ...]) -> Tensor:
        return self.network.step(x, y)


class NARXWithInputs(Cell):
    """A NARX network with delayed inputs: the states are the delay lines of its outputs and of its inputs."""

    states = ("y", "past")

    def __init__(self, input_size: int, hidden_size: int, network: NARX):
        earlier = tuple(k for k in network.input_delays if k)
        super().__init__(
            input_size,
            network.output_size,
            sizes={"past": input_size},
            delays={"y": network.output_delays, "past": earlier},
        )
        self.network = network.cell
        self.place = tuple(earlier.index(k) if k else None for k in network.input_delays)  # None: the present input

    def step(self, x: Tensor, y: tuple[Tensor, ...], past: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        taps = torch.cat([x if place is None else past[place] for place in self.place], dim=-1)
        return self.network.step(taps, y), x


def _hierarchical_cell(model: HierarchicalRNN) -> type[Cell]:
    """A cell class with the states of all levels, and the outputs that are no state."""
    names = [name for level in range(len(model.levels)) for name in _level_states(model.cell(level), level)]
    return type("HierarchicalStep", (_HierarchicalStep,), {"states": tuple(names)})


def _level_states(cell: Cell, level: int) -> list[str]:
    own = [f"{state.name}_{level}" for state in cell.carried if state.name != TIME]
    return [*own, f"output_{level}"] if _holds_output(cell) else own


def _holds_output(cell: Cell) -> bool:
    """Whether what a level puts out between two ticks is not its first state: another value, or another start."""
    output, first = trace(cell).results()[:2]
    return output is not first or cell.carried[0].name in cell.starts


class _HierarchicalStep(Cell):
    """One step of a hierarchical network. A level that does not tick keeps its states."""

    states = ("h_0",)

    def __init__(self, input_size: int, hidden_size: int, network: HierarchicalRNN):
        sizes: dict[str, Any] = {f"output_{level}": width for level, width in enumerate(network.widths)}
        for level in range(len(network.periods)):
            _check_level(network.cell(level))
            sizes |= {f"{state.name}_{level}": state.axes or state.size for state in network.cell(level).carried}
        sizes = {name: size for name, size in sizes.items() if name in self.states}
        super().__init__(input_size, 1, sizes=sizes, output_size=network.output_size)
        self.levels = nn.ModuleList(network.levels)
        self.periods, self.reads, self.same_step = network.periods, network.reads, network.same_step
        self.held = tuple(f"output_{level}" in self.states for level in range(len(self.periods)))
        for level in range(len(self.periods)):
            for state, start in network.cell(level).starts.items():
                self.start(f"{state}_{level}", start)

    def step(self, x: Tensor, *states: Tensor, t: Tensor) -> tuple[Tensor, ...]:
        cells, outputs = self._split(states)
        seen, after = list(outputs), []
        for level, period in enumerate(self.periods):
            cell: Any = self.levels[level]
            ticks = torch.floor((t + 1.0) / period)
            now = ticks * period == t + 1.0  # (B, 1)
            inputs = torch.cat([x, *(seen[m] for m in self.reads[level])], dim=-1)
            clock = {TIME: ticks - 1.0} if TIME in cell.keyword_inputs() else {}
            returned = cell.step(inputs, *cells[level], **clock)
            values = list(returned) if isinstance(returned, tuple) else [returned]
            first = values[0] if len(values) > len(cell.states) else cell.carried[0].as_row(values[0])
            outputs[level] = torch.where(now, first, outputs[level])
            new = zip(values[-len(cell.states) :], cells[level], strict=True)
            after += [torch.where(now.view(-1, *[1] * (old.dim() - 1)), value, old) for value, old in new]
            if self.held[level]:
                after.append(outputs[level])
            if self.same_step:
                seen[level] = outputs[level]
        return torch.cat(outputs, dim=-1), *after

    def _split(self, states: tuple[Tensor, ...]) -> tuple[list[list[Tensor]], list[Tensor]]:
        """The states of every level's cell, and every level's last output."""
        rest, cells, outputs = list(states), [], []
        for level, held in enumerate(self.held):
            cell: Any = self.levels[level]
            count = len(cell.states)
            cells.append(rest[:count])
            outputs.append(rest[count] if held else cell.carried[0].as_row(rest[0]))
            rest = rest[count + held :]
        return cells, outputs


def _check_level(cell: Cell) -> None:
    """Refuse, by name, what a level does with its states that a held state does not show."""
    found = {
        "delayed states": any(state.delays for state in cell.carried),
        "a learned start": any(isinstance(start, str) for start in cell.starts.values()),
        "dropout or noise": bool(cell.masks),
        "modifiers": bool(len(cell.modifiers)),
    }
    for what, is_there in found.items():
        if is_there:
            raise OptionError("model", f"a level of {type(cell).__name__} with {what}", "levels without; BPTT takes it")
