"""The network of the forecaster, and its quantile loss."""

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..layers import Recurrent
from ..readout import Readout
from .embedded_columns import EmbeddedColumns


class ForecastNetwork(nn.Module):
    """Recurrent layers over the window; at the steps ahead, quantiles of the errors of the base forecast.

    `columns` has for every input column its number of categories, or 0 for numbers; codes are embedded. The buffer
    `departures` (horizon, Q) has the quantiles of the errors on past windows, where training starts. `share` is how
    much of what the network adds to them is used, from 0 to 1: validation decides.
    """

    departures: Tensor
    share: Tensor

    def __init__(self, cell: type[Cell] | str, columns: tuple[int, ...], quantiles: int, horizon: int, layers: dict):
        super().__init__()
        self.embedded = EmbeddedColumns(columns)
        self.recurrent = Recurrent(cell, self.embedded.width, **layers)
        self.readout = Readout(self.recurrent, quantiles)
        nn.init.zeros_(self.readout.V)
        self.horizon = horizon
        self.register_buffer("departures", torch.zeros(horizon, quantiles))
        self.register_buffer("share", torch.ones(()), persistent=False)

    def forward(self, x: Tensor, lengths: Tensor, steps: int | None = None) -> Tensor:
        """Windows (T, B, columns) and lengths (B,) → quantiles (B, steps, Q) of the errors of the base forecast.

        `steps` is at most the horizon.
        """
        steps = self.horizon if steps is None else steps
        y, _ = self.recurrent(self.embedded(x), lengths=lengths)  # (T, B, H)
        ahead = torch.arange(steps, device=x.device)
        at = lengths - steps + ahead[:, None]  # (steps, B)
        lanes = torch.arange(x.shape[1], device=x.device)
        usual = self.departures[:steps, None]  # (steps, 1, Q)
        return (self.share * self.readout(y[at, lanes]) + usual).transpose(0, 1)


class QuantileLoss:
    """The mean pinball loss of quantiles (B, steps, Q) and targets (B, steps), one value per window."""

    def __init__(self, levels: tuple[float, ...]):
        self.levels = levels

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        missed = target[:, :, None] - output
        tau = output.new_tensor(self.levels)
        return torch.maximum(tau * missed, (tau - 1) * missed).mean(dim=(1, 2))
