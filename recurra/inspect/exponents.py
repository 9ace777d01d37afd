"""Lyapunov exponents of the cells of a model along data: below 0 the initial state is forgotten, above 0 chaos."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..argument_checks import positive_int, whole_number
from ..dynamics.lyapunov import lyapunov as exponents_of
from ..engine.trace import bind_weights
from . import figures
from .inspected_model import InspectedModel
from .jacobians import system_of
from .result import Result, table

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Lyapunov(Result):
    """Lyapunov spectrum of every cell, conditional on its inputs: exponents per step, largest first.

    **Example**

        >>> found = rc.inspect.lyapunov(rc.RNN(3, 4), torch.randn(50, 1, 3))
        >>> {name: exponents.shape for name, exponents in found.exponents.items()}
        {'RNN': torch.Size([4])}
    """

    exponents: dict[str, Tensor]  # cell → (count,)
    steps: int

    def largest(self, name: str | None = None) -> float:
        """The largest exponent of the cell `name`, by default of the first cell."""
        return float(self.exponents[name or next(iter(self.exponents))][0])

    def summary(self) -> str:
        """A table: the largest exponent of every cell and what it means."""
        rows = [
            (name, f"{float(values[0]):+.4f}", f"{float(values[0].exp()):.4f}", _verdict(float(values[0])))
            for name, values in self.exponents.items()
        ]
        return f"Lyapunov exponents over {self.steps} steps\n" + table(rows, ("cell", "largest", "factor per step", ""))

    def figure(self) -> "Figure":
        """The exponents of every cell, largest first."""
        fig = figures.figure("Lyapunov exponents, largest first", 360)
        for number, (name, values) in enumerate(self.exponents.items()):
            fig.add_trace(figures.line(name, list(range(1, len(values) + 1)), values, number, mode="lines+markers"))
        fig.add_hline(y=0, line={"color": figures.INK, "width": 1})
        fig.update_xaxes(title="rank")
        fig.update_yaxes(title="exponent per step")
        return fig


def lyapunov(
    model: Any, data: Any, *, steps: int = 300, transient: int | None = None, count: int | None = 16
) -> Lyapunov:
    """The largest Lyapunov exponents of every cell along the first sequence of the data.

    Each cell is driven by the inputs it has in the model: an upper layer by the layer below. The cost is p
    vector-Jacobian products a step for a state of p numbers, and a QR decomposition of p × count.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `steps`: the most steps of the sequence to use.
    - `transient`: steps to skip until the directions have settled; by default a fifth of them.
    - `count`: exponents per cell; None computes all.

    **Returns** a `Lyapunov` with `exponents`, cell → (count,), largest first.

    **Example**

        >>> import torch, recurra as rc
        >>> layer = rc.RNN(1, 3, dtype=torch.float64)
        >>> with torch.no_grad():
        ...     _ = layer.cells[0].a.W.copy_(0.5 * torch.eye(3)), layer.cells[0].a.U.zero_()
        >>> found = rc.inspect.lyapunov(layer, torch.zeros(100, 1, 1))
        >>> round(found.largest(), 3)  # ln 0.5
        -0.693
    """
    if count is not None:
        positive_int("count", count)
    if transient is not None:
        whole_number("transient", transient)
    inspected = InspectedModel(model, data, sequences=1, steps=steps)
    with torch.no_grad():
        runs = inspected.record()[1].runs()
    found = {}
    for run in runs:
        inputs, points = torch.stack(run.x)[:, 0], run.points()
        skipped = len(inputs) // 5 if transient is None else transient
        kept = None if count is None else min(count, points.shape[-1])
        with bind_weights(run.cell, {name: weight.detach() for name, weight in run.cell.derived().items()}):
            found[run.name] = exponents_of(
                system_of(run.cell), points[0, 0].clone(), None, inputs, transient=skipped, count=kept
            )
    return Lyapunov(found, max(len(run) for run in runs))


def _verdict(exponent: float) -> str:
    if exponent > 1e-3:
        return "chaotic: small differences grow"
    return "marginal: differences persist" if exponent > -1e-2 else "stable: forgets its initial state"
