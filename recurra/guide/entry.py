"""One place of the survey, and how its calls run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .entries import NAMES


@dataclass(frozen=True)
class SurveyEntry:
    """One place of the survey.

    **Fields**: `where` ("3.4", "eq. 27", "fig. 2"), `section` it lies in, `title`, what it `says`, the `calls` that are
    it, and the numbers of its `errata`.
    """

    where: str
    section: str
    title: str
    says: str
    calls: tuple[str, ...]
    errata: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return {"e": "equation", "f": "figure"}.get(self.where[0], "section")

    @property
    def names(self) -> dict[str, str]:
        """What the names in the calls stand for."""
        return {name: NAMES[name] for name in names_in(self.calls)}

    def run(self) -> list[Any]:
        """Evaluate the calls: layers, tensors, diagrams."""
        import torch

        import recurra

        space: dict[str, Any] = {"rc": recurra, "torch": torch}
        for name, value in self.names.items():
            space[name] = eval(value, space)
        return [eval(call, space) for call in self.calls]

    def __str__(self) -> str:
        lines = [f"{self.where}  {self.title}" if self.title else self.where, f"    {self.says}"]
        lines += [f"    {call}" for call in self.calls]
        if self.errata:
            lines.append(f"    errata: {', '.join(self.errata)}")
        return "\n".join(lines)


def names_in(calls: Sequence[str]) -> list[str]:
    """The names of `NAMES` that calls use, directly or through others, in the order of their definition."""
    used: list[str] = []
    for name in reversed(NAMES):  # a name is defined by earlier ones only
        texts = (*calls, *(NAMES[other] for other in used))
        if any(re.search(rf"(?<![\w.]){name}\b(?!=)", text) for text in texts):
            used.append(name)
    return used[::-1]
