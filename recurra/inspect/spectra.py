"""Spectra of the recurrent weight matrices: eigenvalues, singular values, non-normality, effective radius.

A matrix with orthogonal eigenvectors is normal; then ‖Wᵏ‖ = ρᵏ. The further from normal, the more ‖Wᵏ‖ can grow before
it shrinks. The effective radius is the spectral radius of the step's Jacobian with state, input and biases at zero. For
leaky units it is ρ(diag(1 - 1/τ) + diag(1/τ) W), which decides whether they forget (Jaeger et al. 2007).
"""

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..affine import Affine
from ..cell import Cell
from . import figures
from .inspected_model import module_of
from .jacobians import eigenvalue_plot, system_of
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
    """Spectra of all recurrent matrices of a model, and of the model `before` training.

    **Example**

        >>> found = rc.inspect.weight_spectrum(rc.GRU(3, 4))
        >>> [matrix.name for matrix in found.matrices]
        ['GRU · r.W', 'GRU · z.W', 'GRU · c.W']
    """

    matrices: tuple[MatrixSpectrum, ...]
    effective_radius: dict[str, float]  # cell → spectral radius of its step at zero
    before: tuple[MatrixSpectrum, ...] = ()

    def __getitem__(self, name: str) -> MatrixSpectrum:
        """A matrix by the end of its name: `spectrum["f.W"]`."""
        for matrix in self.matrices:
            if matrix.name == name or matrix.name.endswith(f" {name}"):
                return matrix
        raise KeyError(name)

    def summary(self) -> str:
        """A table: spectral radius and norm of every recurrent matrix."""
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
        return eigenvalue_plot(
            "Eigenvalues of the recurrent matrices", [(n, m.eigenvalues) for n, m in both if m.eigenvalues is not None]
        )

    def singular_figure(self) -> "Figure":
        """Singular values, largest first."""
        fig = figures.figure("Singular values of the recurrent matrices", 360)
        for number, (name, m) in enumerate(
            [*((f"before: {m.name}", m) for m in self.before), *((m.name, m) for m in self.matrices)]
        ):
            fig.add_trace(figures.line(name, list(range(1, len(m.singular) + 1)), m.singular, number))
        fig.update_xaxes(title="rank")
        fig.update_yaxes(title="singular value", rangemode="tozero")
        return fig


def weight_spectrum(model: Any, data: Any = None, *, before: Any = None) -> WeightSpectrum:
    """Eigenvalues and singular values of every matrix that multiplies a state.

    **Arguments**

    - `model`: a module with recurrent layers, a cell, an echo state network, a fitted estimator or a training run.
    - `data`: not used; present so that all measurements take `(model, data)`.
    - `before`: the model before training, measured for comparison.

    **Returns** a `WeightSpectrum`: `spectrum["f.W"]` is a matrix by the end of its name, with `eigenvalues`,
    `singular`, `radius`, `norm` and `departure` from normality.

    **Example**

        >>> import recurra as rc
        >>> found = rc.inspect.weight_spectrum(rc.OrthogonalRNN(3, 6))
        >>> round(found["a.W"].radius, 4), found["a.W"].departure < 1e-3
        (1.0, True)
    """
    cells = cells_of(module_of(model))
    matrices = tuple(m for run in cells for m in _matrices(run.name, run.cell))
    earlier = (
        () if before is None else tuple(m for run in cells_of(module_of(before)) for m in _matrices(run.name, run.cell))
    )
    return WeightSpectrum(matrices, {run.name: effective_radius(run.cell) for run in cells}, earlier)


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
    """The spectral radius of the step's Jacobian at zero state, input and biases; NaN where it is undefined."""
    if len(cell.modifiers):  # a normalised row of zeros has no useful derivative
        return float("nan")
    at_zero = copy.deepcopy(cell).double().eval()
    with torch.no_grad():
        for affine in at_zero.affines():
            if affine.b is not None:
                affine.stored("b").zero_()
    size = sum(torch.Size(spec.shape(1)[1:]).numel() for spec in at_zero.carried)
    like = next(at_zero.parameters()).new_zeros
    jacobian = system_of(at_zero).jacobians(like(1, size), like(1, at_zero.input_size))[0]
    if not bool(jacobian.isfinite().all()):  # a cell that divides by a state
        return float("nan")
    return float(torch.linalg.eigvals(jacobian).abs().max())
