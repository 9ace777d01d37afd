"""Records every step of every cell while a model runs: inputs, states and named values.

The plain loop calls two functions of `engine/reference.py` for each step, `advance` and `_push`; inside
`StepRecorder.recording()` both are wrapped. That records a layer deep inside a model, a stack, a bidirectional layer
and a hierarchy of cells alike. The recorded states are tensors of the autograd graph, so a gradient with respect to one
of them is a total derivative. Masks and noise are held at their mean.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import TIME, Cell
from ..engine import reference
from ..engine.backend import set_backend
from ..engine.found_draws import mean_draws
from ..engine.traced_step import BoundStep, bind_step
from ..errors import InputError
from ..layers import Recurrent
from ..ragged import reverse


@dataclass(eq=False)
class CellRun:
    """The recorded steps of one cell, in the order in which the cell ran."""

    name: str
    cell: Cell
    backward: bool  # the cell reads the sequence from its end
    x: list[Tensor] = field(default_factory=list)  # per step (B, D): the input of the cell itself
    before: list[tuple[Tensor, ...]] = field(default_factory=list)  # per step: the carried states it starts from
    states: dict[str, list[Tensor]] = field(default_factory=dict)  # name → per step (B, size): the new state
    values: dict[str, list[Tensor]] = field(default_factory=dict)  # name → per step: a named value, such as a gate

    def __len__(self) -> int:
        return len(self.x)

    def state(self, name: str, lengths: Tensor | None = None) -> Tensor:
        """(T, B, size), in the order of the sequence."""
        return self.in_sequence_order(self.states[name], lengths)

    def value(self, name: str, lengths: Tensor | None = None) -> Tensor:
        """(T, B, size), in the order of the sequence."""
        return self.in_sequence_order(self.values[name], lengths)

    def in_sequence_order(self, steps: Sequence[Tensor], lengths: Tensor | None = None) -> Tensor:
        stacked = torch.stack(list(steps))
        return reverse(stacked, lengths) if self.backward else stacked

    def points(self) -> Tensor:
        """The carried states before every step, flattened as in `DynamicalSystem.of`: (T, B, p)."""
        return torch.stack([torch.cat([s.reshape(len(s), -1) for s in states], dim=-1) for states in self.before])


class StepRecorder:
    """Records the cells of a model while they run; `named_values` records gates and candidates too."""

    def __init__(self, model: nn.Module, named_values: bool = False):
        self.named_values = named_values
        self.run_of = {id(run.cell): run for run in cells_of(model)}
        if not self.run_of:
            raise InputError("model", type(model).__name__, "a model with a recurrent layer or cell inside")
        self.graphs: dict[int, BoundStep] = {}
        self.current: CellRun | None = None

    def runs(self) -> list[CellRun]:
        """The cells that ran."""
        return [run for run in self.run_of.values() if len(run)]

    @contextmanager
    def recording(self) -> Iterator["StepRecorder"]:
        """Inside this context, scans use the plain loop and are recorded. The recording is process-wide."""
        outer: Any = (reference.advance, reference._push)

        def advance(cell: Cell, x: Tensor, state: Sequence[Tensor], masks: dict, graph: BoundStep | None = None) -> Any:
            self.current = self.run_of.get(id(cell))
            if self.current is not None:
                self.current.x.append(x)
                self.current.before.append(tuple(state))
                masks = mean_draws(cell, len(x), x)  # as in `DynamicalSystem.of`: without noise
                graph = self._graph(cell) if self.named_values else graph
            y, carried, named = outer[0](cell, x, state, masks, graph)
            if self.current is not None:
                for name, value in named.items():
                    self.current.values.setdefault(name, []).append(value)
            return y, carried, named

        def push(spec: Any, old: Tensor, new: Tensor) -> Tensor:
            if self.current is not None and spec.name != TIME:
                self.current.states.setdefault(spec.name, []).append(new)
            return outer[1](spec, old, new)

        with set_backend("reference"):
            reference.advance, reference._push = advance, push  # pyrefly: ignore
            try:
                yield self
            finally:
                reference.advance, reference._push = outer

    def _graph(self, cell: Cell) -> BoundStep:
        if id(cell) not in self.graphs:
            self.graphs[id(cell)] = bind_step(cell)
        return self.graphs[id(cell)]


def cells_of(model: nn.Module) -> list[CellRun]:
    """An empty run for every cell of the model, under a readable name such as "encoder · layer 2 · backward"."""
    named: dict[int, CellRun] = {}
    backward = {
        id(part) for module in model.modules() if (pair := direction_pair(module)) for part in pair[1].modules()
    }
    for path, module in model.named_modules():
        if isinstance(module, Recurrent):
            for k, cell in enumerate(module.cell_list):
                level, back = divmod(k, module.directions)
                parts = [path or module.cell_class.__name__]
                parts += [f"layer {level + 1}"] if module.num_layers > 1 else []
                parts += ["backward" if back else "forward"] if module.directions > 1 else []
                named.setdefault(id(cell), CellRun(" · ".join(parts), cell, bool(back) or id(cell) in backward))
    for path, module in model.named_modules():
        if isinstance(module, Cell):
            named.setdefault(id(module), CellRun(path or type(module).__name__, module, id(module) in backward))
    return list(named.values())


def direction_pair(module: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """The forward and the backward part of a bidirectional model that is not a `Recurrent` layer, or None."""
    stacks = getattr(module, "stacks", None)  # ELMo
    pair = stacks if isinstance(stacks, (list, tuple)) else [getattr(module, name, None) for name in ("past", "future")]
    parts = [part for part in pair if isinstance(part, nn.Module)]
    return (parts[0], parts[1]) if len(pair) == len(parts) == 2 else None
