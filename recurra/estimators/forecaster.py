"""`rc.Forecaster`: forecasts of series with calibrated intervals."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ..argument_checks import is_real, positive_int
from ..cell import Cell
from ..errors import InputError, ShapeError
from ..inspect.forecast_fan import fan_figure
from ..inspect.sample import Sample
from ..storage import FolderContents, write_folder
from . import forecast_storage
from .autoregressive import AutoregressiveNetwork
from .backtest import Backtest, compare_with_naive, interval_levels, shown_intervals
from .base_forecast import BaseForecast
from .calibration import interpolate_levels
from .covariates import Covariates
from .forecast_answers import POINT, answer, as_array
from .forecast_network import ForecastNetwork
from .forecast_quantiles import forecast_paths, forecast_quantiles
from .forecast_summary import describe
from .forecast_training import train_forecaster
from .inspection import EveryStepForecast, forecast_windows
from .likelihood_training import build_network
from .likelihoods import LIKELIHOODS
from .panel import Panel, to_panel
from .panel_future import known_future
from .seasons import seasons
from .smoothing_network import SmoothingNetwork, build_smoothing
from .training_options import check_training_options, draw_seed, to_int
from .windows import Origin, Windows, last_origins

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEVELS = (0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975)
NETWORKS = "errors", "es_rnn"


class Forecaster(BaseEstimator):
    """Forecasts with calibrated intervals for one series or many, by any cell.

    The data is one series (T,), several (n, T), several with many targets (n, T, targets), a list of series, or a long
    table `unique_id, ds, y` and covariates. A base forecast comes first: linear regressions of the values and of their
    logarithms on the last `context` steps, naive forecasts of every season and, for short series without a season,
    exponential smoothing, mixed series by series by their errors on windows they were not fitted to. The network reads
    the same steps and learns quantiles of the base forecast's errors at each of the `horizon` steps ahead. The last
    `validation` share of every series decides how many epochs to train and how much the network may add (`share_`):
    nothing, if it is not clearly better there. Intervals are calibrated, step by step ahead, on windows that the
    forecasts were not fitted to. Rare wild values are not read, and what came before a rare break is moved to the level
    after it (`disturbed_` names such series).

    Fitted attributes: `base_`, `network_`, `share_`, `history_`, `disturbed_`, and `calibrated_`, which is False if the
    series are too short to hold their end out; `summary()` says all this in words. Many of scikit-learn's checks do not
    apply, see `rc.estimators.inapplicable_checks`.

    **Arguments**

    - `cell`: a registered name such as "gru", or a cell class; `cell_options` are its own arguments.
    - `horizon`: steps to forecast.
    - `season`: steps of one season, or of several, such as (24, 168) for hours with a day and a week; 1 for none.
    - `context`: steps that forecasts read; by default four of the shortest season, two of the longest or two horizons,
      at least 16.
    - `hidden_size`, `num_layers`: of `rc.Recurrent`.
    - `network`: "errors", as above; or "es_rnn" (Smyl 2020, `rc.models.ESRNN`): exponential smoothing of every series,
      learned together with dilated, residual layers of the cell, forecasts the values themselves, and `share_` says how
      far the forecast goes from the base forecast to it. It reads the past values alone. Its dilations are (1, 2, 4, 8)
      unless `cell_options` have others.
    - `known`: columns of a table whose future is known (prices, holidays). `static`: columns that are constant in each
      series. `observed`: columns that are known until the forecast is made (past covariates: visitors, weather).
      Columns of text are embedded.
    - `quantiles`: the levels to learn, with 0.5 among them.
    - `likelihood`: "gaussian", "student_t", or "negative_binomial" for counts: the network learns the distribution of
      the next value instead (DeepAR, Salinas et al. 2020), around a linear forecast of it, and every step of a path is
      drawn given those before. Quantiles and intervals are those of 400 such paths, at any h, as the likelihood has
      them: they are not calibrated afterwards. For one target, without `observed`.
    - `epochs`, `batch_size`, `lr`, `optimizer`, `clip`, `device`: of `rc.train.fit`.
    - `validation`: the share of every series to hold out; 0 trains for all epochs and uses all of the network.
    - `patience`: epochs without an improvement after which training stops.
    - `max_windows`: the most training windows; of more, evenly spaced ones are used.
    - `random_state`: the seed. `verbose`: show the progress, with the time left.

    A long fit can be stopped and goes on where it was: `with rc.train.fit_context("runs/mine"): model.fit(data)`.

    **Example**

        >>> import numpy as np, recurra as rc
        >>> y = np.sin(2 * np.pi * np.arange(120) / 12)
        >>> model = rc.Forecaster("gru", horizon=6, season=12, hidden_size=8, epochs=2, random_state=0).fit(y)
        >>> model.predict().shape
        (6,)
        >>> lower, upper = model.predict_interval(level=0.9)
    """

    windows_: Windows
    base_: BaseForecast
    network_: Any  # a ForecastNetwork or a SmoothingNetwork, or with a likelihood an AutoregressiveNetwork
    calibrated_: bool
    disturbed_: list[str]  # the names of series with wild values or breaks, which forecasts do not read
    share_: float
    shifts_: np.ndarray  # (horizon, Q): corrections of the quantiles
    ranks_: np.ndarray  # (m, targets · horizon): of held-out errors, see sampled_paths.py
    variances_: np.ndarray  # (L,): of changes over 1, 2, … steps, see wandering.py
    history_: list[dict[str, Any]]
    past_: Panel  # the end of every series, which forecasts continue

    def __init__(
        self,
        cell: type[Cell] | str = "gru",
        horizon: int = 12,
        season: int | tuple[int, ...] = 1,
        context: int | None = None,
        hidden_size: int = 32,
        num_layers: int = 1,
        *,
        known: tuple[str, ...] = (),
        static: tuple[str, ...] = (),
        observed: tuple[str, ...] = (),
        quantiles: tuple[float, ...] = LEVELS,
        likelihood: str | None = None,
        network: str = "errors",
        cell_options: dict[str, Any] | None = None,
        epochs: int = 60,
        batch_size: int = 32,
        lr: float = 5e-3,
        optimizer: str = "adam",
        clip: float | None = 1.0,
        validation: float = 0.2,
        patience: int = 8,
        max_windows: int = 2000,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool = False,
    ):
        self.cell, self.horizon, self.season, self.context = cell, horizon, season, context
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.known, self.static, self.observed = known, static, observed
        self.quantiles, self.likelihood, self.network = quantiles, likelihood, network
        self.cell_options = cell_options
        self.epochs, self.batch_size = epochs, batch_size
        self.lr, self.optimizer, self.clip, self.validation, self.patience = lr, optimizer, clip, validation, patience
        self.max_windows, self.device, self.random_state, self.verbose = max_windows, device, random_state, verbose

    # ------------------------------------------------------------------------------------------ fit

    def fit(self, data: Any, y: Any = None) -> Self:
        """Train on series: (T,), (n, T), (n, T, targets), a list of series or a long table.

        `y` may name the column to forecast, or several: each is forecast from the past of all of them. In arrays NaN is
        a missing value: it is padding before the first value of a series and after its last one, and interpolated
        between them.
        """
        self._check_options()
        given = to_panel(data, self._covariates(), y if _are_names(y) else None)
        train_forecaster(self, given, draw_seed(self.random_state))
        return self

    def _check_options(self) -> None:
        for name in ("horizon", "max_windows"):
            positive_int(name, to_int(getattr(self, name)))
        seasons(self.season)
        check_training_options(self)
        levels = list(self.quantiles)
        if 0.5 not in levels or levels != sorted(set(levels)) or levels[0] <= 0 or levels[-1] >= 1 or len(levels) < 2:
            raise InputError("quantiles", levels, "increasing levels between 0 and 1, with 0.5 among them")
        if self.likelihood is not None and self.likelihood not in LIKELIHOODS:
            raise InputError("likelihood", repr(self.likelihood), f"None or one of {', '.join(LIKELIHOODS)}")
        if self.network not in NETWORKS:
            raise InputError("network", repr(self.network), f"one of {', '.join(NETWORKS)}")
        if self.likelihood is not None and self.network != "errors":
            raise InputError("network", repr(self.network), '"errors": a likelihood has a network of its own')
        if not is_real(self.validation) or not 0 <= self.validation < 1:
            raise InputError("validation", repr(self.validation), "a share from 0 to below 1")

    @property
    def context_size(self) -> int:
        """Steps the network reads."""
        if self.context is not None:
            return positive_int("context", to_int(self.context))
        return max(4 * self.seasons[0], 2 * self.seasons[-1], 2 * to_int(self.horizon), 16)

    @property
    def seasons(self) -> tuple[int, ...]:
        """The lengths of the seasons, the shortest first; (1,) for none."""
        return seasons(self.season)

    def _build(self) -> ForecastNetwork | SmoothingNetwork | AutoregressiveNetwork:
        """An untrained network for the columns of this forecaster."""
        if self.network == "es_rnn":
            return build_smoothing(self)
        layers = {"hidden_size": to_int(self.hidden_size), "num_layers": to_int(self.num_layers)}
        options = {**layers, **(self.cell_options or {})}
        if self.likelihood is not None:
            return build_network(self, options)
        return ForecastNetwork(
            self.cell, self.windows_.column_sizes, len(self.quantiles), to_int(self.horizon), options
        )

    def summary(self) -> str:
        """What the forecasts consist of, in words: the shares of the members, and of the network.

        **Example**

            >>> import numpy as np, recurra as rc
            >>> y = np.sin(np.arange(80) / 3) + np.random.default_rng(0).normal(size=80)
            >>> print(rc.Forecaster("gru", horizon=4, hidden_size=4, epochs=1, random_state=0).fit(y).summary()[:17])
            The base forecast
        """
        check_is_fitted(self, "network_")
        return describe(self)

    # ------------------------------------------------------------------------------------------ predict

    def predict(self, h: int | None = None, data: Any = None, future: Any = None) -> Any:
        """The median of the next `h` steps, by default `horizon`.

        Beyond `horizon`, 200 paths drawn from the model's own quantiles are continued by its next forecasts, and the
        answer is the quantiles of their mixture. Intervals widen with the paths, and at least as the changes of the
        series grew with the steps in training. A new trend is in none of them: train with the horizon you need.
        The forecast continues the series of `fit`, or those of `data`. `future` is a table of the columns `known` for
        the steps ahead. **Returns** (h,), (n, h), (n, h, targets), or a table `unique_id, ds, y`, in the form of the
        data: a dataframe or series of pandas or polars if the data was one, with dates in its index if they were there.
        """
        found, given = self._forecast(h, data, future)
        return answer(given, {POINT: found[:, :, list(self.quantiles).index(0.5)]})

    def predict_quantiles(self, h: int | None = None, levels: Any = None, data: Any = None, future: Any = None) -> Any:
        """Quantiles of the next `h` steps: (h, Q), (n, h, Q), (n, h, targets, Q), or a table, a column per level."""
        known = tuple(self.quantiles)
        asked = np.asarray(known if levels is None else levels, dtype=np.float64)
        if asked.ndim != 1 or not len(asked) or asked.min() < known[0] or asked.max() > known[-1]:
            raise InputError("levels", levels, f"levels from {known[0]} to {known[-1]}, the range of `quantiles`")
        found, given = self._forecast(h, data, future)
        values = interpolate_levels(found, known, asked)
        if given.form == "table":
            return answer(given, {f"q{level:g}": values[:, :, k] for k, level in enumerate(asked)})
        return as_array(given, values)

    def predict_interval(self, h: int | None = None, level: float = 0.9, data: Any = None, future: Any = None) -> Any:
        """The central interval of probability `level` for the next `h` steps: (lower, upper), or a table of both."""
        if not 0 < level < 1:
            raise InputError("level", level, "a probability between 0 and 1")
        known = tuple(self.quantiles)
        asked = np.asarray(interval_levels(level)).round(9)
        if asked[0] < known[0] or asked[1] > known[-1]:
            raise InputError("level", level, f"at most {known[-1] - known[0]:g}, the range of `quantiles`")
        found, given = self._forecast(h, data, future)
        lower, upper = np.moveaxis(interpolate_levels(found, known, asked), -1, 0)
        if given.form == "table":
            return answer(given, {"lower": lower, "upper": upper})
        return as_array(given, lower), as_array(given, upper)

    def sample_paths(
        self, paths: int = 100, h: int | None = None, data: Any = None, future: Any = None, random_state: Any = 0
    ) -> np.ndarray:
        """Possible courses of the next `h` steps, whose steps hang together: for sums, maxima or first passages.

        With a `likelihood` every step is drawn given those before it; otherwise paths have the calibrated quantiles,
        with the ranks of held-out errors. **Returns** (paths, h) for one series, else (n, paths, h), in the order of
        `series_names`.

        **Example**

            >>> import numpy as np, recurra as rc
            >>> y = np.random.default_rng(0).poisson(5, 100)
            >>> counts = rc.Forecaster("gru", 7, hidden_size=4, epochs=1, likelihood="negative_binomial").fit(y)
            >>> week = counts.sample_paths(1000).sum(axis=1)  # the total of the week: its whole distribution
            >>> week.shape
            (1000,)
        """
        given, origins, steps = self._origins(h, data, future)
        found = forecast_paths(self, given, origins, steps, positive_int("paths", paths), draw_seed(random_state))
        return found[0] if given.form == "one" else found

    def plot(self, h: int | None = None, data: Any = None, future: Any = None) -> "Figure":
        """A plotly figure of the next `h` steps as a fan of intervals after the past; at most four series."""
        found, given = self._forecast(h, data, future)
        return fan_figure(given.ids, given.y, found, tuple(self.quantiles))

    def _forecast(self, h: int | None, data: Any, future: Any) -> tuple[np.ndarray, Panel]:
        given, origins, steps = self._origins(h, data, future)
        return forecast_quantiles(self, given, origins, steps), given

    def _origins(self, h: int | None, data: Any, future: Any) -> tuple[Panel, list[Origin], int]:
        """The series with the covariates of the steps ahead, where they end, and the number of those steps."""
        check_is_fitted(self, "network_")
        steps = positive_int("h", self.horizon if h is None else to_int(h))
        given = self.past_ if data is None else self._panel(data)
        ahead = known_future(future, given, steps)
        known = [np.concatenate(pair) for pair in zip(given.known, ahead, strict=True)]
        origins = [Origin(k, len(y)) for k, y in enumerate(given.y)]
        return replace(given, known=known), origins, steps

    def _panel(self, data: Any) -> Panel:
        """Data to forecast from, read like that of `fit`."""
        given = to_panel(data, self.past_.covariates, self.past_.targets if self.past_.form == "table" else None)
        if len(given.targets) != len(self.past_.targets):
            raise ShapeError("data", f"{len(given.targets)} values per step", f"{len(self.past_.targets)}, as in fit")
        return given

    def series_names(self, data: Any) -> list[str]:
        """The names of the series in data; of several targets, one for each target of each series."""
        return self._panel(data).ids

    def _covariates(self) -> Covariates:
        for name in ("known", "static", "observed"):
            columns = getattr(self, name)
            if not isinstance(columns, (list, tuple)) or not all(isinstance(column, str) for column in columns):
                raise InputError(name, repr(columns), "a tuple of names of columns")
        return Covariates(tuple(self.known), tuple(self.static), tuple(self.observed))

    def inspection_inputs(self, data: Any, sequences: int = 4) -> tuple[EveryStepForecast, Sample]:
        """The network with outputs at every step, and the windows at the end of series, for `rc.inspect`."""
        check_is_fitted(self, "network_")
        if self.network == "es_rnn":
            remedy = "network='errors'; the layers of `network_.model`, an rc.models.ESRNN, can be measured"
            raise InputError("model", "network='es_rnn'", remedy)
        return EveryStepForecast(self.network_), forecast_windows(self, data, sequences)

    # ------------------------------------------------------------------------------------------ evaluate

    def backtest(self, data: Any, h: int | None = None, windows: int = 10, step: int | None = None) -> Backtest:
        """Score forecasts from the last `windows` origins of every series, `step` (by default h) apart.

        The model is not refitted: for an unbiased result the windows must come after its training data. **Returns** a
        `Backtest` with the scores of the model and of naive forecasts.
        """
        check_is_fitted(self, "network_")
        given = self._panel(data)
        steps = positive_int("h", self.horizon if h is None else to_int(h))
        apart = positive_int("step", steps if step is None else step)
        origins = last_origins(given, steps, apart, positive_int("windows", windows))
        if not origins:
            raise ShapeError("data", f"series of at most {max(map(len, given.y))} steps", f"{steps + 2} steps or more")
        found = forecast_quantiles(self, given, origins, steps)
        actual = np.stack([given.y[o.series][o.at : o.at + steps] for o in origins])
        pasts = [given.y[o.series][: o.at] for o in origins]
        levels = tuple(self.quantiles)
        shown = shown_intervals(levels)
        names = [given.ids[o.series] for o in origins]
        return compare_with_naive(pasts, actual, found, levels, self.seasons[0], shown, names)

    def score(self, data: Any, y: Any = None) -> float:
        """Skill on the last `horizon` steps of `data`: 1 is perfect, 0 equals the (seasonal) naive forecast."""
        scores = self.backtest(data, windows=1).scores
        return 1 - scores["model"]["MAE"] / scores["seasonal naive" if self.seasons[0] > 1 else "naive"]["MAE"]

    # ------------------------------------------------------------------------------------------ save and load

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors`: weights, scalings, and the end of every series."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "network_")
        return forecast_storage.contents_of(self)

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: `past` (T, B) in the units of the data, `lengths` (B,) → quantiles (B, horizon, Q).

        With several series, `series` (B,) is the number of each among those of `fit`. With several targets, `past` is
        (T, B, targets) and the quantiles (B, horizon, targets, Q). With covariates, `known` (T', B, F) has them from
        the first value to the last step ahead, and `observed` (T, B, P) until the last value; a text is the number of
        its value among the `categories` of the metadata, from 1 on, or 0. Scaling and calibration are part of the file;
        names and levels are in its metadata. Disturbances of the past are not looked for in a file. It is compared with
        the model in onnxruntime before it is put in place.
        """
        from .forecast_export import export

        check_is_fitted(self, "network_")
        return export(self, path)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The forecaster that `save` wrote. A user-defined cell must be registered before."""
        return forecast_storage.load(cls, folder)


def _are_names(y: Any) -> bool:
    """Whether y names columns; other targets are those of scikit-learn's calls, which series do not have."""
    return isinstance(y, str) or (isinstance(y, list | tuple) and bool(y) and all(isinstance(name, str) for name in y))
