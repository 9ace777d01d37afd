"""ES-RNN (Smyl 2020): exponential smoothing of every series, learned together with one recurrent network for all.

A series is divided by its level and its seasons, which are smoothed with coefficients of its own. The network reads the
logarithms of what remains and forecasts it; the forecast is multiplied by the level and the seasons again. The
smoothing is a cell too, so that the engine runs it and its gradients.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..argument_checks import positive_int
from ..cell import Cell
from ..errors import InputError, ShapeError
from ..layers import Recurrent
from ..readout import Readout

SMALLEST = 1e-8  # of a value, a level or a season, before its logarithm


class SmoothingCell(Cell):
    """Exponential smoothing of a level and multiplicative seasons (Holt 1957, Winters 1960), without a trend.

    The input is the value and the smoothing coefficients of level and seasons; the state e has the level and the factor
    of every season, each read one season back.
    """

    states = ("e",)

    def __init__(self, input_size: int, hidden_size: int, seasons: Sequence[int] = ()):
        super().__init__(input_size, hidden_size, delays={"e": (1, *seasons)})

    def step(self, x: Tensor, e: tuple[Tensor, ...]) -> Tensor:
        value, alpha = x[:, 0:1], x[:, 1:2]
        factors = [e[k][:, k : k + 1] for k in range(1, len(e))]
        every = torch.ones_like(value)
        for factor in factors:
            every = every * factor
        level = alpha * value / every + (1 - alpha) * e[0][:, 0:1]
        new = [
            x[:, k + 1 : k + 2] * value * factor / (level * every) + (1 - x[:, k + 1 : k + 2]) * factor
            for k, factor in enumerate(factors, start=1)
        ]
        return torch.cat([level, *new], dim=1)


class ESRNN(nn.Module):
    """Exponential smoothing with one recurrent network for all series (Smyl 2020), for positive series.

    **Arguments**

    - `series`: n, how many series have smoothing coefficients and first seasons of their own.
    - `horizon`: h, steps to forecast.
    - `seasons`: steps of each season, such as (24, 168); none for a level alone.
    - `cell`, `hidden_size`, `dilation`: of the network, residual layers of any cell (`rc.Recurrent`).
    - `window`: how many values the network reads at every step; by default the shortest season, or h.
    - `quantiles`: Q levels to forecast.
    - `categories`: how many static categories series may have; each is embedded.
    - `learn_starts`: whether the first season of every series is learned beside its course. It is the series' own only
      if y begins where the series does; windows that begin anywhere have the course alone.
    - `options`: of the cell.

    **Returns**, when called as `model(y, series)` with values (T, B) and the numbers of the series (B,), the forecasts
    (B, h, Q) of the steps after the last, in the units of y. `rc.train.fit` with `loss=rc.models.SmoothedWindows()`
    trains it on a `SequenceSet` of series (T, 1) whose targets are their numbers.

    **Example**

        >>> import torch, recurra as rc
        >>> y = [2 + torch.sin(torch.arange(60.0) + k)[:, None] for k in range(3)]
        >>> model = rc.models.ESRNN(3, horizon=4, seasons=(6,), hidden_size=8, dilation=(1, 2))
        >>> data = rc.data.SequenceSet.from_arrays(y, torch.arange(3.0), "regression")
        >>> result = rc.train.fit(model, data, loss=rc.models.SmoothedWindows(), epochs=2, progress=False)
        >>> model(torch.cat(y, dim=1), torch.arange(3)).shape
        torch.Size([3, 4, 1])
    """

    def __init__(
        self,
        series: int,
        horizon: int,
        seasons: Sequence[int] = (),
        cell: type[Cell] | str = "lstm",
        hidden_size: int = 32,
        dilation: Sequence[int] = (1, 2, 4, 8),
        window: int | None = None,
        quantiles: Sequence[float] = (0.5,),
        categories: int = 0,
        learn_starts: bool = True,
        **options: Any,
    ):
        super().__init__()
        self.horizon, self.seasons = positive_int("horizon", horizon), tuple(seasons)
        for season in self.seasons:
            if positive_int("seasons", season) < 2:
                raise InputError("seasons", list(self.seasons), "whole numbers of at least 2")
        self.quantiles = tuple(quantiles)
        if not self.quantiles or not all(0 < level < 1 for level in self.quantiles):
            raise InputError("quantiles", list(self.quantiles), "levels between 0 and 1")
        self.window = positive_int("window", window or min(self.seasons, default=horizon))
        count = len(self.seasons)
        self.coefficients = nn.Embedding(positive_int("series", series), 1 + count)
        nn.init.constant_(self.coefficients.weight, -1.0)
        self.learn_starts = learn_starts
        rows = series if learn_starts else 1
        self.first_seasons = nn.ModuleList(nn.Embedding(rows, season) for season in self.seasons)
        for weights in self.first_seasons.parameters():
            nn.init.zeros_(weights).requires_grad_(learn_starts)
        self.smoothing = Recurrent(SmoothingCell, 2 + count, 1 + count, seasons=self.seasons)
        width = min(8, categories)
        self.embedding = nn.Embedding(categories, width) if categories else None
        self.network = Recurrent(
            cell, self.window + width, hidden_size, dilation=tuple(dilation), depth="residual", **options
        )
        self.readout = Readout(self.network, self.horizon * len(self.quantiles))
        nn.init.zeros_(self.readout.V)

    def forward(
        self, y: Tensor, series: Tensor, lengths: Tensor | None = None, category: Tensor | None = None
    ) -> Tensor:
        """Values (T, B), numbers of series, lengths and categories (B,) → forecasts (B, h, Q) after the end."""
        y, lengths = self._check(y, series, lengths)
        level, seasons = self.smooth(y, series, lengths)
        deviation = self.deviations(y, level, seasons, lengths, category)  # (T - window + 1, B, h, Q)
        lanes = torch.arange(y.shape[1], device=y.device)
        end = level[lengths - 1, lanes][:, None]
        if seasons:
            end = end + self._seasons_ahead(seasons)[lengths - 1, lanes]  # (B, h)
        return (end.expand(-1, self.horizon)[:, :, None] + deviation[lengths - self.window, lanes]).exp()

    def smooth(self, y: Tensor, series: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The logarithms of the levels (T, B) after each step, and of each season's factors (T + season, B).

        The factor of step t is at place t; those of one season after the last step are known.
        """
        steps, batch = y.shape
        rates = torch.sigmoid(self.coefficients(series))  # (B, 1 + K)
        x = torch.cat([y[..., None], rates.expand(steps, batch, -1)], dim=-1)
        row = series if self.learn_starts else torch.zeros_like(series)
        starts = [self._start(y, table(row), lengths) for table in self.first_seasons]  # (B, season)
        first = (y[0] / torch.stack([start[:, 0] for start in starts]).prod(0)) if starts else y[0]
        depth = max(self.seasons, default=1)
        columns = [first[:, None].expand(batch, depth)]
        for start in starts:  # newest first; what is before the season is never read
            older = start.new_ones(batch, depth - start.shape[1])
            columns.append(torch.cat([start.flip(1), older], dim=1))
        smoothed, _ = self.smoothing(x, torch.stack(columns, dim=-1)[None], lengths)  # (T, B, 1 + K)
        logs = smoothed.clamp_min(SMALLEST).log()
        factors = [
            torch.cat([start.t().clamp_min(SMALLEST).log(), logs[..., k]]) for k, start in enumerate(starts, start=1)
        ]
        return logs[..., 0], factors

    def _start(self, y: Tensor, learned: Tensor, lengths: Tensor) -> Tensor:
        """(B, season): the factors before the first step: the course of the first season, times learned ones."""
        season = learned.shape[1]
        if y.shape[0] < season:
            return learned.exp()
        course = y[:season] / y[:season].mean(dim=0)  # (season, B)
        course = torch.where(lengths >= season, course, 1.0).clamp_min(SMALLEST)
        if len(self.seasons) > 1 and season != min(self.seasons):  # relative to the shorter season
            shorter = min(self.seasons)
            whole = course[: season - season % shorter].reshape(-1, shorter, course.shape[1]).mean(dim=0)
            course = course / whole.repeat(season // shorter + 1, 1)[:season]
        return (course.t().log() + learned).exp()

    def _seasons_ahead(self, factors: list[Tensor]) -> Tensor:
        """(T, B, h): the logarithm of all seasons at the h steps after each step, as known at that step."""
        total = factors[0].new_zeros(())
        for factor, season in zip(factors, self.seasons, strict=True):
            steps = factor.shape[0] - season
            ahead = 1 + torch.arange(self.horizon, device=factor.device) % season
            total = total + factor[torch.arange(steps, device=factor.device)[:, None] + ahead].transpose(1, 2)
        return total

    def deviations(
        self, y: Tensor, level: Tensor, factors: list[Tensor], lengths: Tensor, category: Tensor | None
    ) -> Tensor:
        """(T - window + 1, B, h, Q): what the network adds to logarithms, from every step with a full window."""
        rest = y.clamp_min(SMALLEST).log()
        for factor in factors:
            rest = rest - factor[: y.shape[0]]
        windows = rest.unfold(0, self.window, 1) - level[self.window - 1 :, :, None]  # (T', B, window)
        if self.embedding is not None:
            if category is None:
                raise InputError("category", None, f"{self.embedding.num_embeddings} categories: a number per series")
            vectors = self.embedding(category).expand(windows.shape[0], -1, -1)
            windows = torch.cat([windows, vectors], dim=-1)
        found, _ = self.network(windows, lengths=lengths - self.window + 1)
        return self.readout(found).unflatten(-1, (self.horizon, len(self.quantiles)))

    def loss(self, y: Tensor, series: Tensor, lengths: Tensor | None = None, category: Tensor | None = None) -> Tensor:
        """(B,): the mean pinball loss of logarithms over all steps with a full window and h steps after it."""
        y, lengths = self._check(y, series, lengths, self.horizon)
        level, seasons = self.smooth(y, series, lengths)
        count = y.shape[0] - self.window - self.horizon + 1
        found = self.deviations(y, level, seasons, lengths, category)[:count]
        at = torch.arange(self.window - 1, self.window - 1 + count, device=y.device)
        after = y.clamp_min(SMALLEST).log().unfold(0, self.horizon, 1)[self.window : self.window + count]  # (T', B, h)
        target = after - level[at][:, :, None]
        if seasons:
            target = target - self._seasons_ahead(seasons)[at]
        missed = target[..., None] - found
        tau = missed.new_tensor(self.quantiles)
        each = torch.maximum(tau * missed, (tau - 1) * missed).mean(dim=(2, 3))  # (T', B)
        valid = at[:, None] + self.horizon < lengths
        if self.seasons:  # the first course of a season starts its factors, and is not forecast
            valid = valid & (at[:, None] >= torch.minimum(torch.tensor(max(self.seasons)), lengths - self.horizon) - 1)
        return (each * valid).sum(0) / valid.sum(0)

    def _check(self, y: Tensor, series: Tensor, lengths: Tensor | None, after: int = 0) -> tuple[Tensor, Tensor]:
        """Values with ones as padding, and lengths."""
        if y.dim() != 2 or series.shape != (y.shape[1],):
            got = f"shapes {tuple(y.shape)} and {tuple(series.shape)}"
            raise ShapeError("y", got, "values (T, B) and the numbers of the series (B,)")
        lengths = torch.full_like(series, y.shape[0]) if lengths is None else lengths.to(series)
        if int(lengths.min()) < self.window + after:
            raise ShapeError("y", f"{int(lengths.min())} steps", f"{self.window + after} or more")
        inside = torch.arange(y.shape[0], device=y.device)[:, None] < lengths
        if bool((torch.where(inside, y, 1.0) <= 0).any()):
            raise InputError("y", "values that are not positive", "positive series: levels and seasons are factors")
        return torch.where(inside, y, 1.0), lengths


class SmoothedWindows:
    """The loss of an `ESRNN` for `rc.train.fit`: pinball of logarithms; targets are the numbers of the series (B,), or
    numbers and categories (B, 2).

    **Example**

        >>> y = [2 + torch.sin(torch.arange(60.0) + k)[:, None] for k in range(3)]
        >>> data = rc.data.SequenceSet.from_arrays(y, torch.arange(3.0), "regression")  # targets: which series it is
        >>> model = rc.models.ESRNN(3, horizon=4, seasons=(6,), hidden_size=8, dilation=(1, 2))
        >>> len(rc.train.fit(model, data, loss=rc.models.SmoothedWindows(), epochs=2, progress=False).history)
        2
    """

    def count(self, batch: Any) -> int:
        """The number of series in a batch."""
        return batch.inputs.shape[1]

    def __call__(self, model: Any, batch: Any, state: Any) -> tuple[dict[str, Tensor], Any]:
        about = batch.targets.reshape(batch.inputs.shape[1], -1).long()
        category = about[:, 1] if about.shape[1] > 1 else None
        return {"loss": model.loss(batch.inputs[..., 0], about[:, 0], batch.lengths, category).sum()}, None
