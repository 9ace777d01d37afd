"""Quantiles of a fitted forecaster at any origins: within the horizon, and beyond it along sampled paths."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from .calibration import apply_corrections
from .linear import History
from .panel import Panel
from .sampled_paths import forecast_beyond
from .windows import Origin

if TYPE_CHECKING:
    from .forecaster import Forecaster

PREDICT_BATCH = 256  # windows predicted at a time


def forecast_quantiles(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> np.ndarray:
    """(n, steps, Q): calibrated quantiles in the units of the data."""
    pasts = [model.windows_.history(given, origin, steps) for origin in origins]
    if steps <= model.horizon:
        found = list(_scaled_quantiles(model, pasts))
    else:
        found = [_beyond(model, past, steps) for past in pasts]
    each = zip(origins, found, strict=True)
    return np.stack([model.windows_.scaling(given, o.series).invert(q) for o, q in each])


@torch.no_grad()
def network_quantiles(model: "Forecaster", pasts: list[History]) -> np.ndarray:
    """(n, steps, Q): sorted quantiles of the network, before calibration."""
    found = []
    for first in range(0, len(pasts), PREDICT_BATCH):
        some = pasts[first : first + PREDICT_BATCH]
        windows = (model.windows_.inputs(past, model.linear_(past)) for past in some)
        inputs = [torch.tensor(window, dtype=model.network_.departures.dtype) for window in windows]
        lengths, steps = torch.tensor([len(x) for x in inputs]), len(some[0].covariates)
        found.append(model.network_(torch.nn.utils.rnn.pad_sequence(inputs), lengths, steps).double().numpy())
    return np.sort(np.concatenate(found), axis=-1)


def _scaled_quantiles(model: "Forecaster", pasts: list[History]) -> np.ndarray:
    """(n, steps, Q): calibrated quantiles in the units of the scaled series."""
    level, spread = (np.array([getattr(p, name) for p in pasts])[:, None, None] for name in ("level", "spread"))
    return level + spread * apply_corrections(network_quantiles(model, pasts), model.shifts_)


def _beyond(model: "Forecaster", past: History, steps: int) -> np.ndarray:
    """(steps, Q): quantiles of more steps than the horizon, in the units of the scaled series."""
    windows = model.windows_
    before, context = past.level + past.spread * past.values, windows.context

    def continue_paths(paths: np.ndarray, ahead: int) -> np.ndarray:
        stop = len(before) + paths.shape[1]
        known = past.known[max(0, stop - context) : stop + ahead]
        values = (np.concatenate([before, path])[-context:] for path in paths)
        return _scaled_quantiles(model, [windows.history_of(v, known, past.static) for v in values])

    return forecast_beyond(continue_paths, steps, tuple(model.quantiles), model.ranks_, windows.season)
