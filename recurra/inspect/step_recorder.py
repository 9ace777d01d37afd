"""Listen to a model while it runs: every step of every cell in it, whatever stands around the cells.

The plain loop passes all its steps through two functions of `engine/reference.py`; for the length of a `with`, this
room stands between. So a layer deep inside somebody's model, a stack, a bidirectional layer and a hierarchy of cells
are all heard the same way, and the states heard are the very tensors of the graph: a gradient with respect to one of
them is a total derivative.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import TIME, Cell
from ..engine import reference
from ..engine.dispatch import set_backend
from ..engine.traced_step import BoundStep, bind_step
from ..errors import InputError
from ..layers import Recurrent
from ..ragged import reverse


@dataclass(eq=False)
class Heard:
    """One cell's run, step by step. For a cell that reads backwards, time runs as the sequence does."""

    name: str
    cell: Cell
    backward: bool
    x: list[Tensor] = field(default_factory=list)  # (B, D) a step: what the cell itself saw
    before: list[tuple[Tensor, ...]] = field(default_factory=list)  # the carried states a step starts from
    states: dict[str, list[Tensor]] = field(default_factory=dict)  # name → the new state of every step, (B, size)
    values: dict[str, list[Tensor]] = field(default_factory=dict)  # name → every named value of every step

    def __len__(self) -> int:
        return len(self.x)

    def state(self, name: str, lengths: Tensor | None = None) -> Tensor:
        """(T, B, size), in the order of the sequence."""
        return self.in_order(self.states[name], lengths)

    def value(self, name: str, lengths: Tensor | None = None) -> Tensor:
        return self.in_order(self.values[name], lengths)

    def in_order(self, steps: Sequence[Tensor], lengths: Tensor | None = None) -> Tensor:
        stacked = torch.stack(list(steps))
        return reverse(stacked, lengths) if self.backward else stacked

    def points(self) -> Tensor:
        """The carried states before every step, flattened as `DynamicalSystem.of` does: (T, B, p)."""
        return torch.stack([torch.cat([s.reshape(len(s), -1) for s in states], dim=-1) for states in self.before])


class Listener:
    """Collects what the cells of a model do."""

    def __init__(self, model: nn.Module, names: bool = False):
        self.names = names
        self.heard = {id(heard.cell): heard for heard in cells_of(model)}
        if not self.heard:
            raise InputError("model", type(model).__name__, "a model with a recurrent layer or cell inside")
        self.graphs: dict[int, BoundStep] = {}
        self.now: Heard | None = None

    def results(self) -> list[Heard]:
        return [heard for heard in self.heard.values() if len(heard)]

    @contextmanager
    def listening(self) -> Iterator["Listener"]:
        """While this lasts, scans run on the plain loop and are heard. As `set_backend`, it holds for the process."""
        outer: Any = (reference.advance, reference._push)

        def advance(cell: Cell, x: Tensor, state: Sequence[Tensor], masks: dict, graph: BoundStep | None = None) -> Any:
            self.now = self.heard.get(id(cell))
            if self.now is not None:
                self.now.x.append(x)
                self.now.before.append(tuple(s for s, c in zip(state, cell.carried, strict=True)))
                graph = self._graph(cell) if self.names else graph
            y, carried, named = outer[0](cell, x, state, masks, graph)
            if self.now is not None:
                for name, value in named.items():
                    self.now.values.setdefault(name, []).append(value)
            return y, carried, named

        def push(spec: Any, old: Tensor, new: Tensor) -> Tensor:
            if self.now is not None and spec.name != TIME:
                self.now.states.setdefault(spec.name, []).append(new)
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


def cells_of(model: nn.Module) -> list[Heard]:
    """Every cell of the model under a name a person can read."""
    named: dict[int, Heard] = {}
    future = {id(part) for module in model.modules() if (pair := two_ways(module)) for part in pair[1].modules()}
    for path, module in model.named_modules():
        if isinstance(module, Recurrent):
            for k, cell in enumerate(module.cell_list):
                level, back = divmod(k, module.directions)
                parts = [path or module.cell_class.__name__]
                parts += [f"layer {level + 1}"] if module.num_layers > 1 else []
                parts += ["backward" if back else "forward"] if module.directions > 1 else []
                named.setdefault(id(cell), Heard(" · ".join(parts), cell, bool(back) or id(cell) in future))
    for path, module in model.named_modules():
        if isinstance(module, Cell):
            named.setdefault(id(module), Heard(path or type(module).__name__, module, id(module) in future))
    return list(named.values())


def two_ways(module: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """The two parts of a model that reads forwards with one and backwards with the other, outside of a layer."""
    stacks = getattr(module, "stacks", None)  # ELMo
    pair = stacks if isinstance(stacks, (list, tuple)) else [getattr(module, name, None) for name in ("past", "future")]
    parts = [part for part in pair if isinstance(part, nn.Module)]
    return (parts[0], parts[1]) if len(pair) == len(parts) == 2 else None
