"""Random reservoir matrices: a sparse random matrix scaled to a given spectral radius (Jaeger 2001)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigs

from ..errors import InputError, ShapeError

DENSE_BELOW = 200  # units up to which a dense eigenvalue solver is faster


@dataclass(frozen=True)
class Weights:
    """The fixed matrices of one reservoir: h_t = (1 - aγ) h_{t-1} + γ tanh(W h_{t-1} + U x_t + F y_{t-1} + b).

    **Example**

        >>> import numpy as np
        >>> weights = rc.reservoir.Weights.given(0.5 * np.eye(3), np.ones((3, 1)))
        >>> weights.W.shape, weights.U.shape, weights.b.tolist()
        ((3, 3), (3, 1), [0.0, 0.0, 0.0])
    """

    W: Any  # scipy.sparse.csr_array (N, N)
    U: np.ndarray  # (N, d)
    F: np.ndarray  # (N, q), from the output; no columns without feedback
    b: np.ndarray  # (N,)

    @classmethod
    def given(cls, W: Any, U: Any, F: Any = None, b: ArrayLike = 0.0) -> "Weights":
        """Given matrices, dense or sparse."""
        W = sparse.csr_array(W, dtype=np.float64)
        units, columns = W.shape  # pyrefly: ignore
        if units != columns:
            raise ShapeError("W", f"shape {W.shape}", "a square matrix (N, N)")
        U = _dense("U", U, units)
        F = np.zeros((units, 0)) if F is None else _dense("F", F, units)
        return cls(W, U, F, np.broadcast_to(np.asarray(b, dtype=np.float64).ravel(), (units,)).copy())


def _dense(name: str, matrix: ArrayLike, units: int) -> np.ndarray:
    array = matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)  # pyrefly: ignore
    if array.ndim != 2 or array.shape[0] != units:
        raise ShapeError(name, f"shape {array.shape}", f"({units}, columns)")
    return np.ascontiguousarray(array, dtype=np.float64)


def draw(
    units: int,
    inputs: int,
    outputs: int,
    *,
    radius: float,
    density: float,
    input_scaling: float | ArrayLike,
    feedback: float,
    bias: float,
    random: np.random.Generator,
) -> Weights:
    """Draw all matrices of one reservoir, uniform on (-1, 1) before scaling.

    **Example**

        >>> import numpy as np
        >>> sizes = {"radius": 0.9, "density": 0.1, "input_scaling": 1.0, "feedback": 0.0, "bias": 0.0}
        >>> weights = rc.reservoir.draw(50, 2, 1, random=np.random.default_rng(0), **sizes)
        >>> weights.U.shape, round(rc.reservoir.spectral_radius(weights.W), 3)
        ((50, 2), 0.9)
    """
    W = sparse_uniform(units, density, random)
    largest = spectral_radius(W)
    if not largest > 0:
        raise InputError(
            "density", f"{density} of {units} units: every eigenvalue is 0", "more connections, or more units"
        )
    U = random.uniform(-1, 1, (units, inputs)) * np.asarray(input_scaling, dtype=np.float64)
    F = feedback * random.uniform(-1, 1, (units, outputs if feedback else 0))
    return Weights(W * (radius / largest), U, F, bias * random.uniform(-1, 1, units))


def sparse_uniform(units: int, density: float, random: np.random.Generator) -> sparse.csr_array:
    """(N, N) with the given density, and equally many entries in every row up to rounding."""
    per_row = np.full(units, int(density * units))
    per_row += random.random(units) < density * units - per_row
    columns = np.concatenate([np.sort(random.choice(units, count, replace=False)) for count in per_row])
    starts = np.concatenate([[0], np.cumsum(per_row)])
    values = random.uniform(-1, 1, len(columns))
    return sparse.csr_array((values, columns.astype(np.int32), starts.astype(np.int32)), shape=(units, units))


def spectral_radius(matrix: Any) -> float:
    """The largest |eigenvalue|, by Arnoldi iteration for large matrices.

    >>> rc.reservoir.spectral_radius([[0.0, 2.0], [0.5, 0.0]])
    1.0
    """
    try:
        W: Any = sparse.csr_array(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("matrix", type(matrix).__name__, f"a matrix of numbers ({error})") from None
    if W.ndim != 2 or W.shape[0] != W.shape[1] or not W.shape[0]:
        raise ShapeError("matrix", f"shape {W.shape}", "a square matrix")
    if not np.isfinite(W.data).all():
        raise InputError("matrix", "NaN or infinite entries", "finite numbers")
    if W.shape[0] > DENSE_BELOW:
        try:  # random spectra are dense at the edge: several eigenvalues converge much sooner than one
            found = eigs(W, k=6, ncv=64, which="LM", v0=np.ones(W.shape[0]), return_eigenvectors=False, tol=1e-10)
            return float(np.abs(found).max())
        except ArpackNoConvergence:
            pass
    return float(np.abs(np.linalg.eigvals(W.toarray())).max())


def effective_radius(W: Any, leak: float, decay: float = 1.0) -> float:
    """ρ(γW + (1 - aγ) I); above 1 the reservoir does not forget even without input (Jaeger 2007)."""
    if leak == decay == 1.0:
        return spectral_radius(W)
    return spectral_radius(leak * W + (1 - decay * leak) * sparse.eye_array(W.shape[0]))
