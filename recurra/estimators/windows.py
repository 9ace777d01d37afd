"""A history and the steps to come as one sequence, the same for training and for forecasting.

A step has the columns: the value, less the last one known (to come: the naive forecast in its place); whether the value
is known; the last value known, in two units; constants of the series; covariates, and how they were when the naive
forecast was a value. All are scaled, the values once more by how they spread in the window: a series whose swings grow
stays inside what was learned, and its intervals grow with it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from recurra.cell import Cell
from recurra.estimators.metrics import naive
from recurra.layers import Readout, Recurrent

LEAST = 0.1  # the least spread of a window, in that of its series: stillness is not blown up


class Window(NamedTuple):
    """What the network reads, and how its answers z become values again: level + spread · z."""

    inputs: np.ndarray  # (L + steps, D)
    level: float
    spread: float


def window(past: np.ndarray, known: np.ndarray, static: np.ndarray, steps: int, season: int) -> Window:
    """From scaled values: past (L,), known (L + steps, F), static (S,)."""
    level, spread = float(past[-1]), max(float(past.std()), LEAST)
    values = (np.concatenate([past, naive(past, steps, season)]) - level) / spread
    seen = np.concatenate([np.ones(len(past)), np.zeros(steps)])
    constants = np.broadcast_to(np.array([level, level / spread, *static]), (len(values), 2 + len(static)))
    then = known[source(len(past), steps, season)]
    return Window(np.column_stack([values, seen, constants, known, then]), level, spread)


def source(past: int, steps: int, season: int) -> np.ndarray:
    """(past + steps,): which step the naive forecast of a step repeats."""
    period = season if past >= season else 1
    return np.concatenate([np.maximum(np.arange(past) - period, 0), past - period + np.arange(steps) % period])


def width(known: int, static: int) -> int:
    """Columns of a window."""
    return 4 + static + 2 * known


@dataclass(frozen=True)
class Origin:
    """A place to forecast from: the first step that is not known, in one series."""

    series: int
    at: int


class ForecastNetwork(nn.Module):
    """Any cell over the window; at the steps to come, quantiles of the departure from the naive forecast."""

    def __init__(self, cell: type[Cell] | str, inputs: int, quantiles: int, horizon: int, layers: dict):
        super().__init__()
        self.recurrent = Recurrent(cell, inputs, **layers)
        self.readout = Readout(self.recurrent, quantiles)
        nn.init.zeros_(self.readout.V)  # training starts at the naive forecast
        self.horizon = horizon

    def forward(self, x: Tensor, lengths: Tensor, steps: int | None = None) -> Tensor:
        """(B, steps, Q), relative to the last value known."""
        steps = self.horizon if steps is None else steps
        y, _ = self.recurrent(x, lengths=lengths)  # (T, B, H)
        at = lengths - steps + torch.arange(steps, device=x.device)[:, None]  # (steps, B)
        lanes = torch.arange(x.shape[1], device=x.device)
        return (self.readout(y[at, lanes]) + x[at, lanes, :1]).transpose(0, 1)


class QuantileLoss:
    """The mean pinball loss of (B, steps, Q) quantiles against targets (B, steps), one value a window."""

    def __init__(self, levels: tuple[float, ...]):
        self.levels = levels

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        missed = target[:, :, None] - output
        tau = output.new_tensor(self.levels)
        return torch.maximum(tau * missed, (tau - 1) * missed).mean(dim=(1, 2))
