"""Paths of a forecaster with a likelihood: every step is drawn from the distribution that the steps before it give."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..models.seq2seq.search import select_rows
from ..train import randomness
from .autoregressive import OriginUnits, covariates_by_step, layer_inputs, linear_constants
from .panel import Panel
from .windows import Origin

if TYPE_CHECKING:
    from .forecaster import Forecaster

PATHS = 400  # from which quantiles are taken
MAX_ROWS = 25_600  # paths that are continued at a time


def likelihood_quantiles(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> np.ndarray:
    """(n, steps, Q): quantiles of sampled paths, in the units of the data."""
    levels, apart = tuple(model.quantiles), max(1, MAX_ROWS // PATHS)
    found = []
    for first in range(0, len(origins), apart):
        paths = likelihood_paths(model, given, origins[first : first + apart], steps, PATHS, seed=0)
        method = "inverted_cdf" if model.network_.likelihood.counts else "linear"
        found.append(np.moveaxis(np.quantile(paths, levels, axis=1, method=method), 0, -1))
    return np.concatenate(found)


class Starts(NamedTuple):
    """Windows of several origins before their first step: n of them."""

    values: Tensor  # (n, context): scaled, right-aligned
    lengths: Tensor  # (n,)
    constants: Tensor  # (n, S): of the linear forecast
    covariates: Tensor  # (n, steps, F): of the linear forecast
    inputs: list[Tensor]  # (T, columns): of the layers, without the values of the steps ahead
    level: Tensor  # (n,): units of each window
    spread: Tensor
    scale: Tensor
    mean: Tensor  # (n,): of the series
    size: Tensor


@torch.no_grad()
def likelihood_paths(
    model: "Forecaster", given: Panel, origins: list[Origin], steps: int, paths: int, seed: int
) -> np.ndarray:
    """(n, paths, steps): possible courses after each origin, in the units of the data."""
    starts = _starts(model, given, origins, steps)
    rows = torch.arange(len(origins)).repeat_interleave(paths)
    with randomness.preserve_rng():
        torch.manual_seed(seed)
        scaled = _continue(model, starts, rows, steps)
    found = starts.mean[rows, None] + starts.size[rows, None] * scaled
    if model.network_.likelihood.counts:
        found = found.round()
    return found.reshape(len(origins), paths, steps).numpy()


def likelihood_windows(model: "Forecaster", given: Panel, origins: list[Origin]) -> tuple[Tensor, Tensor]:
    """What the layers read before and after each origin, with the true values: (T, n, columns), and lengths (n,)."""
    found = []
    for origin in origins:
        steps = min(int(model.horizon), len(given.y[origin.series]) - origin.at)
        past, first = model.windows_.history(given, origin, steps), max(0, origin.at - model.windows_.context)
        values = given.y[origin.series][first : origin.at + steps]
        scaled = model.windows_.scaling(given, origin.series).apply(values[:, None])[:, 0]
        units = OriginUnits.of(past, model.network_.likelihood)
        found.append(torch.tensor(layer_inputs(model.windows_, past, units, scaled), dtype=torch.float32))
    return torch.nn.utils.rnn.pad_sequence(found), torch.tensor([len(x) for x in found])


def _starts(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> Starts:
    windows, likelihood = model.windows_, model.network_.likelihood
    cut = [windows.window(given, origin, steps) for origin in origins]
    pasts = [windows.history_of(window) for window in cut]
    units = [OriginUnits.of(past, likelihood) for past in pasts]
    values = torch.zeros(len(cut), windows.context, dtype=torch.float64)
    for row, window in zip(values, cut, strict=True):
        row[windows.context - len(window.values) :] = torch.tensor(window.values)
    each = zip(pasts, units, cut, strict=True)
    dtype = model.network_.start.dtype
    inputs = [torch.tensor(layer_inputs(windows, past, unit, w.values), dtype=dtype) for past, unit, w in each]
    covariates = np.stack([covariates_by_step(windows, w.known)[len(w.values) :] for w in cut])
    level, spread, scale = (torch.tensor([getattr(u, name) for u in units]).double() for name in _UNITS)
    mean, size = (torch.tensor([getattr(w.units, name) for w in cut]).double() for name in ("mean", "scale"))
    lengths = torch.tensor([len(w.values) for w in cut])
    constants = torch.tensor(np.stack([linear_constants(windows, w) for w in cut]))
    return Starts(values, lengths, constants, torch.tensor(covariates), inputs, level, spread, scale, mean, size)


_UNITS = "level", "spread", "scale"


def _continue(model: "Forecaster", starts: Starts, rows: Tensor, steps: int) -> Tensor:
    """(rows, steps): the windows `rows`, each continued by its own draws, in the units of the scaled series."""
    network, lags = model.network_, (1, *model.windows_.seasons)
    context, counts = model.windows_.context, network.likelihood.counts
    layers = network.recurrent if float(network.share) else None
    state = _read_pasts(model, starts, rows) if layers is not None else None
    values, lengths = starts.values[rows], starts.lengths[rows]
    level, spread, scale, mean, size = (column[rows] for column in starts[5:])
    after = torch.stack([x[len(x) - steps :] for x in starts.inputs])[rows]  # (rows, steps, columns)
    drawn = torch.zeros(len(rows), steps, dtype=torch.float64)
    raw = network.start.expand(len(rows), -1)
    for k in range(steps):
        forecast = network.next_value(values, lengths, starts.constants[rows], starts.covariates[rows, k])
        center = (mean + size * forecast) / scale if counts else (forecast - level) / spread
        if layers is not None:
            x = after[:, k].clone()
            for column, lag in enumerate(lags):
                known = lengths >= lag
                before = (values[:, -lag] - level) / spread if lag <= context else torch.zeros_like(level)
                x[:, column] = torch.where(known, before, 0.0).to(x)
            y, state = layers.step(network.embedded(x), state)
            raw = network.start + network.share * network.readout(y)
        parameters = network.likelihood.parameters(raw.double(), center, scale)
        value = network.likelihood.distribution(parameters).sample()
        drawn[:, k] = (value - mean) / size if counts else level + spread * value
        values = torch.cat([values[:, 1:], drawn[:, k : k + 1]], dim=1)
        lengths = (lengths + 1).clamp(max=context)
    return drawn


def _read_pasts(model: "Forecaster", starts: Starts, rows: Tensor) -> object:
    """The state of the layers before the first step ahead, once for all paths of a window."""
    network = model.network_
    steps = starts.covariates.shape[1]
    pasts = [x[: len(x) - steps] for x in starts.inputs]
    padded = torch.nn.utils.rnn.pad_sequence(pasts)
    _, state = network.recurrent(network.embedded(padded), lengths=torch.tensor([len(x) for x in pasts]))
    return select_rows(network.recurrent, state, rows)
