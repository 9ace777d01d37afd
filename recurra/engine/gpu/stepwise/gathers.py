"""Numbers that a kernel reads in another order: the tables of a program, and the lines that read through them.

An earlier kernel of the step has written the row to memory, so any number of it can be read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...ir.index_map import Gather, IndexMap


@dataclass
class Tables:
    """All index maps and all rows of constants of a program, one after another, with the first place of each."""

    maps: dict[IndexMap, int] = field(default_factory=dict)
    literals: dict[tuple[float, ...], int] = field(default_factory=dict)
    on_device: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def first_of_map(self, index: IndexMap) -> int:
        return self.maps.setdefault(index, sum(m.terms * m.width for m in self.maps))

    def first_of_literal(self, row: tuple[float, ...]) -> int:
        return self.literals.setdefault(row, sum(map(len, self.literals)))

    def tensors(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Maps and constants on a device. They stay: captured graphs hold their addresses."""
        if device not in self.on_device:
            places = [index.places.flatten() for index in self.maps]
            maps = torch.cat(places).to(torch.int32) if places else torch.zeros(1, dtype=torch.int32)
            numbers = torch.tensor([n for row in self.literals for n in row] or [0.0], dtype=torch.float32)
            self.on_device[device] = maps.to(device), numbers.to(device)
        return self.on_device[device]


@dataclass(frozen=True)
class Source:
    """A row that is read: the address of its first number, numbers from one to the next, and where it has numbers."""

    base: str
    stride: int = 1
    mask: str = "live"

    def load(self, place: str) -> str:
        step = f" * {self.stride}" if self.stride > 1 else ""
        return f"load_f32({self.base} + {place}{step}, ({self.mask}) & ({place} >= 0))"


def lines_of(name: str, what: Gather, sources: Sequence[Source], firsts: Sequence[int], maps: str) -> list[str]:
    """The lines that compute a gather into a variable. `firsts`: where its maps begin in the table `maps`."""
    width, lines = what.maps[0].width, []
    parts = []
    for i, (source, first) in enumerate(zip(sources, firsts, strict=True)):
        place = f"{name}_place{i}"
        at = f"{first} + {name}_term * {width} + col"
        lines.append(f"{place} = L.load({maps} + {at}, mask=col < {width}, other=-1)")
        parts.append(source.load(place))
    part = " * ".join(parts)
    if what.kind == "max":
        lines.append(f"{name} = maximum({name}, L.where({name}_place0 >= 0, {part}, float('-inf')))")
        start = "zero - float('inf')"
    else:
        lines.append(f"{name} = {name} + {part}")
        start = "zero"
    if what.moves:  # no sum: -0 stays
        return [lines[0].replace(f"{name}_term * {width}", "0"), f"{name} = {part}"]
    return [f"{name} = {start}", f"for {name}_term in range({what.terms}):", *("    " + line for line in lines)]
