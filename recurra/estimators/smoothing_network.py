"""ES-RNN as the network of the forecaster: it forecasts the values themselves, beside the base forecast.

It reads windows, as all networks of the forecaster do, so that the first season is the one that a window begins with.
Values enter as logarithms relative to the last one. In a series that is not positive they are relative values divided
by `FLAT`, whose exponentials are so near to 1 that factors act as summands (Holt & Winters' additive form).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..cell import Cell
from ..models import ESRNN
from .forecast_network import QuantileLoss
from .linear import History
from .training_options import to_int

if TYPE_CHECKING:
    from .forecaster import Forecaster

FLAT = 10.0  # spreads of the window that change a value by a factor e, where a series is not positive
LARGEST = 16.0  # of logarithms, which single precision and `SMALLEST` of es_rnn.py hold
COLUMNS = 6
DILATION = (1, 2, 4, 8)


class SmoothingNetwork(nn.Module):
    """An `ESRNN` whose forecasts are given as errors of the base forecast, as `ForecastNetwork` gives them.

    Series have numbers in the order of `fit`; the last number is that of any other, whose smoothing is the mean of all.
    `departures` (horizon, Q) are the usual errors of the base forecast; `share` is how far the forecast goes from those
    to the forecast of the network.
    """

    departures: Tensor
    share: Tensor

    def __init__(
        self,
        cell: type[Cell] | str,
        series: Sequence[str],
        horizon: int,
        seasons: Sequence[int],
        window: int,
        quantiles: Sequence[float],
        layers: dict[str, Any],
    ):
        super().__init__()
        options: dict[str, Any] = {"dilation": DILATION, **layers}
        self.model = ESRNN(
            len(series) + 1, horizon, seasons, cell, window=window, quantiles=quantiles, learn_starts=False, **options
        )
        self.horizon, self.numbers = horizon, {name: number for number, name in enumerate(series)}
        self.register_buffer("departures", torch.zeros(horizon, len(quantiles)))
        self.register_buffer("share", torch.ones(()), persistent=False)

    def forward(self, x: Tensor, lengths: Tensor, steps: int | None = None) -> Tensor:
        """Windows (T, B, 6) of `smoothing_inputs` and lengths (B,) → quantiles (B, steps, Q) of the base's errors."""
        steps = self.horizon if steps is None else steps
        lanes = torch.arange(x.shape[1], device=x.device)
        found = self.model(x[..., 0].exp(), x[0, :, 3].long(), lengths - steps)[:, :steps].log()  # (B, steps, Q)
        size, is_positive, unit = (x[0, :, k, None, None] for k in (1, 2, 4))
        relative = torch.where(is_positive > 0, size * found.clamp_max(LARGEST).expm1(), FLAT * found)
        at = lengths - steps + torch.arange(steps, device=x.device)[:, None]  # (steps, B)
        base = x[at, lanes, 5].t()[:, :, None]
        usual = self.departures[:steps]
        return usual + self.share * ((relative - base) / unit - usual)

    def loss(self, x: Tensor, lengths: Tensor) -> Tensor:
        """(B,): the loss of `ESRNN` over all steps of windows whose steps ahead are known."""
        return self.model.loss(x[..., 0].exp(), x[0, :, 3].long(), lengths)

    @torch.no_grad()
    def set_usual_smoothing(self) -> None:
        """Give series that were not trained on the mean smoothing of those that were."""
        weights = self.model.coefficients.weight
        weights[-1] = weights[:-1].mean(dim=0)


def smoothing_inputs(past: History, base: np.ndarray, number: int, unit: float, window: int) -> np.ndarray:
    """(L + steps, 6): logarithms; the last value in spreads; whether the series is positive; the number of the series;
    the unit of errors; the base forecast of the steps ahead. A past shorter than `window` begins with its first value.
    """
    steps, positive = len(base), past.log is not None
    values = _logarithms(past)
    values = np.concatenate([np.full(max(0, window - len(values)), values[0]), values, np.zeros(steps)])
    size = (past.level + past.units.mean / past.units.scale) / past.spread
    constant = np.tile([size, float(positive), float(number), unit], (len(values), 1))
    forecast = np.concatenate([np.zeros(len(values) - steps), base])
    return np.column_stack([np.clip(values, -LARGEST, LARGEST), constant, forecast])


def with_actual(inputs: np.ndarray, past: History, actual: np.ndarray) -> np.ndarray:
    """The same inputs with the values of the steps ahead, to train on."""
    found = inputs.copy()
    found[-len(actual) :, 0] = np.clip(_logarithms(past, actual), -LARGEST, LARGEST)
    return found


def _logarithms(past: History, relative: np.ndarray | None = None) -> np.ndarray:
    """Logarithms relative to the last value, of the past or of values minus the level, in spreads."""
    if past.log is None:
        return (past.values if relative is None else relative) / FLAT
    found = past.log.values if relative is None else past.to_log(relative)
    return found * past.log.spread * past.units.log_scale


def build_smoothing(model: "Forecaster") -> SmoothingNetwork:
    """An untrained network for the series of a forecaster."""
    windows, horizon = model.windows_, to_int(model.horizon)
    seasons = [season for season in windows.seasons if 1 < season <= windows.context // 2]
    layers = {"hidden_size": to_int(model.hidden_size), **(model.cell_options or {})}
    window = min(min(seasons, default=horizon), windows.context)
    return SmoothingNetwork(model.cell, tuple(windows.series), horizon, seasons, window, tuple(model.quantiles), layers)


def network_inputs(model: "Forecaster", past: History, base: np.ndarray) -> np.ndarray:
    """What the network of a forecaster reads of a window and its base forecast (steps,): (L + steps, columns)."""
    if model.network != "es_rnn":
        return model.windows_.inputs(past, base)
    network: SmoothingNetwork = model.network_
    number = network.numbers.get(past.name, len(network.numbers))
    return smoothing_inputs(past, base, number, model.base_.shares(past).unit, network.model.window)


class SmoothingLoss:
    """For `rc.train.fit`: all steps of a window in training, the steps ahead in validation, as the forecast is judged.

    Validation's targets are the errors (B, horizon) of the base forecast.
    """

    def __init__(self, levels: tuple[float, ...]):
        self.ahead = QuantileLoss(levels)

    def count(self, batch: Any) -> int:
        return batch.inputs.shape[1]

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        if model.training:
            return {"loss": model.loss(batch.inputs, batch.lengths).sum()}, None
        found = model(batch.inputs, batch.lengths)
        return {"loss": self.ahead(found, batch.targets.to(found)).sum()}, None
