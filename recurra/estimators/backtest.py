"""A forecaster held against the naive forecasts, from many origins in a row."""

from dataclasses import dataclass

import numpy as np

from .metrics import coverage, crps, naive, naive_error, smape


@dataclass(frozen=True)
class Backtest:
    """`scores[method][measure]`: MAE, MASE, sMAPE, CRPS; and for the model the share of values its intervals held."""

    scores: dict[str, dict[str, float]]
    origins: int
    steps: int

    def __str__(self) -> str:
        measures = list(self.scores["model"])
        width = max(map(len, self.scores)) + 2
        head = f"{f'{self.origins} origins, {self.steps} steps':<{width}}".rstrip()
        lines = [head, " " * width + "".join(f"{m:>14}" for m in measures)]
        for method, found in self.scores.items():
            cells = (f"{found[m]:14.4g}" if m in found else " " * 14 for m in measures)
            lines.append(f"{method:<{width}}" + "".join(cells).rstrip())
        return "\n".join(lines)


def compare(
    pasts: list[np.ndarray],
    wanted: np.ndarray,
    quantiles: np.ndarray,
    levels: tuple[float, ...],
    season: int,
    intervals: tuple[float, ...],
) -> Backtest:
    """Quantiles (n, steps, Q) and naive forecasts against wanted (n, steps), each from its own past."""
    steps = wanted.shape[1]
    units = np.array([naive_error(past, season) for past in pasts])
    points = {"model": quantiles[:, :, levels.index(0.5)], "naive": np.stack([naive(p, steps) for p in pasts])}
    if season > 1:
        points["seasonal naive"] = np.stack([naive(p, steps, season) for p in pasts])
    scores = {name: _scores(wanted, found, units) for name, found in points.items()}
    scores["model"]["CRPS"] = crps(wanted, quantiles, levels)
    for width in intervals:
        low, high = (min(range(len(levels)), key=lambda k: abs(levels[k] - at)) for at in ends(width))
        scores["model"][f"inside {width:.0%}"] = coverage(wanted, quantiles[:, :, low], quantiles[:, :, high])
    return Backtest(scores, len(pasts), steps)


def _scores(wanted: np.ndarray, found: np.ndarray, units: np.ndarray) -> dict[str, float]:
    errors = np.abs(wanted - found)
    usable = units > 0  # MASE has no unit on a past that never changes
    scaled = float((errors[usable].mean(axis=1) / units[usable]).mean()) if usable.any() else float("nan")
    mae = float(errors.mean())
    return {"MAE": mae, "MASE": scaled, "sMAPE": smape(wanted, found), "CRPS": mae}


def ends(level: float) -> tuple[float, float]:
    """The quantile levels at the ends of a central interval."""
    return (1 - level) / 2, (1 + level) / 2


def symmetric(levels: tuple[float, ...]) -> tuple[float, ...]:
    """The central intervals that pairs of levels span, widest first."""
    return tuple(round(1 - 2 * low, 9) for low in levels if low < 0.5 and any(abs(1 - low - h) < 1e-9 for h in levels))
