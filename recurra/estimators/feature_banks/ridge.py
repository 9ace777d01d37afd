"""Ridge regression in closed form, its penalty chosen by the leave-one-out error, which is known without refitting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .overlaps import Held

PENALTIES = np.logspace(-3, 2, 11)  # times the mean eigenvalue of the samples' products
CONSTANT = 1e-6  # a feature that deviates less is left out


@dataclass
class Ridge:
    """`scores = (features - mean) @ coefficients + intercept`."""

    mean: np.ndarray  # (p,)
    coefficients: np.ndarray  # (p, q) in float32
    intercept: np.ndarray  # (q,)
    left_out: np.ndarray | None = None  # (n, q): the prediction of every training sample by a fit without it

    @classmethod
    def fit(
        cls,
        blocks: Sequence[np.ndarray],
        importance: Sequence[float],
        targets: np.ndarray,
        weights: np.ndarray,
        held: Sequence[Held] | None = None,
    ) -> "Ridge":
        """Fit targets (n, q) to blocks of features (n, p) with sample weights (n,).

        Features are standardised. The squares of a block's features add up to its importance, whatever its size. `held`
        are samples to leave out together; by default each is left out alone.
        """
        share = weights / weights.sum()
        means = [_mean(share, block) for block in blocks]
        deviations = [block.std(axis=0, dtype=np.float64) for block in blocks]  # light samples count, or they stand out
        scales = [_scale(deviation, factor) for deviation, factor in zip(deviations, importance, strict=True)]
        intercept, root = share @ targets, np.sqrt(weights)[:, None]
        centred = [_centred(block, mean, scale, root) for block, mean, scale in zip(blocks, means, scales, strict=True)]
        wide = sum(block.shape[1] for block in blocks) >= len(targets)
        solve = _solve_samples if wide else _solve_features
        coefficients, errors = solve(centred, root * (targets - intercept), root[:, 0], held)
        scaled = (coefficients * np.concatenate(scales)[:, None]).astype(np.float32)
        return cls(np.concatenate(means), scaled, intercept, targets - errors / np.maximum(root, 1e-12))

    def scores(self, features: np.ndarray) -> np.ndarray:
        """(n, q) of features (n, p)."""
        return (features - self.mean) @ self.coefficients + self.intercept


def _mean(share: np.ndarray, block: np.ndarray) -> np.ndarray:
    """The weighted mean of every column in float64, 256 rows at a time."""
    rows = range(0, len(block), 256)
    return sum(share[k : k + 256] @ block[k : k + 256].astype(np.float64) for k in rows)  # pyrefly: ignore


def _centred(block: np.ndarray, mean: np.ndarray, scale: np.ndarray, root: np.ndarray) -> np.ndarray:
    """Weighted rows in float32, without a copy in float64."""
    found = block.astype(np.float32)
    found -= mean.astype(np.float32)
    found *= scale.astype(np.float32)
    found *= root.astype(np.float32)
    return found


def _scale(deviation: np.ndarray, importance: float) -> np.ndarray:
    used = deviation > CONSTANT
    return np.where(used, np.sqrt(importance / max(1, used.sum())) / np.where(used, deviation, 1.0), 0.0)


def _left_out_errors(
    residuals: np.ndarray, diagonal: np.ndarray, matrix: Callable[[np.ndarray], np.ndarray], held: Sequence[Held] | None
) -> np.ndarray:
    """(n, q): the errors of fits without each sample, or without each of the blocks `held`.

    `matrix` gives the block of the matrix with this diagonal whose inverse turns residuals into such errors.
    """
    if held is None:
        return residuals / diagonal[:, None]
    found = np.empty_like(residuals)
    for rows, predicted in held:
        block = matrix(rows) + 1e-12 * diagonal[rows].mean() * np.eye(len(rows))
        found[rows[predicted]] = np.linalg.solve(block, residuals[rows])[predicted]
    return found


def _solve_samples(
    blocks: list[np.ndarray], targets: np.ndarray, root: np.ndarray, held: Sequence[Held] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (p, q) and left-out errors (n, q) by the products of samples, where these are fewer."""
    products = sum(block.astype(np.float64) @ block.T.astype(np.float64) for block in _narrow(blocks))
    values, vectors = np.linalg.eigh(products)
    values = np.maximum(values, 0.0)
    ones = root / np.linalg.norm(root)
    free = np.abs(ones @ vectors) > 0.99  # the direction of the intercept, which has no penalty
    turned = vectors.T @ targets
    best = None
    for penalty in PENALTIES * max(values.mean(), 1e-12):
        inverse = np.where(free, 0.0, 1 / (values + penalty))
        dual = vectors @ (inverse[:, None] * turned)
        diagonal = np.maximum(np.square(vectors) @ inverse, 1e-12)
        errors = _left_out_errors(dual, diagonal, lambda rows, by=inverse: (vectors[rows] * by) @ vectors[rows].T, held)
        if best is None or np.square(errors).sum() < best[0]:
            best = np.square(errors).sum(), dual, errors
    assert best is not None
    dual = best[1].astype(np.float32)
    return np.concatenate([block.T @ dual for block in blocks]).astype(np.float64), best[2]


def _solve_features(
    blocks: list[np.ndarray], targets: np.ndarray, root: np.ndarray, held: Sequence[Held] | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same by the products of features, where these are fewer."""
    rows = np.concatenate(blocks, axis=1).astype(np.float64)
    values, vectors = np.linalg.eigh(rows.T @ rows)
    values, turned = np.maximum(values, 0.0), vectors.T @ (rows.T @ targets)
    rows = rows @ vectors  # (n, p)
    constant = np.square(root) / np.square(root).sum()
    best = None
    for penalty in PENALTIES * max(values.sum() / len(targets), 1e-12):
        inverse = 1 / (values + penalty)
        residual = targets - rows @ (inverse[:, None] * turned)
        diagonal = np.maximum(1 - np.square(rows) @ inverse - constant, 1e-6)
        unit = root / np.linalg.norm(root)

        def matrix(at: np.ndarray, by: np.ndarray = inverse, unit: np.ndarray = unit) -> np.ndarray:
            return np.eye(len(at)) - (rows[at] * by) @ rows[at].T - np.outer(unit[at], unit[at])

        errors = _left_out_errors(residual, diagonal, matrix, held)
        if best is None or np.square(errors).sum() < best[0]:
            best = np.square(errors).sum(), inverse, errors
    assert best is not None
    return vectors @ (best[1][:, None] * turned), best[2]


def _narrow(blocks: list[np.ndarray], width: int = 4096):
    """Blocks of at most `width` columns, which bounds the memory of their copies."""
    for block in blocks:
        for first in range(0, block.shape[1], width):
            yield block[:, first : first + width]
