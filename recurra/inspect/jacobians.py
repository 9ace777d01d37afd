"""The Jacobian along real data: the spectrum of one step, and the singular values of ∂h_T/∂h_t over many.

∂h_T/∂h_t = J_T J_{T-1} … J_{t+1} is built factor by factor, its scale kept apart as a logarithm, so that it neither
overflows nor underflows. A singular value less than 1e-14 times the largest is rounding, and is not shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..cell import Cell
from ..dynamics.system import DynamicalSystem
from ..engine.reference import advance
from ..engine.trace import bind_weights
from ..engine.traced_step import bind_step
from ..errors import InputError
from . import figures
from .inspected_model import Subject
from .result import Result, table
from .step_recorder import Heard

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CHUNK = 1 << 22  # entries of Jacobians computed at a time
ROUNDING = 1e-14


@dataclass(frozen=True)
class CellSpectrum:
    """One cell along one sequence. The state is every carried state of the cell in one vector of p numbers."""

    name: str
    radius: Tensor  # (T,): spectral radius of ∂h_t/∂h_{t-1}
    norm: Tensor  # (T,): its largest singular value
    eigenvalues: Tensor  # (k, p) complex: at k steps spread over the sequence
    lags: tuple[int, ...]
    singular: Tensor  # (lags, p): log₁₀ of the singular values of ∂h_T/∂h_{T-lag}, largest first; NaN below rounding


@dataclass(frozen=True)
class JacobianSpectrum(Result):
    cells: tuple[CellSpectrum, ...]
    before: tuple[CellSpectrum, ...] = ()

    def summary(self) -> str:
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
        """Singular values of ∂h_T/∂h_t against the lag: the largest, the quartiles, the smallest."""
        made = figures.figure("Singular values of ∂h<sub>T</sub>/∂h<sub>t</sub>", 420)
        groups = [*((f"before: {cell.name}", cell) for cell in self.before), *((c.name, c) for c in self.cells)]
        for number, (name, cell) in enumerate(groups):
            for share, style in ((0.0, "solid"), (0.25, "dash"), (0.5, "dot")):
                column = int(share * (cell.singular.shape[1] - 1))
                word = "largest" if share == 0 else f"{share:.0%} down"
                made.add_trace(
                    figures.line(f"{name}, {word}", cell.lags, cell.singular[:, column], number, line={"dash": style})
                )
        made.update_xaxes(title="lag T - t, steps")
        made.update_yaxes(title="log₁₀ of the singular value")
        return made

    def plane(self) -> "Figure":
        """Eigenvalues of ∂h_t/∂h_{t-1} at several steps, in the complex plane with the unit circle."""
        groups = [*((f"before: {cell.name}", cell) for cell in self.before), *((c.name, c) for c in self.cells)]
        return plane(
            "Eigenvalues of ∂h<sub>t</sub>/∂h<sub>t-1</sub> along the data",
            [(n, c.eigenvalues.flatten()) for n, c in groups],
        )


def plane(title: str, groups: Sequence[tuple[str, Tensor]]) -> "Figure":
    """Complex numbers with the unit circle; at most 1500 of each group are drawn, the largest first."""
    go = figures.graph_objects()
    made = figures.figure(title, 460)
    made.add_trace(figures.unit_circle())
    symbols = ("circle", "diamond", "x", "square", "cross", "triangle-up")
    for number, (name, values) in enumerate(groups):
        values = values[values.abs().argsort(descending=True)][:1500]
        made.add_trace(
            go.Scatter(
                x=figures.numbers(values.real),
                y=figures.numbers(values.imag),
                mode="markers",
                name=figures.text(name),
                marker={
                    "color": figures.PALETTE[number % len(figures.PALETTE)],
                    "symbol": symbols[number % len(symbols)],
                    "size": 6,
                    "opacity": 0.75,
                },
                hovertemplate="%{x:.3f} %{y:+.3f} i<extra></extra>",
            )
        )
    made.update_xaxes(title="real part", constrain="domain")
    made.update_yaxes(title="imaginary part", scaleanchor="x", scaleratio=1)
    return made


def jacobian_spectrum(
    model: Any, data: Any, *, steps: int = 100, before: Any = None, spread: int = 8, sequence: int = 0
) -> JacobianSpectrum:
    """Spectra of ∂h_t/∂h_{t-1}, and singular values of ∂h_T/∂h_t, along one sequence of the data.

    The last `steps` steps of the sequence are taken. `before`, the model as it was, is measured beside. The cost is
    p vector-Jacobian products a step for a state of p numbers, and two decompositions of p × p matrices.
    """
    measured = [
        () if one is None else tuple(_measure(heard, steps, spread, sequence) for heard in _runs(one, data, sequence))
        for one in (model, before)
    ]
    return JacobianSpectrum(*measured)


def _runs(model: Any, data: Any, sequence: int) -> list[Heard]:
    subject = Subject(model, data, sequences=sequence + 1)
    if sequence >= subject.sample.inputs.shape[1]:
        raise InputError("sequence", sequence, f"one of the {subject.sample.inputs.shape[1]} sequences of the data")
    with torch.no_grad():
        return subject.listen()[1].results()


def _measure(heard: Heard, steps: int, spread: int, sequence: int) -> CellSpectrum:
    jacobians = jacobians_along(heard, steps, sequence)  # (T, p, p)
    values = torch.linalg.eigvals(jacobians)
    lags, singular = _singular_values(jacobians)
    chosen = torch.linspace(0, len(values) - 1, min(spread, len(values))).round().long()
    norm = torch.linalg.matrix_norm(jacobians, 2)
    return CellSpectrum(heard.name, values.abs().amax(dim=-1), norm, values[chosen], lags, singular)


def jacobians_along(heard: Heard, steps: int | None = None, sequence: int = 0) -> Tensor:
    """∂h_t/∂h_{t-1} for the last steps of a run: (T, p, p)."""
    count = len(heard) if steps is None else min(steps, len(heard))
    points = heard.points()[-count:, sequence].detach()
    inputs = torch.stack(heard.x[-count:])[:, sequence].detach()
    system, chunk = system_of(heard.cell), max(1, CHUNK // points.shape[1] ** 2)
    with bind_weights(heard.cell, {name: weight.detach() for name, weight in heard.cell.derived().items()}):
        parts = zip(points.split(chunk), inputs.split(chunk), strict=True)
        return torch.cat([system.jacobians(*part) for part in parts])


def system_of(cell: Cell) -> DynamicalSystem:
    """`DynamicalSystem.of`, with the cell's modifiers in force."""
    if not cell.modifiers:
        return DynamicalSystem.of(cell)
    graph = bind_step(cell)
    shapes = [torch.Size(spec.shape(1)[1:]) for spec in cell.carried]
    sizes = [shape.numel() for shape in shapes]

    def step(h: Tensor, x: Tensor) -> Tensor:
        rows, inputs = h.reshape(-1, sum(sizes)), x.reshape(-1, cell.input_size)
        states = [s.view(-1, *shape) for s, shape in zip(rows.split(sizes, dim=-1), shapes, strict=True)]
        new = advance(cell, inputs, states, cell.draw_masks(1, len(rows), rows), graph)[1]
        return torch.cat([s.reshape(len(rows), -1) for s in new], dim=-1).view(h.shape)

    return DynamicalSystem(step, driven=True)


def _singular_values(jacobians: Tensor, count: int = 24) -> tuple[tuple[int, ...], Tensor]:
    """log₁₀ singular values of ∂h_T/∂h_{T-lag} for lags spread over all there are."""
    total = len(jacobians)
    lags = sorted({int(lag) for lag in torch.linspace(1, total, min(count, total)).round()})
    product = torch.eye(jacobians.shape[1], dtype=jacobians.dtype, device=jacobians.device)
    scale, found = 0.0, []
    for lag, jacobian in enumerate(jacobians.flip(0), start=1):  # newest factor leftmost
        product = product @ jacobian
        size = float(product.norm())
        if size == 0.0:
            found += [torch.full(product.shape[:1], float("nan"))] * sum(one >= lag for one in lags)
            break
        product, scale = product / size, scale + torch.log10(torch.tensor(size, dtype=torch.float64)).item()
        if lag in lags:
            values = torch.linalg.svdvals(product)
            values = values.masked_fill(values < ROUNDING * values[0], float("nan"))
            found.append(values.log10() + scale)
    return tuple(lags), torch.stack([one.to(jacobians) for one in found])
