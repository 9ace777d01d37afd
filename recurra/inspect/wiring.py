"""What feeds what in a network: the levels of a drawing and the links between them.

The links inside a stack are not written down a second time here. The stack runs, with a stand-in for each of its layers
that puts out a number naming it; the numbers that reach a layer tell what it reads, and whether side by side or added.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import TIME, Cell
from ..engine.latex import symbol
from ..layers import Recurrent
from ..models.elmo.mix import ScalarMix
from ..models.hierarchical import HierarchicalRNN
from ..models.language.stack import Stack
from ..models.narx import NARX
from .step_recorder import direction_pair

INPUT = -1  # x among the sources of a level


@dataclass(frozen=True)
class Level:
    """One level of the drawing: a recurrent layer in one or two directions, or a module applied step by step."""

    label: str
    cell: Cell | None = None
    directions: int = 1
    separate: bool = False  # each direction has its own stack
    reads: tuple[int, ...] = ()  # the levels it reads at the same step, side by side
    delayed: tuple[int, ...] = ()  # the levels it reads at the step before
    residual: bool = False  # what it reads is added to its output
    period: int = 1  # it updates at every k-th step
    dilation: int = 1  # step t continues the state of step t - dilation
    link_labels: tuple[str, ...] = ()  # of `reads`, where links have weights

    @property
    def delays(self) -> tuple[int, ...]:
        if self.cell is None:
            return ()
        own = next((state.delays for state in self.cell.carried if state.delays), (1,))
        return tuple(delay * self.dilation for delay in own)

    def states(self, when: str) -> str:
        names = [] if self.cell is None else [state.name for state in self.cell.carried if state.name != TIME]
        return r",\,".join(symbol(name, when) for name in names[:2])


@dataclass
class Network:
    """The levels, bottom first, and those that y consists of."""

    levels: list[Level] = field(default_factory=list)
    output: tuple[int, ...] = (INPUT,)

    @property
    def skips(self) -> bool:
        """Whether a link passes a level by."""
        found = [(number, source) for number, level in enumerate(self.levels) for source in level.reads]
        found += [(len(self.levels), source) for source in self.output]
        return any(number - source > 1 for number, source in found) or any(level.residual for level in self.levels)


# ---------------------------------------------------------------------------------------------------- probing a stack


@dataclass(frozen=True)
class StackLinks:
    """What each layer of a stack reads, and what the stack puts out: parts side by side, each a sum of sources."""

    reads: tuple[tuple[frozenset[int], ...], ...]
    output: tuple[frozenset[int], ...]

    def residual(self, number: int) -> bool:
        """Whether the output of a layer is added to what it read, before anything else reads it."""
        later = [part for parts in (*self.reads[number + 1 :], self.output) for part in parts]
        return any(part | {number} in later for part in self.reads[number])


def links_of(stack: Recurrent | Stack) -> StackLinks:
    """Run a stack on numbers that name their sources: x is 1, the output of layer n is 2^(n + 1)."""
    seen: list[tuple[frozenset[int], ...]] = []

    def stand_in(width: int, number: int, below: Tensor) -> Tensor:
        seen.append(_sources(below))
        return torch.full((1, 1, width), 2.0 ** (number + 1), dtype=torch.float64)

    training, stack.training = stack.training, False  # dropout would mix the numbers
    x = torch.ones(1, 1, stack.input_size, dtype=torch.float64)
    try:
        y = _run_recurrent(stack, x, stand_in) if isinstance(stack, Recurrent) else _run_stack(stack, x, stand_in)
    finally:
        stack.training = training
    return StackLinks(tuple(seen), _sources(y))


def _run_recurrent(layer: Recurrent, x: Tensor, stand_in: Callable[..., Tensor]) -> Tensor:
    each = 1 if layer.bidirectional == "separate" else layer.directions
    widths = [each * cell.output_size for cell in layer.cell_list[:: layer.directions]]
    return layer._stack(x, lambda number, below: stand_in(widths[number], number, below))


def _run_stack(stack: Stack, x: Tensor, stand_in: Callable[..., Tensor]) -> Tensor:
    layers = stack.layer_list

    def call(number: int, below: Tensor, *_: Any, **__: Any) -> tuple[Tensor, None]:
        return stand_in(layers[number].output_size, number, below), None

    for number, layer in enumerate(layers):
        layer.forward = partial(call, number)
    try:
        return stack(x)[0][-1]
    finally:
        for layer in layers:
            del layer.forward


def _sources(value: Tensor) -> tuple[frozenset[int], ...]:
    """The sources in each column, by the binary digits of its number; equal neighbours are one part."""
    parts: list[frozenset[int]] = []
    for number in value.flatten().tolist():
        digits = int(number)
        part = frozenset(bit - 1 for bit in range(digits.bit_length()) if digits >> bit & 1)
        if part not in parts:
            parts.append(part)
    return tuple(parts)


# ---------------------------------------------------------------------------------------------------- building


def network_of(model: nn.Module) -> Network:
    """The levels of a model, bottom first, with the links between them."""
    network = Network()
    network.output = _add(network, model, (INPUT,))
    return network


def _add(network: Network, model: nn.Module, sources: tuple[int, ...]) -> tuple[int, ...]:
    """Append the levels of a module that reads `sources`; return the levels that its output consists of."""
    levels = network.levels
    if isinstance(model, (Recurrent, Stack)):
        return _add_stack(network, model, sources)
    if isinstance(model, HierarchicalRNN):
        return _add_hierarchy(network, model, sources)
    if isinstance(model, NARX):
        delays = ",".join(map(str, model.input_delays))
        levels.append(Level(f"x delayed by {delays}", reads=sources))
        return _add(network, model.recurrent, (len(levels) - 1,))
    if isinstance(model, Cell):
        levels.append(replace(_level(model), reads=sources))
        return (len(levels) - 1,)
    if isinstance(model, ScalarMix):
        mixed = tuple(range(max(0, len(levels) - model.layers), len(levels)))
        names = tuple(f"s_{{{k}}}" for k in range(model.layers))[-len(mixed) :]
        levels.append(Level("ScalarMix", reads=mixed, link_labels=names))
        return (len(levels) - 1,)
    if not any(isinstance(part, Cell) for part in model.modules()):
        if not any(True for _ in model.parameters()):
            return sources
        levels.append(Level(type(model).__name__, reads=sources))
        return (len(levels) - 1,)
    return _add_children(network, model, sources)


def _add_children(network: Network, model: nn.Module, sources: tuple[int, ...]) -> tuple[int, ...]:
    """Modules run in the order in which they were made."""
    pair = direction_pair(model)
    inside = {id(part) for half in pair for part in half.modules()} if pair else set()
    for child in model.children():
        if not any(id(part) in inside for part in child.modules()):
            sources = _add(network, child, sources)
        elif pair is not None:  # draws both directions; the module of the other one is skipped
            first = len(network.levels)
            sources = _add(network, pair[0], sources)
            for number in range(first, len(network.levels)):
                network.levels[number] = replace(network.levels[number], directions=2, separate=True)
            pair = None
    return sources


def _add_stack(network: Network, stack: Recurrent | Stack, sources: tuple[int, ...]) -> tuple[int, ...]:
    links, first = links_of(stack), len(network.levels)

    def absolute(parts: tuple[frozenset[int], ...]) -> tuple[int, ...]:
        found = [max(part) for part in parts]  # a sum leaves the network at its last term
        return tuple(s for n in found for s in (sources if n == INPUT else (first + n,)))

    if isinstance(stack, Recurrent):
        separate = stack.bidirectional == "separate"
        cells = zip(stack.cell_list[:: stack.directions], stack.dilation, strict=True)
        made = [_level(cell, stack.directions, separate, dilation) for cell, dilation in cells]
    else:
        made = [_level(layer.cell_list[0], dilation=layer.dilation[0]) for layer in stack.layer_list]
    for number, level in enumerate(made):
        reads, residual = absolute(links.reads[number]), links.residual(number)
        network.levels.append(replace(level, reads=reads, residual=residual))
    return absolute(links.output)


def _add_hierarchy(network: Network, model: HierarchicalRNN, sources: tuple[int, ...]) -> tuple[int, ...]:
    first = len(network.levels)
    for number, read in enumerate(model.reads):
        now = tuple(first + m for m in read if m < number and model.same_step)
        before = tuple(first + m for m in read if first + m not in now)
        level = _level(model.cell(number))
        network.levels.append(replace(level, reads=(*sources, *now), delayed=before, period=model.periods[number]))
    return tuple(range(first, len(network.levels)))


def _level(cell: Cell, directions: int = 1, separate: bool = False, dilation: int = 1) -> Level:
    return Level(f"{type(cell).__name__} {cell.hidden_size}", cell, directions, separate, dilation=dilation)


def steps_to_show(network: Network, steps: int, most: int) -> int:
    """At least one step more than the longest delay that fits and than the longest period, up to `most`."""
    longest = max((delay for level in network.levels for delay in level.delays if delay < most), default=1)
    slowest = max((level.period for level in network.levels), default=1)
    wanted = max(steps, longest + 1 if longest > 1 else 1, slowest + 1 if slowest > 1 else 1)
    return min(wanted, most)
