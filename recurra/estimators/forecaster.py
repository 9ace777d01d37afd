"""What comes next in a series, and how sure that is."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ..cell import Cell, positive_int
from ..data.batching import Batches
from ..data.sequences import SequenceSet
from ..errors import InputError, ShapeError
from ..storage import FolderContents, write_folder
from ..train import randomness
from ..train.fit import fit as train
from . import forecast_storage
from .backtest import Backtest, compare, ends, symmetric
from .base import whole
from .calibration import at_levels, corrected, corrections
from .forecast_network import ForecastNetwork, QuantileLoss
from .linear import MOST, History, fit_linear
from .panel import Panel, known_future, panel, times_after, written_times
from .windows import Origin, Windows, thinned, width

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
TOGETHER = 256  # windows answered at a time


class Forecaster(BaseEstimator):
    """Forecasts with intervals, by any cell, for one series or for many at once.

    Data: one series (T,), several (n, T) or a list of them, or a long table `unique_id, ds, y`. The network reads the
    last `context` steps (by default four seasons, or two horizons) and goes on for `horizon` steps, at which it learns
    quantiles of how far the value departs from a linear forecast, a ridge regression shrunk towards the last value or
    the last season. The last `validation` of every series says how many epochs to train; it and the stretch before it
    (`stretches` in all), forecast from what came before, calibrate the intervals; then all is learned from.

    known: columns whose future is known when forecasting (prices, holidays). static: columns of numbers that are the
    same on all rows of a series. max_windows: training windows, evenly spaced, where there would be more. The other
    options are those of `rc.SequenceClassifier`.

    Fitted: `linear_`, `network_`, `history_`; `calibrated_`, False where the series are too short to hold any back.
    scikit-learn's checks do not apply: they ask for one row a sample and a target beside it, and here a series is both.
    """

    def __init__(
        self,
        cell: type[Cell] | str = "gru",
        horizon: int = 12,
        season: int = 1,
        context: int | None = None,
        hidden_size: int = 32,
        num_layers: int = 1,
        *,
        known: tuple[str, ...] = (),
        static: tuple[str, ...] = (),
        quantiles: tuple[float, ...] = LEVELS,
        cell_options: dict[str, Any] | None = None,
        epochs: int = 60,
        batch_size: int = 32,
        lr: float = 5e-3,
        optimizer: str = "adam",
        clip: float | None = 1.0,
        validation: float = 0.2,
        stretches: int = 2,
        patience: int = 8,
        max_windows: int = 2000,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.horizon, self.season, self.context = cell, horizon, season, context
        self.hidden_size, self.num_layers, self.known, self.static = hidden_size, num_layers, known, static
        self.quantiles, self.cell_options, self.epochs, self.batch_size = quantiles, cell_options, epochs, batch_size
        self.lr, self.optimizer, self.clip, self.validation, self.patience = lr, optimizer, clip, validation, patience
        self.stretches, self.max_windows, self.device, self.random_state, self.verbose = (
            stretches,
            max_windows,
            device,
            random_state,
            verbose,
        )

    # ------------------------------------------------------------------------------------------ learning

    def fit(self, data: Any, y: Any = None) -> Self:
        """Learn from series; `y` is not used."""
        self._check_options()
        given = panel(data, self.known, self.static)
        self.windows_ = Windows.of(given, self._context(), whole(self.season))
        everything, _ = self._origins(given, 0)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with randomness.undisturbed():
            epochs, history = self._judge(given, seed)
            trained = self._learn(given, everything, [], epochs, seed)
        self.history_ = history or trained
        self.past_ = given.cut(-self.windows_.context, None)
        return self

    def _judge(self, given: Panel, seed: int) -> tuple[int, list[dict[str, Any]]]:
        """Forecast stretches of the past from what came before them: how long to train, and how wide intervals are."""
        epochs, history, judged = whole(self.epochs), [], []
        for stretch in range(1, 1 + whole(self.stretches)) if self.validation else ():
            learned, held = self._origins(given, stretch)
            if not held:
                break
            held = thinned(held, max(200, self.max_windows // 4))
            found = self._learn(given, learned, [] if history else held, epochs, seed)
            if not history:
                history, epochs = found, 1 + min(range(len(found)), key=lambda k: found[k]["valid_loss"])
            pasts = self._histories(given, held)
            judged.append((self.windows_.wanted(given, held, pasts, self.horizon), self._outputs(pasts)))
        self.calibrated_ = bool(judged)
        self.shifts_ = np.zeros((self.horizon, len(self.quantiles)))
        if judged:
            wanted, quantiles = (np.concatenate(each) for each in zip(*judged, strict=True))
            self.shifts_ = corrections(wanted, quantiles, tuple(self.quantiles))
        return epochs, history

    def _check_options(self) -> None:
        for name in ("horizon", "season", "max_windows", "stretches"):
            positive_int(name, whole(getattr(self, name)))
        levels = list(self.quantiles)
        if 0.5 not in levels or levels != sorted(set(levels)) or levels[0] <= 0 or levels[-1] >= 1 or len(levels) < 2:
            raise InputError("quantiles", levels, "rising levels between 0 and 1, with 0.5 among them")
        if not 0 <= self.validation < 1:
            raise InputError("validation", self.validation, "a share from 0 to below 1")

    def _context(self) -> int:
        if self.context:
            return positive_int("context", whole(self.context))
        return max(4 * whole(self.season), 2 * whole(self.horizon), 16)

    def _origins(self, given: Panel, stretch: int) -> tuple[list[Origin], list[Origin]]:
        """Where to forecast from: origins to learn from, and those in the nth stretch from the end.

        The targets of the former all lie before the latter. The stretch 0 is empty: all is learned from.
        """
        learned, held = [], []
        for k, y in enumerate(given.y):
            tail = max(self.horizon, round(self.validation * len(y)))
            stop = len(y) - max(0, stretch - 1) * tail
            cut = stop - tail if stretch else stop
            if stretch and cut - self.horizon < 2:
                continue  # too short to hold anything back
            learned += [Origin(k, t) for t in range(2, cut - self.horizon + 1)]
            held += [Origin(k, t) for t in range(cut, stop - self.horizon + 1)]
        if not learned and not stretch:
            longest = max(map(len, given.y))
            raise ShapeError("data", f"series of at most {longest} steps", f"{self.horizon + 2} steps or more")
        return learned, held

    def _learn(
        self, given: Panel, learned: list[Origin], held: list[Origin], epochs: int, seed: int
    ) -> list[dict[str, Any]]:
        """A linear forecast, and a network that departs from it; where windows are held back, they end its training."""
        learned = thinned(learned, MOST)
        pasts = self._histories(given, learned)
        wanted = self.windows_.wanted(given, learned, pasts, self.horizon)
        self.linear_, base = fit_linear(pasts, wanted, self.windows_.season, self.windows_.context)
        torch.manual_seed(seed)
        self.network_ = self._build()
        usual = np.quantile(wanted - base, self.quantiles, axis=0).T  # (horizon, Q)
        self.network_.departures.copy_(torch.tensor(usual))
        some = thinned(list(range(len(pasts))), self.max_windows)
        taught = _set([self.windows_.inputs(pasts[k], base[k]) for k in some], wanted[some])
        if not held:
            return self._train(taught, None, epochs, seed)
        judges = self._histories(given, held)
        inputs = [self.windows_.inputs(past, self.linear_(past)) for past in judges]
        return self._train(taught, _set(inputs, self.windows_.wanted(given, held, judges, self.horizon)), epochs, seed)

    def _histories(self, given: Panel, origins: list[Origin]) -> list[History]:
        return [self.windows_.history(given, origin, self.horizon) for origin in origins]

    def _build(self) -> ForecastNetwork:
        layers = {"hidden_size": whole(self.hidden_size), "num_layers": whole(self.num_layers)}
        options = {**layers, **(self.cell_options or {})}
        inputs = width(len(self.known), len(self.static))
        return ForecastNetwork(self.cell, inputs, len(self.quantiles), whole(self.horizon), options)

    def _train(self, taught: SequenceSet, judges: SequenceSet | None, epochs: int, seed: int) -> list[dict[str, Any]]:
        result = train(
            self.network_,
            Batches(taught, whole(self.batch_size), seed=seed),
            Batches(judges, TOGETHER, shuffle=False) if judges else None,
            loss=QuantileLoss(tuple(self.quantiles)),
            optimizer=self.optimizer,
            lr=self.lr,
            epochs=epochs,
            clip=self.clip,
            patience=whole(self.patience) if judges else None,
            device=self.device,
            progress=self.verbose,
        )
        self.network_.eval().cpu()
        return result.history

    @torch.no_grad()
    def _outputs(self, pasts: list[History]) -> np.ndarray:
        """(n, steps, Q) as the network puts them out, in order, before calibration."""
        found = []
        for first in range(0, len(pasts), TOGETHER):
            some = pasts[first : first + TOGETHER]
            inputs = [
                torch.tensor(self.windows_.inputs(past, self.linear_(past)), dtype=torch.float32) for past in some
            ]
            lengths, steps = torch.tensor([len(x) for x in inputs]), len(some[0].covariates)
            found.append(self.network_(torch.nn.utils.rnn.pad_sequence(inputs), lengths, steps).double().numpy())
        return np.sort(np.concatenate(found), axis=-1)

    def _quantiles(self, given: Panel, origins: list[Origin], steps: int) -> np.ndarray:
        """(n, steps, Q), calibrated, in the units of the data."""
        pasts = [self.windows_.history(given, origin, steps) for origin in origins]
        outputs = corrected(self._outputs(pasts), self.shifts_)
        each = zip(origins, pasts, outputs, strict=True)
        return np.stack(
            [self.windows_.scaling(given, o.series).invert(past.level + past.spread * q) for o, past, q in each]
        )

    # ------------------------------------------------------------------------------------------ answering

    def predict(self, h: int | None = None, data: Any = None, future: Any = None) -> Any:
        """The median of the next h steps (by default `horizon`): (h,), (n, h), or a table `unique_id, ds, y`.

        They follow the series of `fit`, or those of `data`. `future` is a table of the columns in `known` for the steps
        to come.
        """
        found, given = self._ahead(h, data, future)
        return self._answer(given, {"y": found[:, :, list(self.quantiles).index(0.5)]})

    def predict_quantiles(self, h: int | None = None, levels: Any = None, data: Any = None, future: Any = None) -> Any:
        """Quantiles of the next h steps: (h, Q), (n, h, Q), or a table with a column for each."""
        known = tuple(self.quantiles)
        asked = np.asarray(known if levels is None else levels, dtype=np.float64)
        if asked.ndim != 1 or not len(asked) or asked.min() < known[0] or asked.max() > known[-1]:
            raise InputError(
                "levels", levels, f"levels from {known[0]} to {known[-1]}, between which quantiles are known"
            )
        found, given = self._ahead(h, data, future)
        values = at_levels(found, known, asked)
        if given.form == "table":
            return self._answer(given, {f"q{level:g}": values[:, :, k] for k, level in enumerate(asked)})
        return values[0] if given.form == "one" else values

    def predict_interval(self, h: int | None = None, level: float = 0.9, data: Any = None, future: Any = None) -> Any:
        """The central interval that holds a value with probability `level`: (lower, upper), or a table of both."""
        if not 0 < level < 1:
            raise InputError("level", level, "a probability between 0 and 1")
        known = tuple(self.quantiles)
        asked = np.asarray(ends(level)).round(9)
        if asked[0] < known[0] or asked[1] > known[-1]:
            raise InputError("level", level, f"at most {known[-1] - known[0]:g}, which `quantiles` span")
        found, given = self._ahead(h, data, future)
        lower, upper = np.moveaxis(at_levels(found, known, asked), -1, 0)
        if given.form == "table":
            return self._answer(given, {"lower": lower, "upper": upper})
        return (lower[0], upper[0]) if given.form == "one" else (lower, upper)

    def _ahead(self, h: int | None, data: Any, future: Any) -> tuple[np.ndarray, Panel]:
        check_is_fitted(self, "network_")
        steps = positive_int("h", self.horizon if h is None else whole(h))
        given = self.past_ if data is None else panel(data, self.known, self.static)
        ahead = known_future(future, given, self.known, steps)
        known = [np.concatenate(pair) for pair in zip(given.known, ahead, strict=True)]
        whole_panel = Panel(given.ids, given.y, known, given.static, given.times, given.unit, given.form)
        origins = [Origin(k, len(y)) for k, y in enumerate(given.y)]
        return self._quantiles(whole_panel, origins, steps), given

    def _answer(self, given: Panel, columns: dict[str, np.ndarray]) -> Any:
        """Arrays as they are; where a table came, a table (Arrow) goes."""
        first = next(iter(columns.values()))
        if given.form != "table":
            return first[0] if given.form == "one" else first
        import pyarrow as pa

        steps = first.shape[1]
        table = {"unique_id": np.repeat(np.asarray(given.ids, dtype=object), steps)}
        if given.times is not None:
            ahead = [written_times(times_after(t, steps, given.unit), given.unit) for t in given.times]
            table["ds"] = np.concatenate(ahead)
        return pa.table(table | {name: values.ravel() for name, values in columns.items()})

    # ------------------------------------------------------------------------------------------ judging

    def backtest(self, data: Any, h: int | None = None, windows: int = 10, step: int | None = None) -> Backtest:
        """Forecasts from the last `windows` origins of every series, `step` (by default h) apart, against naive ones.

        The model stays as it is fitted; for an honest answer the windows must lie after what it has learned from.
        """
        check_is_fitted(self, "network_")
        given = panel(data, self.known, self.static)
        steps = positive_int("h", self.horizon if h is None else whole(h))
        apart = positive_int("step", steps if step is None else step)
        origins = [
            Origin(k, at)
            for k, y in enumerate(given.y)
            for at in (len(y) - steps - apart * w for w in reversed(range(positive_int("windows", windows))))
            if at >= 2
        ]
        if not origins:
            raise ShapeError("data", f"series of at most {max(map(len, given.y))} steps", f"{steps + 2} steps or more")
        found = self._quantiles(given, origins, steps)
        wanted = np.stack([given.y[o.series][o.at : o.at + steps] for o in origins])
        pasts = [given.y[o.series][: o.at] for o in origins]
        levels = tuple(self.quantiles)
        shown = tuple(width for width in symmetric(levels) if width in (0.8, 0.9, 0.95))
        return compare(pasts, wanted, found, levels, self.season, shown)

    def score(self, data: Any, y: Any = None) -> float:
        """Skill on the last `horizon` steps of `data`: 1 is perfect, 0 as good as the (seasonal) naive forecast."""
        scores = self.backtest(data, windows=1).scores
        return 1 - scores["model"]["MAE"] / scores["seasonal naive" if self.season > 1 else "naive"]["MAE"]

    # ------------------------------------------------------------------------------------------ the folder

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors`: weights, scalings, and the end of every series."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "network_")
        return forecast_storage.contents_of(self)

    def export(self, path: str | Path) -> Path:
        """Write one ONNX file: `past` (T, B) as the data is, `lengths` (B,) → quantiles (B, horizon, Q).

        With several series, `series` (B,) says which each is, by its place among those of `fit`; with covariates,
        `known` (T', B, F) holds them from the first value to the last step ahead. Scaling and calibration are inside;
        names and levels are in the metadata. It is checked in onnxruntime before it appears.
        """
        from .forecast_export import export

        check_is_fitted(self, "network_")
        return export(self, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The forecaster that `save` wrote, ready to go on. A cell of one's own must be registered by then."""
        return forecast_storage.load(cls, folder)


def _set(inputs: list[np.ndarray], wanted: np.ndarray) -> SequenceSet:
    return SequenceSet.from_arrays([torch.tensor(x, dtype=torch.float32) for x in inputs], wanted, "regression")
