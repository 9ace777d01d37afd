"""The network of a forecaster with a likelihood: the distribution of every next value, given those before it.

A linear regression on the window before a step forecasts it. Recurrent layers read the value before, those one season
before, and the covariates; they move the parameters of the likelihood away from constants around that forecast.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..cell import Cell
from ..errors import InputError
from ..layers import Recurrent
from ..readout import Readout
from .covariates import one_hot
from .embedded_columns import EmbeddedColumns
from .likelihoods import Likelihood
from .linear import History, LinearForecast
from .windows import MIN_SPREAD, Window, Windows

OFFSETS = 2  # columns before those that the layers read: the linear forecast, the scale of counts


class AutoregressiveNetwork(nn.Module):
    """Windows (T, B, columns) → parameters of the likelihood at the steps ahead.

    Buffers: the linear forecast (`linear`, `season`), the constants that training starts from (`start`), and `share`,
    how much of what the layers add to them is used.
    """

    linear: Tensor
    season: Tensor
    start: Tensor
    share: Tensor

    def __init__(self, cell: type[Cell] | str, windows: Windows, likelihood: Likelihood, horizon: int, layers: dict):
        super().__init__()
        self.likelihood, self.horizon = likelihood, horizon
        self.embedded = EmbeddedColumns(column_sizes(windows))
        self.recurrent = Recurrent(cell, self.embedded.width, **layers)
        if self.recurrent.bidirectional:
            raise InputError("cell_options", "bidirectional=True", "one direction: a likelihood is of the next value")
        self.readout = Readout(self.recurrent, likelihood.size)
        nn.init.zeros_(self.readout.V)
        self.register_buffer("linear", torch.zeros(windows.linear_width, dtype=torch.float64))
        self.register_buffer("season", torch.ones((), dtype=torch.int64))
        self.register_buffer("start", torch.zeros(likelihood.size))
        self.register_buffer("share", torch.ones(()), persistent=False)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Windows and lengths (B,) → (B, horizon, size): the parameters at the last `horizon` steps of each."""
        y, _ = self.recurrent(self.embedded(x[..., OFFSETS:]), lengths=lengths)  # (T, B, H)
        at = lengths - self.horizon + torch.arange(self.horizon, device=x.device)[:, None]  # (horizon, B)
        lanes = torch.arange(x.shape[1], device=x.device)
        offsets = x[at, lanes]
        return self.distribution_parameters(y[at, lanes], offsets[..., 0], offsets[..., 1]).transpose(0, 1)

    def distribution_parameters(self, y: Tensor, forecast: Tensor, scale: Tensor) -> Tensor:
        """The parameters (…, size) from the outputs of the layers (…, H)."""
        return self.likelihood.parameters(self.start + self.share * self.readout(y), forecast, scale)

    # ------------------------------------------------------------------------------------------ the linear forecast

    def set_linear(self, linear: LinearForecast) -> None:
        self.linear.copy_(torch.tensor(linear.weights[0]))
        self.season.fill_(linear.season)

    def next_value(self, values: Tensor, lengths: Tensor, constants: Tensor, covariates: Tensor) -> Tensor:
        """(n,): the linear forecast of the next value, in the units of the scaled series.

        It is `LinearForecast` for many windows: values (n, context), right-aligned, of which the last `lengths` (n,)
        are known, with constants (n, S) and covariates (n, F).
        """
        context, season = values.shape[1], int(self.season)
        known = torch.arange(context) >= context - lengths[:, None]
        count, last = lengths.to(values.dtype), values[:, -1]
        mean = torch.where(known, values, 0.0).sum(1) / count
        square = torch.where(known, (values - mean[:, None]) ** 2, 0.0).sum(1) / count
        spread = square.sqrt().clamp_min(MIN_SPREAD)
        relative = torch.where(known, (values - last[:, None]) / spread[:, None], 0.0)
        row = torch.cat([relative, torch.ones(len(values), 1), (last / spread)[:, None], constants, covariates], 1)
        repeated = torch.where(lengths >= season, relative[:, -season], 0.0) if season <= context else 0.0
        return last + spread * (repeated + row.to(self.linear) @ self.linear)


@dataclass
class OriginUnits:
    """Units of a window, fixed where its forecast begins: of deviations, and of counts."""

    level: float  # the last value, scaled
    spread: float
    scale: float  # 1 + the mean of the window, if it has counts; else 1

    @classmethod
    def of(cls, past: History, likelihood: Likelihood) -> "OriginUnits":
        if not likelihood.counts:
            return cls(past.level, past.spread, 1.0)
        mean = float((past.level + past.spread * past.values).mean())
        return cls(past.level, past.spread, 1.0 + max(0.0, past.units.mean + past.units.scale * mean))


def column_sizes(windows: Windows) -> tuple[int, ...]:
    """For every column that the layers read, its number of categories, or 0 for numbers."""
    shared = 4 + len(windows.seasons)  # columns of `Windows.inputs` before the covariates
    return (0,) * (4 + len(windows.seasons)) + windows.column_sizes[shared:]


def layer_inputs(windows: Windows, past: History, units: OriginUnits, values: np.ndarray) -> np.ndarray:
    """(T, columns): what the layers read at T steps, of which `values` (at most T - 1 …) are the scaled values.

    Values that are not given stay zero, for a forecast to fill in.
    """
    steps = len(past.inputs)
    relative = (values - units.level) / units.spread
    lags = [shifted(relative, lag, steps, windows.context) for lag in (1, *windows.seasons)]
    about = np.tile([units.level, units.level / units.spread, np.log(units.scale)], (steps, 1))
    return np.column_stack([*lags, about, past.inputs])


def shifted(values: np.ndarray, lag: int, steps: int, context: int) -> np.ndarray:
    """(steps,): the value `lag` steps before each step, zero where it is not known."""
    found = np.zeros(steps)
    if lag <= context:
        kept = values[: max(0, steps - lag)]
        found[lag : lag + len(kept)] = kept
    return found


def covariates_by_step(windows: Windows, known: np.ndarray) -> np.ndarray:
    """(T, F): the covariates (T, known) that the linear forecast of each step reads: its own, and those at the step
    that a naive forecast repeats."""
    steps, season = np.arange(len(known)), windows.season
    period = np.where(np.minimum(steps, windows.context) >= season, season, 1)
    sizes = windows.covariates.sizes("known")
    source = known[np.maximum(steps - period, 0)]
    return np.concatenate([one_hot(known, sizes), one_hot(source, sizes)], axis=1)


def linear_constants(windows: Windows, window: Window) -> np.ndarray:
    """(S,): the static features that the linear forecast reads."""
    return one_hot(window.static, windows.covariates.sizes("static"))


def right_aligned(values: np.ndarray, context: int) -> np.ndarray:
    """(T + 1, context): the values before every step and after the last; zeros where there are none."""
    padded: Any = np.concatenate([np.zeros(context), values])
    return np.lib.stride_tricks.sliding_window_view(padded, context)
