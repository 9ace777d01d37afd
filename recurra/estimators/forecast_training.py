"""Training of the forecaster, once: the base forecast on all windows, out of fold; the network on those before the
held-out end of every series, which decides how long to train and how much the network may add."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from ..data.batching import Batches
from ..data.sequences import SequenceSet
from ..errors import ShapeError
from ..train import randomness
from ..train.fit import fit as train
from ..train.fit_context import current_context
from ..train.progress import show_progress
from .base_forecast import BASE_PARTS, fit_base
from .calibration import error_quantiles, interval_corrections
from .forecast_network import QuantileLoss
from .forecast_quantiles import PREDICT_BATCH, error_units, network_errors
from .held_out import is_certain, stop_and_judge, time_blocks
from .kept_parts import KeptParts
from .likelihood_training import train_with_likelihood
from .linear import History
from .metrics import pinball
from .panel import Panel
from .sampled_paths import equal_ranks, error_ranks
from .smoothing_network import SmoothingLoss, network_inputs, with_actual
from .training_options import to_int
from .wandering import wandering
from .windows import Origin, Windows, thin_evenly

if TYPE_CHECKING:
    from .forecaster import Forecaster

T = TypeVar("T")
TrainingHistory = list[dict[str, Any]]
MAX_WINDOWS = 8000  # for the base forecast; of more, evenly spaced ones are used
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the network, to choose from
LEAST_GAIN = 0.01  # by which the network must lower the loss


class Learned(NamedTuple):
    """Windows, what came after each (n, horizon), and their base forecasts, out of fold (n, horizon)."""

    origins: list[Origin]
    pasts: list[History]
    actual: np.ndarray
    base: np.ndarray
    errors: np.ndarray  # (n, horizon): of the base forecast, in the usual size of those of the series

    def at(self, rows: list[int]) -> "Learned":
        return Learned(
            [self.origins[k] for k in rows],
            [self.pasts[k] for k in rows],
            self.actual[rows],
            self.base[rows],
            self.errors[rows],
        )


def train_forecaster(model: "Forecaster", given: Panel, seed: int) -> None:
    """Set the fitted attributes of a forecaster: windows, base forecast, network, calibration, history."""
    if model.likelihood is not None:
        train_with_likelihood(model, given, seed)
        return
    model.past_ = given.cut(-model.context_size, None)
    model.windows_, calmed = Windows.of(given, model.context_size, model.seasons).calmed(given)
    pairs = zip(given.ids, given.y, calmed.y, strict=True)
    model.disturbed_, given = [name for name, y, calm in pairs if calm is not y], calmed
    learned = _fit_base(model, given)
    before, held = _split(model, given, learned)
    blocks = time_blocks(held.origins, [len(y) for y in given.y], to_int(model.horizon))
    stopping, judging = stop_and_judge(blocks)
    with randomness.preserve_rng():
        torch.manual_seed(seed)
        network: Any = model._build()
        network.departures.copy_(torch.tensor(_departures(learned.errors, tuple(model.quantiles))))
        model.network_ = network
        model.history_ = _train(model, before, held.at(stopping), seed)
    model.calibrated_ = bool(held.origins)
    model.share_ = _choose_share(model, held.at(judging), blocks[judging])
    model.network_.share.fill_(model.share_)
    _calibrate(model, given, held if model.share_ else learned)
    scaled = [model.windows_.scaling(given, k).apply(y[:, None])[:, 0] for k, y in enumerate(given.y)]
    model.variances_ = wandering(scaled, model.windows_.season)
    KeptParts.of_run(BASE_PARTS).clear()


def _departures(errors: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """(horizon, Q): the quantiles of errors around their median, since the base forecast is the median itself.

    It minimises absolute errors; a median left over is that of windows early in the series, which it follows less well.
    """
    found = error_quantiles(errors, levels)
    return found - found[:, [levels.index(0.5)]]


def training_origins(model: "Forecaster", given: Panel) -> list[Origin]:
    """All origins with enough past, those of the first target of every group; at most as many as are used."""
    found, horizon = [], to_int(model.horizon)
    for k in range(0, len(given), len(given.targets)):
        last = len(given.y[k]) - horizon
        found += [Origin(k, at) for at in range(max(2, min(model.windows_.context, last // 2)), last + 1)]
    if not found:
        longest = max(map(len, given.y))
        raise ShapeError("data", f"series of at most {longest} steps", f"{horizon + 2} steps or more")
    count = len(given.targets)
    chosen = thin_evenly(found, max(1, MAX_WINDOWS // count))
    return [Origin(origin.series + k, origin.at) for origin in chosen for k in range(count)]


def _fit_base(model: "Forecaster", given: Panel) -> Learned:
    windows, horizon = model.windows_.to_fit(given), to_int(model.horizon)
    origins = training_origins(model, given)
    pasts = [windows.history(given, origin, horizon) for origin in origins]
    actual = windows.targets_of(given, origins, pasts, horizon)
    shape = windows.seasons, windows.context, windows.targets
    progress = _shown if model.verbose or current_context().callbacks else iter
    model.base_, base = fit_base(pasts, actual, *shape, _apart(origins, horizon), progress)
    return Learned(origins, pasts, actual, base, (actual - base) / error_units(model, pasts)[:, None])


def _apart(origins: list[Origin], horizon: int) -> np.ndarray:
    """(n,): the share of the steps ahead of every window that the window before it, of the same series, has not."""
    last: dict[int, int] = {}
    found = np.ones(len(origins))
    for k, origin in enumerate(origins):
        found[k] = min(1.0, (origin.at - last.get(origin.series, -horizon)) / horizon)
        last[origin.series] = origin.at
    return found


def _shown(parts: Sequence[T]) -> Iterable[T]:
    return show_progress(parts, "base forecast", len(parts))


def _split(model: "Forecaster", given: Panel, learned: Learned) -> tuple[Learned, Learned]:
    """The windows to train on, and those held out. All steps of the former are before the origins of the latter.

    Nothing is held out if `validation` is 0 or all series are too short.
    """
    horizon = to_int(model.horizon)
    cuts = [len(y) - max(horizon, round(model.validation * len(y))) for y in given.y]
    if not model.validation or max(cuts) - horizon < 2:
        every = thin_evenly(list(range(len(learned.origins))), model.max_windows)
        return learned.at(every), learned.at([])
    before = [k for k, o in enumerate(learned.origins) if o.at + horizon <= cuts[o.series]]
    held = [k for k, o in enumerate(learned.origins) if o.at >= cuts[o.series]]
    if not before or not held:
        return learned.at(thin_evenly(list(range(len(learned.origins))), model.max_windows)), learned.at([])
    return learned.at(thin_evenly(before, model.max_windows)), learned.at(_groups(held, len(given.targets), model))


def _groups(rows: list[int], targets: int, model: "Forecaster") -> list[int]:
    """At most a quarter as many rows as training windows, evenly spaced, with all targets of a group together."""
    first = thin_evenly(rows[::targets], max(1, max(200, model.max_windows // 4) // targets))
    return [k + target for k in first for target in range(targets)]


def _train(model: "Forecaster", before: Learned, held: Learned, seed: int) -> TrainingHistory:
    levels = tuple(model.quantiles)
    result = train(
        model.network_,
        Batches(_to_sequence_set(model, before, True), to_int(model.batch_size), seed=seed),
        Batches(_to_sequence_set(model, held), PREDICT_BATCH, shuffle=False) if held.origins else None,
        loss=SmoothingLoss(levels) if model.network == "es_rnn" else QuantileLoss(levels),
        optimizer=model.optimizer,
        lr=model.lr,
        epochs=to_int(model.epochs),
        clip=model.clip,
        patience=to_int(model.patience) if held.origins else None,
        device=model.device,
        progress=model.verbose,
    )
    if model.network == "es_rnn":
        model.network_.set_usual_smoothing()
    model.network_.eval().cpu()
    return result.history


def _to_sequence_set(model: "Forecaster", windows: Learned, learns: bool = False) -> SequenceSet:
    """Windows in the dtype of a new network, and the errors of their base forecasts."""
    inputs = [network_inputs(model, *pair) for pair in zip(windows.pasts, windows.base, strict=True)]
    if learns and model.network == "es_rnn":
        inputs = [with_actual(*each) for each in zip(inputs, windows.pasts, windows.actual, strict=True)]
    tensors = [torch.tensor(x, dtype=torch.get_default_dtype()) for x in inputs]
    return SequenceSet.from_arrays(tensors, windows.errors, "regression")


def _choose_share(model: "Forecaster", held: Learned, blocks: np.ndarray) -> float:
    """How much of the network to use: what is best on held-out windows, and none unless the gain is clear there, in all
    quantiles together and in the median.

    Without held-out windows, all of it if none were asked for, else none.
    """
    if not held.origins:
        return 0.0 if model.validation else 1.0
    levels = tuple(model.quantiles)
    usual, middle = model.network_.departures.double().numpy(), levels.index(0.5)
    added = network_errors(model, held.pasts, held.base) - usual
    plain = pinball(held.errors, np.broadcast_to(usual, added.shape), levels).mean(axis=1)  # (n, Q)
    best, chosen = float(plain.mean()), 0.0
    for share in SHARES:
        losses = pinball(held.errors, usual + share * added, levels).mean(axis=1)
        pairs = ((plain.mean(axis=1), losses.mean(axis=1)), (plain[:, middle], losses[:, middle]))
        if losses.mean() < best and all(_is_clear(before, after, blocks) for before, after in pairs):
            best, chosen = float(losses.mean()), share
    return chosen


def _is_clear(before: np.ndarray, after: np.ndarray, blocks: np.ndarray) -> bool:
    """Whether losses (n,) fall by enough, and beyond doubt."""
    gain = before - after
    return bool(gain.mean() > LEAST_GAIN * before.mean() and is_certain(gain, blocks))


def _calibrate(model: "Forecaster", given: Panel, windows: Learned) -> None:
    """Correct the quantiles by windows that the network was not trained on, and keep how errors hang together."""
    levels, horizon = tuple(model.quantiles), to_int(model.horizon)
    together = len(given.targets) * horizon  # the targets of a group hang together as their steps do
    model.shifts_ = np.zeros((horizon, len(levels)))
    model.ranks_ = equal_ranks(together)
    if not windows.origins:
        return
    found = np.sort(network_errors(model, windows.pasts, windows.base), axis=-1)
    if model.share_:
        model.shifts_ = interval_corrections(windows.errors, found, levels)
    if len(windows.errors) > len(given.targets):
        model.ranks_ = error_ranks(
            windows.errors.reshape(-1, together), found.reshape(-1, together, len(levels)), levels
        )
