"""Forecast metrics: MASE, sMAPE, CRPS from quantiles, coverage of intervals; and the naive forecast."""

from collections.abc import Sequence

import numpy as np


def naive(y: np.ndarray, steps: int, season: int = 1) -> np.ndarray:
    """The naive forecast (steps,): the last season repeated, or the last value without a full season."""
    period = season if len(y) >= season else 1
    return y[len(y) - period + np.arange(steps) % period]


def naive_error(y: np.ndarray, season: int = 1) -> float:
    """The mean absolute error of the (seasonal) naive forecast inside y: the unit of MASE."""
    period = season if len(y) > season else 1
    return float(np.abs(y[period:] - y[:-period]).mean()) if len(y) > 1 else float("nan")


def mase(actual: np.ndarray, forecast: np.ndarray, past: np.ndarray, season: int = 1) -> float:
    """Mean absolute scaled error (Hyndman & Koehler 2006): 1 equals the error of the naive forecast on the past."""
    return float(np.abs(actual - forecast).mean() / naive_error(past, season))


def smape(actual: np.ndarray, forecast: np.ndarray) -> float:
    """Symmetric mean absolute percentage error, 0 to 200; a forecast of 0 for 0 has error 0."""
    size = np.abs(actual) + np.abs(forecast)
    return float(200 * np.mean(np.abs(actual - forecast) / np.where(size == 0, 1.0, size)))


def pinball(actual: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """The quantile loss (…, Q) of quantiles (…, Q) and actual values (…)."""
    missed = actual[..., None] - quantiles
    tau = np.asarray(levels)
    return np.maximum(tau * missed, (tau - 1) * missed)


def crps(actual: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> float:
    """Continuous ranked probability score: twice the quantile loss, integrated over the levels by the trapezium rule.

    Beyond the outermost levels the loss falls linearly to 0. The CRPS of a point forecast is its absolute error.
    """
    loss = 2 * pinball(actual, quantiles, levels)
    tau = np.concatenate([[0.0], np.asarray(levels, dtype=np.float64), [1.0]])
    zero = np.zeros((*loss.shape[:-1], 1))
    loss = np.concatenate([zero, loss, zero], axis=-1)
    return float(np.trapezoid(loss, tau, axis=-1).mean())


def coverage(actual: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """The share of values inside their interval."""
    return float(np.mean((lower <= actual) & (actual <= upper)))
