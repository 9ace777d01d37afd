"""The recurrent matrices themselves: eigenvalues, singular values, how far from normal, and the radius that counts.

A matrix is normal when its eigenvectors are orthogonal; then ‖Wᵏ‖ = ρᵏ. The further it is from that, the more ‖Wᵏ‖ can
grow before it shrinks. The effective radius is that of the whole step at rest, with state, input and biases at zero:
for leaky units ρ(diag(1 - 1/τ) + diag(1/τ) W), which is what decides whether they forget (Jaeger et al. 2007).
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..cell import Affine, Cell
from . import figures
from .inspected_model import module_of
from .jacobians import plane, system_of
from .result import Result, table
from .step_recorder import cells_of

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class MatrixSpectrum:
    """One recurrent matrix."""

    name: str  # "lstm · f.W"
    eigenvalues: Tensor | None  # (p,) complex, largest first; None where the matrix is not square
    singular: Tensor  # (p,) largest first

    @property
    def radius(self) -> float:
        return float("nan") if self.eigenvalues is None else float(self.eigenvalues.abs().max())

    @property
    def norm(self) -> float:
        return float(self.singular[0])

    @property
    def departure(self) -> float:
        """Henrici's departure from normality, √(‖W‖² - Σ|λ|²) / ‖W‖ in the Frobenius norm: 0 is normal, 1 nilpotent."""
        if self.eigenvalues is None:
            return float("nan")
        total = float(self.singular.square().sum())
        rest = max(0.0, total - float(self.eigenvalues.abs().square().sum()))
        return (rest / total) ** 0.5 if total else 0.0


@dataclass(frozen=True)
class WeightSpectrum(Result):
    matrices: tuple[MatrixSpectrum, ...]
    effective_radius: dict[str, float]  # cell → ρ of its step at rest
    before: tuple[MatrixSpectrum, ...] = ()

    def __getitem__(self, name: str) -> MatrixSpectrum:
        """A matrix by the end of its name: `spectrum["f.W"]`."""
        for matrix in self.matrices:
            if matrix.name == name or matrix.name.endswith(f" {name}"):
                return matrix
        raise KeyError(name)

    def summary(self) -> str:
        rows = [
            (f"{when}{m.name}", f"{m.radius:.4g}", f"{m.norm:.4g}", f"{m.departure:.3g}")
            for when, matrices in (("before: ", self.before), ("", self.matrices))
            for m in matrices
        ]
        radii = [f"effective radius of {name}: {radius:.4g}" for name, radius in self.effective_radius.items()]
        return "\n".join(
            [table(rows, ("recurrent matrix", "spectral radius", "largest singular value", "non-normality")), *radii]
        )

    def figure(self) -> "Figure":
        """Eigenvalues in the complex plane, with the unit circle."""
        both = [*((f"before: {m.name}", m) for m in self.before), *((m.name, m) for m in self.matrices)]
        return plane(
            "Eigenvalues of the recurrent matrices", [(n, m.eigenvalues) for n, m in both if m.eigenvalues is not None]
        )

    def singular_figure(self) -> "Figure":
        """Singular values, largest first."""
        made = figures.figure("Singular values of the recurrent matrices", 360)
        for number, (name, m) in enumerate(
            [*((f"before: {m.name}", m) for m in self.before), *((m.name, m) for m in self.matrices)]
        ):
            made.add_trace(figures.line(name, list(range(1, len(m.singular) + 1)), m.singular, number))
        made.update_xaxes(title="rank")
        made.update_yaxes(title="singular value", rangemode="tozero")
        return made


def weight_spectrum(model: Any, data: Any = None, *, before: Any = None) -> WeightSpectrum:
    """Eigenvalues and singular values of every matrix that multiplies a state; no data is needed.

    `before`, the model as it was, is measured beside.
    """
    cells = cells_of(module_of(model))
    matrices = tuple(m for heard in cells for m in _matrices(heard.name, heard.cell))
    earlier = (
        ()
        if before is None
        else tuple(m for heard in cells_of(module_of(before)) for m in _matrices(heard.name, heard.cell))
    )
    return WeightSpectrum(matrices, {heard.name: effective_radius(heard.cell) for heard in cells}, earlier)


def _matrices(owner: str, cell: Cell) -> list[MatrixSpectrum]:
    found = []
    for path, affine in cell.named_modules():
        for name in affine.recurrent() if isinstance(affine, Affine) else ():
            weight = getattr(affine, name).detach().double()
            values = None
            if weight.shape[0] == weight.shape[1]:
                values = torch.linalg.eigvals(weight)
                values = values[values.abs().argsort(descending=True)]
            found.append(MatrixSpectrum(f"{owner} · {path}.{name}", values, torch.linalg.svdvals(weight)))
    return found


def effective_radius(cell: Cell) -> float:
    """The spectral radius of the step's Jacobian at rest: state, input and biases at zero; NaN where rest has none."""
    if len(cell.modifiers):  # a normalised row of zeros has no derivative to speak of
        return float("nan")
    rested = copy.deepcopy(cell).double().eval()
    with torch.no_grad():
        for affine in rested.affines():
            if affine.b is not None:
                affine.stored("b").zero_()
    size = sum(torch.Size(spec.shape(1)[1:]).numel() for spec in rested.carried)
    like = next(rested.parameters()).new_zeros
    jacobian = system_of(rested).jacobians(like(1, size), like(1, rested.input_size))[0]
    if not bool(jacobian.isfinite().all()):  # a cell that divides by a state has no rest
        return float("nan")
    return float(torch.linalg.eigvals(jacobian).abs().max())
