"""Readouts, D ≈ S V: ridge regression over a stream of chunks, and recursive least squares.

Ridge stores no states, only the triangular factor R of [S D] = Q R. R has the condition number of S, S'S its square;
closed-loop generation depends on the small singular values. Where the penalty is much larger than the rounding of S'S,
S'S is stored instead, which is faster.
"""

from collections.abc import Sequence

import numpy as np
import torch

from ..errors import InputError
from .number_checks import check_range, check_whole

DROWNED = 1e3 * np.finfo(np.float64).eps  # times |S|²: above this penalty, rounding of S'S does not matter
PENALTIES = tuple(10.0**k for k in range(-12, 3))  # tried by leave-one-out unless others are given


class Ridge:
    """V = argmin |D - S V|² + β |V|², with S arriving in chunks of any size.

    **Example**

        >>> import numpy as np
        >>> S = np.random.default_rng(0).normal(size=(200, 3))
        >>> ridge = rc.reservoir.Ridge()
        >>> ridge.add(S, S @ np.array([[1.0], [2.0], [3.0]]))
        >>> ridge.weights(1e-9).round(3).ravel().tolist()
        [1.0, 2.0, 3.0]
    """

    def __init__(self, smallest: float = 0.0, device: torch.device | str = "cpu") -> None:
        """`smallest`: the smallest penalty that `weights` will be called with. `device`: where products are made."""
        self.smallest, self.device = smallest, device
        self.gram: torch.Tensor | None = None  # [S D]'[S D], while that is accurate enough
        self.R: torch.Tensor | None = None

    def add(self, S: np.ndarray, D: np.ndarray) -> None:
        """Add rows (n, features) and their targets (n, q)."""
        new = torch.from_numpy(np.hstack([S, D])).to(self.device)
        self.features = S.shape[1]
        if self.R is None:
            product = new.T @ new if self.gram is None else self.gram.addmm(new.T, new)
            if self.smallest > DROWNED * float(product[: self.features].diagonal().sum()):
                self.gram = product
                return
        past = self._factor()
        self.gram = None
        self.R = torch.linalg.qr(new if past is None else torch.cat([past, new]), mode="r").R

    def _factor(self) -> torch.Tensor | None:
        """R with R'R = [S D]'[S D], up to its rounding."""
        if self.gram is None:
            return self.R
        values, vectors = torch.linalg.eigh(self.gram)
        return torch.linalg.qr(values.clamp_min(0.0).sqrt()[:, None] * vectors.T, mode="r").R

    def weights(self, penalty: float) -> np.ndarray:
        """V (features, q); with penalty 0 the minimum-norm solution."""
        if self.gram is not None and penalty >= self.smallest > 0:
            product = self.gram[: self.features] + penalty * torch.eye(self.features, self.gram.shape[1]).to(self.gram)
            factor = torch.linalg.cholesky(product[:, : self.features])
            return torch.cholesky_solve(product[:, self.features :], factor).cpu().numpy()
        left, right = self._parts()
        if penalty > 0:
            damped = torch.cat([left, penalty**0.5 * torch.eye(self.features).to(left)])
            padded = torch.cat([right, right.new_zeros(self.features, right.shape[1])])
            q, r = torch.linalg.qr(damped)
            return torch.linalg.solve_triangular(r, q.T @ padded, upper=True).cpu().numpy()
        return torch.linalg.lstsq(left.cpu(), right.cpu(), driver="gelsd").solution.numpy()  # only the CPU has gelsd

    def leave_one_out(self, penalties: Sequence[float]) -> "LeaveOneOut":
        """Accumulator for a second pass over the same rows that finds the best of several penalties."""
        left, right = self._parts()
        u, sigma, vt = torch.linalg.svd(left, full_matrices=False)
        V, values, projected = (part.cpu().numpy() for part in (vt.T, sigma, u.T @ right))
        return LeaveOneOut(V, values, projected, tuple(penalties))

    def _parts(self) -> tuple[torch.Tensor, torch.Tensor]:
        factor = self._factor()
        if factor is None:
            raise InputError("X", "no steps", "at least one step after the washout")
        return factor[: self.features, : self.features], factor[: self.features, self.features :]


class LeaveOneOut:
    """Exact leave-one-out squared errors for each penalty: residual / (1 - leverage)."""

    def __init__(self, V: np.ndarray, sigma: np.ndarray, projected: np.ndarray, penalties: tuple[float, ...]):
        self.V, self.sigma, self.projected, self.penalties = V, sigma, projected, penalties
        self.errors = np.zeros(len(penalties))

    def add(self, S: np.ndarray, D: np.ndarray) -> None:
        Z = S @ self.V  # (n, features)
        for k, penalty in enumerate(self.penalties):
            shrunk = 1 / (self.sigma**2 + penalty)
            residual = D - Z @ ((self.sigma * shrunk)[:, None] * self.projected)
            kept = np.maximum(1 - (Z**2) @ shrunk, np.finfo(np.float64).eps)  # 0 for a row that determines its own fit
            self.errors[k] += float(((residual / kept[:, None]) ** 2).sum())

    @property
    def best(self) -> float:
        return self.penalties[int(np.argmin(self.errors))]


class RecursiveLeastSquares:
    """Recursive least squares: one row at a time, older rows discounted by `forgetting` per step.

    With forgetting 1 it equals ridge with penalty `delta` after every row (Jaeger & Haas 2004 use it for adaptation).

    **Example**

        >>> import numpy as np
        >>> S = np.random.default_rng(0).normal(size=(200, 3))
        >>> readout = rc.reservoir.RecursiveLeastSquares(features=3, outputs=1, delta=1e-6)
        >>> readout.add(S, S @ np.array([[1.0], [2.0], [3.0]]))
        >>> readout.V.round(3).ravel().tolist()
        [1.0, 2.0, 3.0]
    """

    def __init__(self, features: int, outputs: int, delta: float, forgetting: float = 1.0):
        check_whole("features", features, 1), check_whole("outputs", outputs, 1)
        check_range("forgetting", forgetting, "a number in (0, 1]", lambda v: 0 < v <= 1)
        if not isinstance(delta, (int, float, np.number)) or not delta > 0:
            raise InputError("ridge", delta, "a positive number: recursive least squares starts from it")
        self.V = np.zeros((features, outputs))
        self.P = np.asfortranarray(np.eye(features) / delta)
        self.forgetting = forgetting

    def add(self, S: np.ndarray, D: np.ndarray) -> None:
        """Update from rows (n, features) in order."""
        from scipy.linalg.blas import dger  # pyrefly: ignore

        for s, d in zip(S, D, strict=True):
            projected = self.P @ s
            gain = projected / (self.forgetting + s @ projected)
            self.V += np.outer(gain, d - s @ self.V)
            self.P = dger(-1.0, gain, projected, a=self.P, overwrite_a=True)
            if self.forgetting != 1.0:
                self.P /= self.forgetting
