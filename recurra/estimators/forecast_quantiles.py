"""Quantiles of a fitted forecaster at any origins: within the horizon, and beyond it along sampled paths."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import InputError
from .calibration import apply_corrections
from .likelihood_paths import likelihood_paths, likelihood_quantiles
from .linear import History
from .panel import Panel
from .sampled_paths import Continue, draw_paths, forecast_beyond
from .smoothing_network import network_inputs
from .windows import Origin, Window

if TYPE_CHECKING:
    from .forecaster import Forecaster

PREDICT_BATCH = 256  # windows predicted at a time
MOSTLY = 0.5  # the weight of forecasts of logarithms that makes a series one of factors


def forecast_quantiles(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> np.ndarray:
    """(n, steps, Q): calibrated quantiles in the units of the data; origins of a group of targets follow each other."""
    if model.likelihood is not None:
        return likelihood_quantiles(model, given, origins, steps)
    if steps <= model.horizon:
        found = _scaled_quantiles(model, [model.windows_.history(given, origin, steps) for origin in origins])
    else:
        _check_beyond(model, steps)
        found = np.concatenate([_beyond(model, group, steps) for group in _groups(model, given, origins, steps)])
    each = zip(origins, found, strict=True)
    return np.stack([_in_units(model, given, origin, q) for origin, q in each])


def _in_units(model: "Forecaster", given: Panel, origin: Origin, scaled: np.ndarray) -> np.ndarray:
    """Scaled values in the units of the data, not below zero if the window and the series tell of a floor there."""
    windows, k = model.windows_, origin.series
    values = windows.scaling(given, k).invert(scaled)
    least = given.y[k][max(0, origin.at - windows.context) : origin.at].min()
    is_floored = least >= 0 and windows.never_below(given, k, origin.at)
    return np.maximum(values, 0.0) if is_floored or (least > 0 and in_logs(model, given.ids[k])) else values


def in_logs(model: "Forecaster", name: str) -> bool:
    """Whether a series is forecast mostly by its logarithms."""
    shares = model.base_.series.get(name, model.base_.usual)
    weight = sum(w for w, one in zip(shares.weights, model.base_.members, strict=True) if one.log)
    return model.windows_.limits is not None and bool(weight >= MOSTLY)


def forecast_paths(
    model: "Forecaster", given: Panel, origins: list[Origin], steps: int, paths: int, seed: int
) -> np.ndarray:
    """(n, paths, steps): possible courses after each origin, in the units of the data."""
    if model.likelihood is not None:
        return likelihood_paths(model, given, origins, steps, paths, seed)
    _check_beyond(model, steps)
    found, random, levels = [], np.random.default_rng(seed), tuple(model.quantiles)
    for group in _groups(model, given, origins, steps):
        drawn = draw_paths(_continuation(model, group), steps, levels, model.ranks_, len(group), paths, random)
        found.append(drawn.transpose(1, 0, 2))
    each = zip(origins, np.concatenate(found), strict=True)
    return np.stack([_in_units(model, given, origin, one) for origin, one in each])


def _groups(model: "Forecaster", given: Panel, origins: list[Origin], steps: int) -> list[list[Window]]:
    """The windows of every group of targets."""
    windows, count = [model.windows_.window(given, origin, steps) for origin in origins], model.windows_.targets
    return [windows[k : k + count] for k in range(0, len(windows), count)]


def _check_beyond(model: "Forecaster", steps: int) -> None:
    if not model.observed or steps <= model.horizon:
        return
    unknown = f"{', '.join(model.observed)} {'is' if len(model.observed) == 1 else 'are'} unknown after that"
    remedy = "fit with a longer horizon, or forecast them as targets too"
    raise InputError("h", steps, f"at most {model.horizon}, the horizon, since {unknown}; {remedy}")


@torch.no_grad()
def network_errors(model: "Forecaster", pasts: list[History], base: np.ndarray) -> np.ndarray:
    """(n, steps, Q): quantiles of the errors of base forecasts (n, steps), before calibration, in `error_units`."""
    usual = model.network_.departures.double().numpy()[: base.shape[1]]
    if not float(model.network_.share):
        return np.broadcast_to(usual, (len(pasts), *usual.shape))
    found = []
    for first in range(0, len(pasts), PREDICT_BATCH):
        some = slice(first, first + PREDICT_BATCH)
        windows = (network_inputs(model, past, one) for past, one in zip(pasts[some], base[some], strict=True))
        inputs = [torch.tensor(window, dtype=model.network_.departures.dtype) for window in windows]
        lengths = torch.tensor([len(x) for x in inputs])
        padded = torch.nn.utils.rnn.pad_sequence(inputs)
        found.append(model.network_(padded, lengths, base.shape[1]).double().numpy())
    return np.concatenate(found)


def error_units(model: "Forecaster", pasts: list[History]) -> np.ndarray:
    """(n,): the usual size of the errors of each series, in spreads of the window."""
    return np.array([model.base_.shares(past).unit for past in pasts])


def _scaled_quantiles(model: "Forecaster", pasts: list[History]) -> np.ndarray:
    """(n, steps, Q): calibrated quantiles in the units of the scaled series."""
    level, spread = (np.array([getattr(p, name) for p in pasts])[:, None, None] for name in ("level", "spread"))
    base, unit = np.stack([model.base_(past) for past in pasts]), error_units(model, pasts)[:, None, None]
    errors = apply_corrections(np.sort(network_errors(model, pasts, base), axis=-1), model.shifts_)
    return level + spread * (base[:, :, None] + unit * errors)


def _beyond(model: "Forecaster", group: list[Window], steps: int) -> np.ndarray:
    """(targets, steps, Q): quantiles of more steps than the horizon, in the units of the scaled series."""
    levels, ranks, variances = tuple(model.quantiles), model.ranks_, model.variances_
    continue_paths, season = _continuation(model, group), model.windows_.season
    return forecast_beyond(continue_paths, steps, levels, ranks, len(group), season, variances)


def _continuation(model: "Forecaster", group: list[Window]) -> Continue:
    """The forecast after paths that continue the windows of a group."""
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

    return continue_paths
