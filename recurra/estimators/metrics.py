"""How good a forecast is: MASE, sMAPE, CRPS from quantiles, and the coverage of intervals."""

from collections.abc import Sequence

import numpy as np


def naive(y: np.ndarray, steps: int, season: int = 1) -> np.ndarray:
    """The last season again and again; the last value where there is no whole season yet."""
    period = season if len(y) >= season else 1
    return y[len(y) - period + np.arange(steps) % period]


def naive_error(y: np.ndarray, season: int = 1) -> float:
    """The mean absolute error of the (seasonal) naive forecast one step ahead, inside y: what MASE is measured in."""
    period = season if len(y) > season else 1
    return float(np.abs(y[period:] - y[:-period]).mean()) if len(y) > 1 else float("nan")


def mase(wanted: np.ndarray, forecast: np.ndarray, past: np.ndarray, season: int = 1) -> float:
    """Mean absolute scaled error (Hyndman & Koehler 2006): 1 is as good as the naive forecast is on the past."""
    return float(np.abs(wanted - forecast).mean() / naive_error(past, season))


def smape(wanted: np.ndarray, forecast: np.ndarray) -> float:
    """Symmetric mean absolute percentage error, 0 to 200; a forecast of 0 for 0 is no error."""
    size = np.abs(wanted) + np.abs(forecast)
    return float(200 * np.mean(np.abs(wanted - forecast) / np.where(size == 0, 1.0, size)))


def pinball(wanted: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """The quantile loss of (…, Q) quantiles against wanted (…)."""
    missed = wanted[..., None] - quantiles
    tau = np.asarray(levels)
    return np.maximum(tau * missed, (tau - 1) * missed)


def crps(wanted: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> float:
    """Continuous ranked probability score: twice the quantile loss, integrated over the levels by the trapezium rule.

    Beyond the outermost levels the loss is taken to fall to 0 linearly. The CRPS of a point is its absolute error.
    """
    loss = 2 * pinball(wanted, quantiles, levels)
    tau = np.concatenate([[0.0], np.asarray(levels, dtype=np.float64), [1.0]])
    ends = np.zeros((*loss.shape[:-1], 1))
    whole = np.concatenate([ends, loss, ends], axis=-1)
    return float(np.trapezoid(whole, tau, axis=-1).mean())


def coverage(wanted: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """The share of values inside their interval."""
    return float(np.mean((lower <= wanted) & (wanted <= upper)))
