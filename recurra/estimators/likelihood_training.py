"""Training of a forecaster with a likelihood: a linear forecast of the next value, then the layers around it, on all
windows before the held-out end of every series, which decides how long to train and how much the layers may add."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data.batching import Batches
from ..data.sequences import SequenceSet
from ..errors import InputError, ShapeError
from ..train import randomness
from ..train.fit import fit as train
from .autoregressive import (
    AutoregressiveNetwork,
    OriginUnits,
    covariates_by_step,
    layer_inputs,
    right_aligned,
)
from .covariates import one_hot
from .held_out import is_certain, stop_and_judge, time_blocks
from .likelihoods import LIKELIHOODS, NegativeLogLikelihood, fit_constants
from .linear import History
from .linear_fit import LinearFit
from .panel import Panel
from .training_options import to_int
from .windows import Origin, Windows, thin_evenly

if TYPE_CHECKING:
    from .forecaster import Forecaster

MAX_WINDOWS = 8000  # for the linear forecast; of more, evenly spaced ones are used
CHUNK = 4096  # windows at a time
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the layers, to choose from


class Examples(NamedTuple):
    """Windows as inputs of the network (T, columns), and the values after each (n, horizon), as the likelihood takes
    them."""

    inputs: list[np.ndarray]
    actual: np.ndarray
    origins: list[Origin]


def build_network(model: "Forecaster", layers: dict[str, Any]) -> AutoregressiveNetwork:
    likelihood = LIKELIHOODS[str(model.likelihood)]()
    return AutoregressiveNetwork(model.cell, model.windows_, likelihood, to_int(model.horizon), layers)


def check_likelihood(model: "Forecaster", given: Panel) -> None:
    """Refuse data that a likelihood of one next value does not describe."""
    if model.observed or len(given.targets) > 1:
        got = f"observed={list(model.observed)}" if model.observed else f"{len(given.targets)} targets"
        raise InputError("likelihood", f"{model.likelihood!r} with {got}", "one target, and columns known ahead")
    if not LIKELIHOODS[str(model.likelihood)].counts:
        return
    for name, y in zip(given.ids, given.y, strict=True):
        if (wrong := y[(y < 0) | (y != np.round(y))]).size:
            raise InputError("data", f"{wrong[0]:g} in series {name}", f"counts from 0 on for {model.likelihood!r}")


def train_with_likelihood(model: "Forecaster", given: Panel, seed: int) -> None:
    """Set the fitted attributes of a forecaster with a likelihood: windows, network, share, history."""
    check_likelihood(model, given)
    model.windows_ = Windows.of(given, model.context_size, model.seasons)
    before, held = _split(model, given)
    with randomness.preserve_rng():
        torch.manual_seed(seed)
        model.network_ = model._build()
        _fit_linear(model, given, before)
        forecasts = _linear_forecasts(model, given)
        blocks = time_blocks(held, [len(y) for y in given.y], to_int(model.horizon))
        early, late = stop_and_judge(blocks)
        parts = (before, [held[k] for k in early], [held[k] for k in late])
        examples, stopping, judging = (_examples(model, given, some, forecasts) for some in parts)
        model.history_ = _train(model, examples, stopping, seed)
    model.calibrated_ = bool(held)
    model.share_ = _choose_share(model, judging, blocks[late])
    model.network_.share.fill_(model.share_)
    model.past_ = given.cut(-model.windows_.context, None)


def _split(model: "Forecaster", given: Panel) -> tuple[list[Origin], list[Origin]]:
    """Origins to train on, and held-out ones; all steps of the former are before the latter. None are held out if
    `validation` is 0 or all series are too short."""
    horizon, before, held, every = to_int(model.horizon), [], [], []
    for k, y in enumerate(given.y):
        last = len(y) - horizon
        origins = [Origin(k, at) for at in range(max(2, min(model.windows_.context, last // 2)), last + 1)]
        cut = len(y) - max(horizon, round(model.validation * len(y)))
        every += origins
        before += [o for o in origins if o.at + horizon <= cut]
        held += [o for o in origins if o.at >= cut]
    if not every:
        raise ShapeError("data", f"series of at most {max(map(len, given.y))} steps", f"{horizon + 2} steps or more")
    if not model.validation or not before or not held:
        before, held = every, []
    return thin_evenly(before, model.max_windows), thin_evenly(held, max(200, model.max_windows // 4))


# ---------------------------------------------------------------------------------------------------- the linear part


def _fit_linear(model: "Forecaster", given: Panel, before: list[Origin]) -> None:
    """The linear forecast of one step, by least squares, and the constants of the likelihood around it, out of fold."""
    windows, horizon, last = model.windows_, to_int(model.horizon), {}
    for origin in before:
        last[origin.series] = max(last.get(origin.series, 0), origin.at + horizon)
    context = windows.context
    every = [Origin(k, at) for k, stop in last.items() for at in range(max(2, min(context, stop // 2)), stop)]
    origins = thin_evenly(every, MAX_WINDOWS)
    pasts = [windows.history(given, origin, 1) for origin in origins]
    actual = windows.targets_of(given, origins, pasts, 1)
    linear, unseen = LinearFit(pasts, actual, windows.seasons, context).least_squares()
    network = model.network_
    network.set_linear(linear)
    likelihood = network.likelihood
    units = [OriginUnits.of(past, likelihood) for past in pasts]
    scale = torch.tensor([unit.scale for unit in units])
    found, values = unseen[:, 0], actual[:, 0]
    if likelihood.counts:
        values = np.array([given.y[o.series][o.at] for o in origins])
        found = np.array([_count(past, one) for past, one in zip(pasts, found, strict=True)]) / scale.numpy()
    network.start.copy_(fit_constants(likelihood, torch.tensor(found), scale, torch.tensor(values)))


def _count(past: History, relative: float) -> float:
    return past.units.mean + past.units.scale * (past.level + past.spread * relative)


def _linear_forecasts(model: "Forecaster", given: Panel) -> list[np.ndarray]:
    """For every series the forecast (T,) of each step from those before, in the units of the scaled series."""
    windows, found = model.windows_, []
    for k, y in enumerate(given.y):
        scaled = windows.scaling(given, k).apply(y[:, None])[:, 0]
        before, known = right_aligned(scaled, windows.context)[:-1], windows.known.apply(given.known[k][: len(y)])
        covariates = covariates_by_step(windows, known)
        static = one_hot(windows.static.apply(given.static[k]), windows.covariates.sizes("static"))
        parts = [np.zeros(1)]
        for first in range(1, len(y), CHUNK):
            at = np.arange(first, min(first + CHUNK, len(y)))
            rows = torch.tensor(before[at]), torch.tensor(np.minimum(at, windows.context))
            more = torch.tensor(np.tile(static, (len(at), 1))), torch.tensor(covariates[at])
            parts.append(model.network_.next_value(*rows, *more).numpy())
        found.append(np.concatenate(parts))
    return found


def _examples(model: "Forecaster", given: Panel, origins: list[Origin], forecasts: list[np.ndarray]) -> Examples:
    windows, horizon, likelihood = model.windows_, to_int(model.horizon), model.network_.likelihood
    inputs, actual = [], np.zeros((len(origins), horizon))
    for row, origin in zip(actual, origins, strict=True):
        past, k, first = windows.history(given, origin, horizon), origin.series, max(0, origin.at - windows.context)
        units, scaling = OriginUnits.of(past, likelihood), windows.scaling(given, k)
        values = scaling.apply(given.y[k][first : origin.at + horizon, None])[:, 0]
        forecast = np.zeros(len(past.inputs))
        ahead = forecasts[k][origin.at : origin.at + horizon]
        if likelihood.counts:
            forecast[-horizon:] = scaling.invert(ahead[:, None])[:, 0] / units.scale
            row[:] = given.y[k][origin.at : origin.at + horizon]
        else:
            forecast[-horizon:] = (ahead - units.level) / units.spread
            row[:] = (values[-horizon:] - units.level) / units.spread
        offsets = np.column_stack([forecast, np.full(len(forecast), units.scale)])
        inputs.append(np.column_stack([offsets, layer_inputs(windows, past, units, values)]))
    return Examples(inputs, actual, origins)


# ---------------------------------------------------------------------------------------------------- the layers


def _train(model: "Forecaster", examples: Examples, held: Examples, seed: int) -> list[dict[str, Any]]:
    result = train(
        model.network_,
        Batches(_to_sequence_set(examples), to_int(model.batch_size), seed=seed),
        Batches(_to_sequence_set(held), 256, shuffle=False) if held.origins else None,
        loss=NegativeLogLikelihood(model.network_.likelihood),
        optimizer=model.optimizer,
        lr=model.lr,
        epochs=to_int(model.epochs),
        clip=model.clip,
        patience=to_int(model.patience) if held.origins else None,
        device=model.device,
        progress=model.verbose,
    )
    model.network_.eval().cpu()
    return result.history


def _to_sequence_set(examples: Examples) -> SequenceSet:
    inputs = [torch.tensor(x, dtype=torch.get_default_dtype()) for x in examples.inputs]
    return SequenceSet.from_arrays(inputs, examples.actual, "regression")


@torch.no_grad()
def _choose_share(model: "Forecaster", held: Examples, blocks: np.ndarray) -> float:
    """How much of the layers to use: what is most likely on held-out windows, and none unless the gain is clear.

    Without held-out windows to judge by, all of it if none were asked for, else none.
    """
    if not held.origins:
        return 0.0 if model.validation else 1.0
    plain, chosen = _losses(model, held, 0.0), 0.0
    best = float(plain.mean())
    for share in SHARES:
        losses = _losses(model, held, share)
        if losses.mean() < best and is_certain(plain - losses, blocks):
            best, chosen = float(losses.mean()), share
    return chosen


def _losses(model: "Forecaster", held: Examples, share: float) -> np.ndarray:
    """(n,): the mean -log p of each held-out window, with this share of the layers."""
    network, found = model.network_, []
    network.share.fill_(share)
    loss = NegativeLogLikelihood(network.likelihood)
    for first in range(0, len(held.inputs), 256):
        some = slice(first, first + 256)
        inputs: list[Tensor] = [torch.tensor(x, dtype=network.start.dtype) for x in held.inputs[some]]
        lengths = torch.tensor([len(x) for x in inputs])
        parameters = network(torch.nn.utils.rnn.pad_sequence(inputs), lengths)
        found.append(loss(parameters, torch.tensor(held.actual[some]).to(parameters)).double().numpy())
    return np.concatenate(found)
