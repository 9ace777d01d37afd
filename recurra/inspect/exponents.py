"""Lyapunov exponents of a trained, driven network: whether it forgets its start (below 0) or is chaotic (above)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..dynamics.lyapunov import lyapunov as exponents_of
from ..engine.trace import bind_weights
from . import figures
from .inspected_model import Subject
from .jacobians import system_of
from .result import Result, table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Lyapunov(Result):
    """The spectrum of every cell, conditional on the inputs it saw, largest exponent first, per step."""

    exponents: dict[str, Tensor]  # cell → (count,)
    steps: int

    def largest(self, name: str | None = None) -> float:
        """Of one cell, or of the first."""
        return float(self.exponents[name or next(iter(self.exponents))][0])

    def summary(self) -> str:
        rows = [
            (name, f"{float(values[0]):+.4f}", f"{float(values[0].exp()):.4f}", _verdict(float(values[0])))
            for name, values in self.exponents.items()
        ]
        return f"Lyapunov exponents over {self.steps} steps\n" + table(rows, ("cell", "largest", "factor a step", ""))

    def figure(self) -> "Figure":
        made = figures.figure("Lyapunov exponents, largest first", 360)
        for number, (name, values) in enumerate(self.exponents.items()):
            made.add_trace(figures.line(name, list(range(1, len(values) + 1)), values, number, mode="lines+markers"))
        made.add_hline(y=0, line={"color": figures.INK, "width": 1})
        made.update_xaxes(title="rank")
        made.update_yaxes(title="exponent a step")
        return made


def lyapunov(
    model: Any, data: Any, *, steps: int = 300, transient: int | None = None, count: int | None = 16
) -> Lyapunov:
    """The `count` largest exponents of every cell along the first sequence of the data.

    Each cell is driven by what it really saw, upper layers by the layers below. The first `transient` steps (a fifth of
    them) let the directions settle. The cost is p vector-Jacobian products a step, and a QR of p × count.
    """
    subject = Subject(model, data, sequences=1, steps=steps)
    with torch.no_grad():
        heard = subject.listen()[1].results()
    found = {}
    for one in heard:
        inputs, points = torch.stack(one.x)[:, 0], one.points()
        skipped = len(inputs) // 5 if transient is None else transient
        wanted = None if count is None else min(count, points.shape[-1])
        with bind_weights(one.cell, {name: weight.detach() for name, weight in one.cell.derived().items()}):
            found[one.name] = exponents_of(
                system_of(one.cell), points[0, 0].clone(), None, inputs, transient=skipped, count=wanted
            )
    return Lyapunov(found, max(len(one) for one in heard))


def _verdict(exponent: float) -> str:
    if exponent > 1e-3:
        return "chaotic: small differences grow"
    return "at the edge: differences stay" if exponent > -1e-2 else "forgets its start"
