"""Training of the forecaster: stretches held out for early stopping and calibration, then all data."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..data.batching import Batches
from ..data.sequences import SequenceSet
from ..errors import ShapeError
from ..train import randomness
from ..train.fit import fit as train
from .calibration import interval_corrections
from .forecast_network import QuantileLoss
from .forecast_quantiles import PREDICT_BATCH, network_quantiles
from .linear import MAX_WINDOWS, History, LinearForecasts
from .panel import Panel
from .sampled_paths import equal_ranks, error_ranks
from .training_options import to_int
from .windows import Origin, Windows, thin_evenly

if TYPE_CHECKING:
    from .forecaster import Forecaster

TrainingHistory = list[dict[str, Any]]


def train_forecaster(model: "Forecaster", given: Panel, seed: int) -> None:
    """Set the fitted attributes of a forecaster: windows, linear forecast, network, calibration, history."""
    everything, _ = split_origins(model, given, 0)
    with randomness.preserve_rng():
        epochs, history = _validate(model, given, seed)
        model.windows_ = Windows.of(given, model.context_size, to_int(model.season))
        trained = _learn(model, given, everything, [], epochs, seed)
    model.history_ = history or trained
    model.past_ = given.cut(-model.windows_.context, None)


def split_origins(model: "Forecaster", given: Panel, stretch: int) -> tuple[list[Origin], list[Origin]]:
    """The training origins, and the origins held out in the nth stretch from the end.

    All targets of the former are before the latter. Stretch 0 holds nothing out. Of several targets, the origins are
    those of the first.
    """
    learned, held, horizon = [], [], to_int(model.horizon)
    for k in range(0, len(given), len(given.targets)):
        y = given.y[k]
        tail = max(horizon, round(model.validation * len(y)))
        stop = len(y) - max(0, stretch - 1) * tail
        cut = stop - tail if stretch else stop
        if stretch and cut - horizon < 2:
            continue  # too short to hold a stretch out
        learned += [Origin(k, t) for t in range(2, cut - horizon + 1)]
        held += [Origin(k, t) for t in range(cut, stop - horizon + 1)]
    if not learned and not stretch:
        longest = max(map(len, given.y))
        raise ShapeError("data", f"series of at most {longest} steps", f"{horizon + 2} steps or more")
    return learned, held


def _validate(model: "Forecaster", given: Panel, seed: int) -> tuple[int, TrainingHistory]:
    """Forecast stretches of the past: the epochs to train, the history, and the corrections of the intervals."""
    epochs, history, held_out = to_int(model.epochs), [], []
    horizon, levels = to_int(model.horizon), tuple(model.quantiles)
    for stretch in range(1, 1 + to_int(model.stretches)) if model.validation else ():
        learned, held = split_origins(model, given, stretch)
        if not held:
            break
        held = _all_targets(given, held, max(200, model.max_windows // 4))
        model.windows_ = _windows_before(model, given, held)
        found = _learn(model, given, learned, [] if history else held, epochs, seed)
        if not history:
            history, epochs = found, 1 + min(range(len(found)), key=lambda k: found[k]["valid_loss"])
        pasts = _histories(model, given, held)
        held_out.append((model.windows_.targets_of(given, held, pasts, horizon), network_quantiles(model, pasts)))
    model.calibrated_ = bool(held_out)
    model.shifts_ = np.zeros((horizon, len(levels)))
    model.ranks_ = equal_ranks(len(given.targets) * horizon)
    if held_out:
        actual, quantiles = (np.concatenate(each) for each in zip(*held_out, strict=True))
        model.shifts_ = interval_corrections(actual, quantiles, levels)
        together = len(given.targets) * horizon  # the targets of a group hang together as their steps do
        model.ranks_ = error_ranks(actual.reshape(-1, together), quantiles.reshape(-1, together, len(levels)), levels)
    return epochs, history


def _all_targets(given: Panel, origins: list[Origin], most: int) -> list[Origin]:
    """At most `most` origins, evenly spaced, for all targets of their groups."""
    count = len(given.targets)
    chosen = thin_evenly(origins, max(1, most // count))
    return [Origin(origin.series + k, origin.at) for origin in chosen for k in range(count)]


def _windows_before(model: "Forecaster", given: Panel, held: list[Origin]) -> Windows:
    """Windows scaled by what is before the first held-out origin of every series."""
    first = {origin.series: origin.at for origin in reversed(held)}
    seen = [y[: first.get(k)] for k, y in enumerate(given.y)]
    return Windows.of(replace(given, y=seen), model.context_size, to_int(model.season))


def _learn(
    model: "Forecaster", given: Panel, learned: list[Origin], held: list[Origin], epochs: int, seed: int
) -> TrainingHistory:
    """Fit the linear forecast and train the network; held-out windows stop the training early."""
    horizon, learned = to_int(model.horizon), _all_targets(given, learned, MAX_WINDOWS)
    pasts = _histories(model, given, learned)
    actual = model.windows_.targets_of(given, learned, pasts, horizon)
    season, context, targets = model.windows_.season, model.windows_.context, model.windows_.targets
    model.linear_, base = LinearForecasts.of(pasts, actual, season, context, targets)
    torch.manual_seed(seed)
    model.network_ = model._build()
    deviations = np.quantile(actual - base, model.quantiles, axis=0).T  # (horizon, Q)
    model.network_.departures.copy_(torch.tensor(deviations))
    some = thin_evenly(list(range(len(pasts))), model.max_windows)
    training_set = _to_sequence_set([model.windows_.inputs(pasts[k], base[k]) for k in some], actual[some])
    if not held:
        return _train(model, training_set, None, epochs, seed)
    validation_windows = _histories(model, given, held)
    inputs = [model.windows_.inputs(past, model.linear_(past)) for past in validation_windows]
    targets = model.windows_.targets_of(given, held, validation_windows, horizon)
    return _train(model, training_set, _to_sequence_set(inputs, targets), epochs, seed)


def _histories(model: "Forecaster", given: Panel, origins: list[Origin]) -> list[History]:
    return [model.windows_.history(given, origin, to_int(model.horizon)) for origin in origins]


def _train(
    model: "Forecaster", training_set: SequenceSet, validation_set: SequenceSet | None, epochs: int, seed: int
) -> TrainingHistory:
    result = train(
        model.network_,
        Batches(training_set, to_int(model.batch_size), seed=seed),
        Batches(validation_set, PREDICT_BATCH, shuffle=False) if validation_set else None,
        loss=QuantileLoss(tuple(model.quantiles)),
        optimizer=model.optimizer,
        lr=model.lr,
        epochs=epochs,
        clip=model.clip,
        patience=to_int(model.patience) if validation_set else None,
        device=model.device,
        progress=model.verbose,
    )
    model.network_.eval().cpu()
    return result.history


def _to_sequence_set(inputs: list[np.ndarray], actual: np.ndarray) -> SequenceSet:
    """Windows in the dtype of a new network."""
    windows = [torch.tensor(x, dtype=torch.get_default_dtype()) for x in inputs]
    return SequenceSet.from_arrays(windows, actual, "regression")
