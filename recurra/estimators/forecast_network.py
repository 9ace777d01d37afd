"""The network behind the forecaster, and what it learns by."""

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..layers import Recurrent
from ..readout import Readout


class ForecastNetwork(nn.Module):
    """Any cell over the window; at the steps to come, quantiles of the departure from the linear forecast.

    `departures` (horizon, Q), those of the linear forecast itself, are where the training starts.
    """

    departures: Tensor

    def __init__(self, cell: type[Cell] | str, inputs: int, quantiles: int, horizon: int, layers: dict):
        super().__init__()
        self.recurrent = Recurrent(cell, inputs, **layers)
        self.readout = Readout(self.recurrent, quantiles)
        nn.init.zeros_(self.readout.V)
        self.horizon = horizon
        self.register_buffer("departures", torch.zeros(horizon, quantiles))

    def forward(self, x: Tensor, lengths: Tensor, steps: int | None = None) -> Tensor:
        """(B, steps, Q), relative to the last value known."""
        steps = self.horizon if steps is None else steps
        y, _ = self.recurrent(x, lengths=lengths)  # (T, B, H)
        ahead = torch.arange(steps, device=x.device)
        at = lengths - steps + ahead[:, None]  # (steps, B)
        lanes = torch.arange(x.shape[1], device=x.device)
        usual = self.departures[ahead.clamp(max=self.horizon - 1), None]  # (steps, 1, Q)
        return (self.readout(y[at, lanes]) + usual + x[at, lanes, :1]).transpose(0, 1)


class QuantileLoss:
    """The mean pinball loss of (B, steps, Q) quantiles against targets (B, steps), one value a window."""

    def __init__(self, levels: tuple[float, ...]):
        self.levels = levels

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        missed = target[:, :, None] - output
        tau = output.new_tensor(self.levels)
        return torch.maximum(tau * missed, (tau - 1) * missed).mean(dim=(1, 2))
