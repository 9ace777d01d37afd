"""State Jacobians along data: the spectrum of one step, and the singular values of ∂h_T/∂h_t over many steps.

The product ∂h_T/∂h_t = J_T J_{T-1} … J_{t+1} is normalised after every factor and its scale kept as a logarithm, so it
neither overflows nor underflows. Singular values below 1e-14 of the largest are rounding errors and become NaN.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..argument_checks import positive_int, whole_number
from ..cell import Cell
from ..dynamics.system import DynamicalSystem
from ..engine.found_draws import mean_draws
from ..engine.reference import advance
from ..engine.trace import bind_weights
from ..engine.traced_step import bind_step
from ..errors import InputError
from . import figures
from .inspected_model import InspectedModel
from .result import Result, table
from .step_recorder import CellRun

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CHUNK = 1 << 22  # entries of Jacobians computed at a time
ROUNDING = 1e-14


@dataclass(frozen=True)
class CellSpectrum:
    """One cell along one sequence. h is the concatenation of all carried states of the cell: p numbers."""

    name: str
    radius: Tensor  # (T,): spectral radius of ∂h_t/∂h_{t-1}
    norm: Tensor  # (T,): its largest singular value
    eigenvalues: Tensor  # (k, p) complex: at k steps spread over the sequence
    lags: tuple[int, ...]
    singular: Tensor  # (lags, p): log₁₀ of the singular values of ∂h_T/∂h_{T-lag}, largest first; NaN below rounding


@dataclass(frozen=True)
class JacobianSpectrum(Result):
    """Spectra of the Jacobians of every cell, and of the cells of the model `before` training.

    **Example**

        >>> found = rc.inspect.jacobian_spectrum(rc.RNN(3, 4), torch.randn(20, 2, 3))
        >>> len(found.cells)
        1
    """

    cells: tuple[CellSpectrum, ...]
    before: tuple[CellSpectrum, ...] = ()

    def summary(self) -> str:
        """A table: spectral radius and norm of every cell's Jacobian."""
        rows = []
        for when, cells in (("before: ", self.before), ("", self.cells)):
            for cell in cells:
                top = float(cell.singular[-1, 0])
                rows.append(
                    (
                        f"{when}{cell.name}",
                        f"{cell.radius.mean():.3g} (up to {cell.radius.max():.3g})",
                        f"{cell.norm.mean():.3g} (up to {cell.norm.max():.3g})",
                        f"10^{top:.1f} over {cell.lags[-1]} steps",
                    )
                )
        return "Jacobian of a step along the data\n" + table(rows, ("cell", "spectral radius", "norm", "‖∂h_T/∂h_t‖"))

    def figure(self) -> "Figure":
        """Singular values of ∂h_T/∂h_t over the lag: the largest, and those 25 % and 50 % down the spectrum."""
        fig = figures.figure("Singular values of ∂h<sub>T</sub>/∂h<sub>t</sub>", 420)
        groups = [*((f"before: {cell.name}", cell) for cell in self.before), *((c.name, c) for c in self.cells)]
        for number, (name, cell) in enumerate(groups):
            for share, style in ((0.0, "solid"), (0.25, "dash"), (0.5, "dot")):
                column = int(share * (cell.singular.shape[1] - 1))
                rank = "largest" if share == 0 else f"{share:.0%} down"
                fig.add_trace(
                    figures.line(f"{name}, {rank}", cell.lags, cell.singular[:, column], number, line={"dash": style})
                )
        fig.update_xaxes(title="lag T - t, steps")
        fig.update_yaxes(title="log₁₀ of the singular value")
        return fig

    def eigenvalue_figure(self) -> "Figure":
        """Eigenvalues of ∂h_t/∂h_{t-1} at several steps, in the complex plane with the unit circle."""
        groups = [*((f"before: {cell.name}", cell) for cell in self.before), *((c.name, c) for c in self.cells)]
        return eigenvalue_plot(
            "Eigenvalues of ∂h<sub>t</sub>/∂h<sub>t-1</sub> along the data",
            [(n, c.eigenvalues.flatten()) for n, c in groups],
        )


def eigenvalue_plot(title: str, groups: Sequence[tuple[str, Tensor]]) -> "Figure":
    """Complex numbers and the unit circle; of each group at most the 1500 largest are drawn."""
    go = figures.graph_objects()
    fig = figures.figure(title, 460)
    fig.add_trace(figures.unit_circle())
    symbols = ("circle", "diamond", "x", "square", "cross", "triangle-up")
    for number, (name, values) in enumerate(groups):
        values = values[values.abs().argsort(descending=True)][:1500]
        fig.add_trace(
            go.Scatter(
                x=figures.rounded(values.real),
                y=figures.rounded(values.imag),
                mode="markers",
                name=figures.escape(name),
                marker={
                    "color": figures.PALETTE[number % len(figures.PALETTE)],
                    "symbol": symbols[number % len(symbols)],
                    "size": 6,
                    "opacity": 0.75,
                },
                hovertemplate="%{x:.3f} %{y:+.3f} i<extra></extra>",
            )
        )
    fig.update_xaxes(title="real part", constrain="domain")
    fig.update_yaxes(title="imaginary part", scaleanchor="x", scaleratio=1)
    return fig


def jacobian_spectrum(
    model: Any, data: Any, *, steps: int = 100, before: Any = None, spread: int = 8, sequence: int = 0
) -> JacobianSpectrum:
    """Spectra of ∂h_t/∂h_{t-1}, and singular values of ∂h_T/∂h_t, along one sequence of the data.

    The cost is p vector-Jacobian products a step for a state of p numbers, and two decompositions of p × p matrices.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: a tensor (T, B, D), a pair (inputs, targets), a `Batch` or a `SequenceSet`.
    - `steps`: how many steps at the end of the sequence to use.
    - `before`: the model before training, measured for comparison.
    - `spread`: at how many steps to keep all eigenvalues.
    - `sequence`: which sequence of the data to use.

    **Returns** a `JacobianSpectrum`: `cells` has a `CellSpectrum` for each cell.

    **Example**

        >>> import torch, recurra as rc
        >>> found = rc.inspect.jacobian_spectrum(rc.GRU(3, 4), torch.randn(10, 1, 3))
        >>> found.cells[0].radius.shape, found.cells[0].eigenvalues.shape
        (torch.Size([10]), torch.Size([8, 4]))
    """
    positive_int("steps", steps), positive_int("spread", spread), whole_number("sequence", sequence)
    measured = [
        tuple(_measure(run, steps, spread, sequence) for run in _runs(which, data, sequence))
        for which in ((model,) if before is None else (model, before))
    ]
    return JacobianSpectrum(*measured)


def _runs(model: Any, data: Any, sequence: int) -> list[CellRun]:
    inspected = InspectedModel(model, data, sequences=sequence + 1)
    if sequence >= inspected.sample.inputs.shape[1]:
        raise InputError("sequence", sequence, f"one of the {inspected.sample.inputs.shape[1]} sequences of the data")
    with torch.no_grad():
        return inspected.record()[1].runs()


def _measure(run: CellRun, steps: int, spread: int, sequence: int) -> CellSpectrum:
    jacobians = jacobians_along(run, steps, sequence)  # (T, p, p)
    values = torch.linalg.eigvals(jacobians)
    lags, singular = _singular_values(jacobians)
    chosen = torch.linspace(0, len(values) - 1, min(spread, len(values))).round().long()
    norm = torch.linalg.matrix_norm(jacobians, 2)
    return CellSpectrum(run.name, values.abs().amax(dim=-1), norm, values[chosen], lags, singular)


def jacobians_along(run: CellRun, steps: int | None = None, sequence: int = 0) -> Tensor:
    """∂h_t/∂h_{t-1} for the last steps of a run: (T, p, p)."""
    count = len(run) if steps is None else min(steps, len(run))
    points = run.points()[-count:, sequence].detach()
    inputs = torch.stack(run.x[-count:])[:, sequence].detach()
    system, chunk = system_of(run.cell), max(1, CHUNK // points.shape[1] ** 2)
    with bind_weights(run.cell, {name: weight.detach() for name, weight in run.cell.derived().items()}):
        parts = zip(points.split(chunk), inputs.split(chunk), strict=True)
        return torch.cat([system.jacobians(*part) for part in parts])


def system_of(cell: Cell) -> DynamicalSystem:
    """`DynamicalSystem.of(cell)`, with the modifiers of the cell applied."""
    if not cell.modifiers:
        return DynamicalSystem.of(cell)
    graph = bind_step(cell)
    shapes = [torch.Size(spec.shape(1)[1:]) for spec in cell.carried]
    sizes = [shape.numel() for shape in shapes]

    def step(h: Tensor, x: Tensor) -> Tensor:
        rows, inputs = h.reshape(-1, sum(sizes)), x.reshape(-1, cell.input_size)
        states = [s.view(-1, *shape) for s, shape in zip(rows.split(sizes, dim=-1), shapes, strict=True)]
        new = advance(cell, inputs, states, mean_draws(cell, len(rows), rows), graph)[1]
        return torch.cat([s.reshape(len(rows), -1) for s in new], dim=-1).view(h.shape)

    return DynamicalSystem(step, driven=True)


def _singular_values(jacobians: Tensor, count: int = 24) -> tuple[tuple[int, ...], Tensor]:
    """log₁₀ singular values of ∂h_T/∂h_{T-lag} for `count` evenly spaced lags: the lags, and (lags, p)."""
    total = len(jacobians)
    lags = sorted({int(lag) for lag in torch.linspace(1, total, min(count, total)).round()})
    product = torch.eye(jacobians.shape[1], dtype=jacobians.dtype, device=jacobians.device)
    scale, found = 0.0, []
    for lag, jacobian in enumerate(jacobians.flip(0), start=1):  # newest factor leftmost
        product = product @ jacobian
        size = float(product.norm())
        if size == 0.0:
            found += [torch.full(product.shape[:1], float("nan"))] * sum(other >= lag for other in lags)
            break
        product, scale = product / size, scale + torch.log10(torch.tensor(size, dtype=torch.float64)).item()
        if lag in lags:
            values = torch.linalg.svdvals(product)
            values = values.masked_fill(values < ROUNDING * values[0], float("nan"))
            found.append(values.log10() + scale)
    return tuple(lags), torch.stack([values.to(jacobians) for values in found])
