"""The base class of all measurement results: numbers, a figure, a summary."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


class Result(ABC):
    """A measurement: numbers as attributes, `.figure()` as a plotly figure, `.summary()` as a few lines of text."""

    @abstractmethod
    def figure(self) -> "Figure": ...

    @abstractmethod
    def summary(self) -> str: ...

    def __str__(self) -> str:
        return self.summary()

    def _ipython_display_(self) -> None:
        """Show the summary and the figure in a notebook."""
        print(self.summary())
        self.figure().show()


def table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...]) -> str:
    """Rows and their header as aligned columns of text."""
    lines = [header, *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in lines
    )
