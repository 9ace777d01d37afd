"""Backtest: a forecaster compared with naive forecasts from many origins."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..inspect.forecast_fan import fan_figure
from .metrics import coverage, crps, naive, naive_error, smape

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True)
class Backtest:
    """`scores[method][measure]`: MAE, MASE, sMAPE, CRPS, and for the model the coverage of its intervals.

    What was scored: the series `names`, the values `pasts` before every origin, the `actual` values (n, steps), the
    `quantiles` (n, steps, Q) at `levels`, and the best `naive` forecast (n, steps).

    **Example**

        >>> import numpy as np, recurra as rc
        >>> y = np.sin(np.arange(120) / 2) + np.random.default_rng(0).normal(size=120)
        >>> model = rc.Forecaster("gru", horizon=4, hidden_size=8, epochs=1, random_state=0).fit(y[:80])
        >>> found = model.backtest(y, windows=10)
        >>> list(found.coverage_by_step())
        [0.95, 0.9, 0.8]
        >>> found.coverage_by_step()[0.9].shape
        (4,)
    """

    scores: dict[str, dict[str, float]]
    origins: int
    steps: int
    pasts: list[np.ndarray] = field(repr=False, compare=False)
    actual: np.ndarray = field(repr=False, compare=False)
    quantiles: np.ndarray = field(repr=False, compare=False)
    levels: tuple[float, ...] = field(repr=False, compare=False)
    naive: np.ndarray = field(repr=False, compare=False)
    names: list[str] = field(repr=False, compare=False)

    def coverage_by_step(self) -> dict[float, np.ndarray]:
        """For the 95, 90 and 80 % intervals, the share (steps,) of true values inside at each step ahead."""
        found = {}
        for width in shown_intervals(self.levels):
            low, high = (_nearest(self.levels, at) for at in interval_levels(width))
            inside = (self.quantiles[:, :, low] <= self.actual) & (self.actual <= self.quantiles[:, :, high])
            found[width] = inside.mean(axis=0)
        return found

    def plot(self) -> "Figure":
        """A plotly figure: the last forecast of every series (at most four) as a fan of intervals, and what came."""
        last = {name: k for k, name in enumerate(self.names)}
        rows = list(last.values())
        pasts = [self.pasts[k] for k in rows]
        return fan_figure(list(last), pasts, self.quantiles[rows], self.levels, self.actual[rows])

    def __str__(self) -> str:
        measures = list(self.scores["model"])
        width = max(map(len, self.scores)) + 2
        head = f"{f'{self.origins} origins, {self.steps} steps':<{width}}".rstrip()
        lines = [head, " " * width + "".join(f"{m:>14}" for m in measures)]
        for method, found in self.scores.items():
            cells = (f"{found[m]:14.4g}" if m in found else " " * 14 for m in measures)
            lines.append(f"{method:<{width}}" + "".join(cells).rstrip())
        return "\n".join(lines)


def compare_with_naive(
    pasts: list[np.ndarray],
    actual: np.ndarray,
    quantiles: np.ndarray,
    levels: tuple[float, ...],
    season: int,
    intervals: tuple[float, ...],
    names: Sequence[str],
) -> Backtest:
    """Score quantiles (n, steps, Q) and naive forecasts from each past against actual values (n, steps)."""
    steps = actual.shape[1]
    units = np.array([naive_error(past, season) for past in pasts])
    points = {"model": quantiles[:, :, levels.index(0.5)], "naive": np.stack([naive(p, steps) for p in pasts])}
    if season > 1:
        points["seasonal naive"] = np.stack([naive(p, steps, season) for p in pasts])
    scores = {name: _scores(actual, found, units) for name, found in points.items()}
    scores["model"]["CRPS"] = crps(actual, quantiles, levels)
    for width in intervals:
        low, high = (_nearest(levels, at) for at in interval_levels(width))
        scores["model"][f"inside {width:.0%}"] = coverage(actual, quantiles[:, :, low], quantiles[:, :, high])
    plain = points["seasonal naive" if season > 1 else "naive"]
    return Backtest(scores, len(pasts), steps, pasts, actual, quantiles, levels, plain, list(names))


def _scores(actual: np.ndarray, found: np.ndarray, units: np.ndarray) -> dict[str, float]:
    errors = np.abs(actual - found)
    usable = units > 0  # a constant past gives MASE no unit
    scaled = float((errors[usable].mean(axis=1) / units[usable]).mean()) if usable.any() else float("nan")
    mae = float(errors.mean())
    return {"MAE": mae, "MASE": scaled, "sMAPE": smape(actual, found), "CRPS": mae}


def interval_levels(level: float) -> tuple[float, float]:
    """The two quantile levels of a central interval."""
    return (1 - level) / 2, (1 + level) / 2


def _nearest(levels: tuple[float, ...], level: float) -> int:
    return min(range(len(levels)), key=lambda k: abs(levels[k] - level))


def shown_intervals(levels: tuple[float, ...]) -> tuple[float, ...]:
    """Those of the 95, 90 and 80 % intervals whose levels are known."""
    return tuple(width for width in central_intervals(levels) if width in (0.8, 0.9, 0.95))


def central_intervals(levels: tuple[float, ...]) -> tuple[float, ...]:
    """The probabilities of the central intervals between pairs of levels, widest first."""
    return tuple(round(1 - 2 * low, 9) for low in levels if low < 0.5 and any(abs(1 - low - h) < 1e-9 for h in levels))
