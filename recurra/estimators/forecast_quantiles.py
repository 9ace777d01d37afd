"""Quantiles of a fitted forecaster at any origins: within the horizon, and beyond it along sampled paths."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import InputError
from .calibration import apply_corrections
from .linear import History
from .panel import Panel
from .sampled_paths import forecast_beyond
from .windows import Origin, Window

if TYPE_CHECKING:
    from .forecaster import Forecaster

PREDICT_BATCH = 256  # windows predicted at a time


def forecast_quantiles(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> np.ndarray:
    """(n, steps, Q): calibrated quantiles in the units of the data; origins of a group of targets follow each other."""
    if steps <= model.horizon:
        found = _scaled_quantiles(model, [model.windows_.history(given, origin, steps) for origin in origins])
    else:
        _check_beyond(model, steps)
        windows, count = [model.windows_.window(given, origin, steps) for origin in origins], model.windows_.targets
        groups = (windows[k : k + count] for k in range(0, len(windows), count))
        found = np.concatenate([_beyond(model, group, steps) for group in groups])
    each = zip(origins, found, strict=True)
    return np.stack([model.windows_.scaling(given, o.series).invert(q) for o, q in each])


def _check_beyond(model: "Forecaster", steps: int) -> None:
    if not model.observed:
        return
    unknown = f"{', '.join(model.observed)} {'is' if len(model.observed) == 1 else 'are'} unknown after that"
    remedy = "fit with a longer horizon, or forecast them as targets too"
    raise InputError("h", steps, f"at most {model.horizon}, the horizon, since {unknown}; {remedy}")


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


def _beyond(model: "Forecaster", group: list[Window], steps: int) -> np.ndarray:
    """(targets, steps, Q): quantiles of more steps than the horizon, in the units of the scaled series."""
    windows = model.windows_
    context, past = windows.context, len(group[0].values)

    def continue_paths(paths: np.ndarray, ahead: int) -> np.ndarray:
        """Quantiles (n, targets, ahead, Q) after paths (n, targets, t)."""
        stop = past + paths.shape[2]
        known = group[0].known[max(0, stop - context) : stop + ahead]
        before = np.broadcast_to(np.stack([window.values for window in group]), (len(paths), len(group), past))
        values = np.concatenate([before, paths], axis=2)[:, :, -context:]
        each = [
            windows.history_of(
                window._replace(values=path[k], known=known, observed=path.T if len(group) > 1 else path.T[:, :0])
            )
            for path in values
            for k, window in enumerate(group)
        ]
        return _scaled_quantiles(model, each).reshape(len(paths), len(group), ahead, -1)

    return forecast_beyond(continue_paths, steps, tuple(model.quantiles), model.ranks_, len(group), windows.season)
