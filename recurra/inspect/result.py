"""What every measurement gives back: numbers, a figure, a summary."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Result(ABC):
    """Numbers as attributes; `.figure()` is a plotly figure, `.summary()` a few lines for a person."""

    @abstractmethod
    def figure(self) -> "Figure": ...

    @abstractmethod
    def summary(self) -> str: ...

    def __str__(self) -> str:
        return self.summary()

    def _ipython_display_(self) -> None:
        """In a notebook, the summary and the figure."""
        print(self.summary())
        self.figure().show()


def table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Columns of plain text."""
    everything = [header, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in everything
    ]
    return "\n".join(lines)
