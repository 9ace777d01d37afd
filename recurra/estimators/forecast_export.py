"""Exports a forecaster to ONNX: `windows.py`, `linear.py` and `base_forecast.py` in torch operations."""

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError
from .base_forecast import Member
from .covariates import numbers_scaled
from .forecast_quantiles import in_logs
from .linear import LOG_RANGE
from .onnx_file import tensor, write
from .scaling import Scaling

if TYPE_CHECKING:
    from .forecaster import Forecaster


def export(model: "Forecaster", path: str | Path) -> Path:
    """Write an ONNX file; its metadata have series, targets, covariates, categories of text and quantile levels."""
    past, random = model.past_, np.random.default_rng(0)
    if model.likelihood is not None:
        raise InputError("model", f"likelihood={model.likelihood!r}", "likelihood=None: a file has no sampled paths")
    if model.network == "es_rnn":
        raise InputError("model", "network='es_rnn'", "network='errors': a file has no numbers of series to smooth by")
    count, groups = len(past.targets), past.groups
    longest, batch = max(map(len, past.y)), 3
    chosen = [k % len(groups) for k in range(batch)]
    rows = np.stack([[np.resize(past.y[g * count + k], longest) for k in range(count)] for g in chosen])  # (B, K, T)
    values = rows.transpose(2, 0, 1)
    example: dict[str, Any] = {
        "past": tensor(values if count > 1 else values[:, :, 0]),
        "lengths": torch.tensor([longest, max(1, longest - 1), max(1, longest // 2)]),
    }
    if len(groups) > 1:
        example["series"] = torch.tensor(chosen)
    for name, columns, steps in (("known", past.known, longest + model.horizon), ("observed", past.observed, longest)):
        if columns[0].shape[1]:
            seen = np.concatenate(columns)
            example[name] = tensor(random.permuted(np.resize(seen, (steps, batch, seen.shape[1])), axis=0))
    shape = "quantiles (B, horizon, Q)" if count == 1 else "quantiles (B, horizon, targets, Q)"
    facts = {"kind": "Forecaster", "series": groups, "known": list(model.known), "levels": list(model.quantiles)}
    facts |= {"horizon": int(model.horizon), "context": model.windows_.context, "outputs": shape}
    facts |= {"targets": list(past.targets), "observed": list(model.observed)}
    facts |= {"categories": {name: list(values) for name, values in past.covariates.categories.items()}}
    return write(ForecastModule(model).eval(), path, example, facts, ["quantiles"])


class View(NamedTuple):
    """The window of values, or of their logarithms."""

    relative: Tensor  # (T + h, L): minus the level, in spreads, zero outside
    level: Tensor  # (L,)
    spread: Tensor  # (L,)


class Beside(NamedTuple):
    """What the forecasts read beside the values of their series."""

    static: Tensor  # (L, S)
    known: Tensor | None  # (T + h, L, 2F): covariates, and those at the step that the naive forecast repeats
    observed: Tensor | None  # (T + h, L, P): in the window; after it, the last ones


class ForecastModule(nn.Module):
    """Values (T, B) and lengths (B,) → calibrated quantiles (B, horizon, Q), all in the units of the data.

    With several targets, values are (T, B, targets) and quantiles (B, horizon, targets, Q). `series` (B,) has the
    number of each series among those of `fit`. `known` (T', B, F) are the covariates, from the first value to the last
    step ahead, and `observed` (T, B, P) those until the last value. A text is the number of its value among the
    categories in the metadata, from 1 on; 0 is any other.

    Inside, every target of every series of the batch is a lane: L = B · targets.
    """

    mean: Tensor
    scale: Tensor
    static: Tensor
    known_mean: Tensor
    known_scale: Tensor
    observed_mean: Tensor
    observed_scale: Tensor
    weights: Tensor
    periods: Tensor
    shifts: Tensor
    mix: Tensor
    unit: Tensor
    log_mean: Tensor
    log_scale: Tensor
    never_below: Tensor
    in_logs: Tensor

    def __init__(self, model: "Forecaster"):
        super().__init__()
        windows, past = model.windows_, model.past_
        self.network, self.season = deepcopy(model.network_).eval(), windows.season
        self.seasons, self.context, self.horizon = windows.seasons, windows.context, int(model.horizon)
        self.least_spread = windows.least_spread
        self.targets, self.lags = windows.targets, windows.observed_lags
        self.static_sizes, self.known_sizes = (windows.covariates.sizes(role) for role in ("static", "known"))
        self.observed_sizes = windows.observed_sizes
        self.is_log = [member.log for member in model.base_.members]
        shares = [model.base_.series.get(name, model.base_.usual) for name in past.ids]
        logs = [windows.logs.get(name, Scaling.none(1)) for name in past.ids]
        sizes = windows.covariates.sizes("observed")
        observed = [
            windows.observed.get(name) or numbers_scaled([x], sizes)
            for name, x in zip(past.ids, past.observed, strict=True)
        ]
        self._add_smoothing(model.base_.members, np.any([share.weights > 0 for share in shares], axis=0))
        weights = np.stack([[one.weights for one in member.linear.each] for member in model.base_.members])
        constants = {
            "mean": np.concatenate([windows.series[name].mean for name in past.ids]),
            "scale": np.concatenate([windows.series[name].scale for name in past.ids]),
            "static": windows.static.apply(past.static),
            "known_mean": windows.known.mean,
            "known_scale": windows.known.scale,
            "observed_mean": np.stack([one.mean for one in observed]),
            "observed_scale": np.stack([one.scale for one in observed]),
            "weights": weights,  # (members, targets, horizon, columns)
            "mix": np.stack([share.weights for share in shares]),
            "unit": np.array([share.unit for share in shares]),
            "log_mean": np.concatenate([one.mean for one in logs]),
            "log_scale": np.concatenate([one.scale for one in logs]),
            "shifts": model.shifts_,
        }
        for name, value in constants.items():
            self.register_buffer(name, tensor(value))
        floors = [windows.never_below(past, k, len(y)) for k, y in enumerate(past.y)]
        self.register_buffer("never_below", torch.tensor(floors))
        self.register_buffer("in_logs", torch.tensor([in_logs(model, name) for name in past.ids]))
        self.register_buffer("periods", torch.tensor([member.linear.seasons for member in model.base_.members]))

    def _add_smoothing(self, members: Sequence[Member], used: np.ndarray) -> None:
        """The members that smooth values, and logarithms, with the name of a table of their matrices."""
        self.smoothed: dict[bool, tuple[list[int], str]] = {}
        self.is_plain = [bool(use) and member.smoothing is None for member, use in zip(members, used, strict=True)]
        for is_log in (False, True):
            chosen = [k for k, one in enumerate(members) if one.smoothing and used[k] and one.log == is_log]
            table = np.zeros((self.context + 1, len(chosen), self.horizon, self.context))
            for row, k in enumerate(chosen):
                smoothing = members[k].smoothing
                for count in range(1, self.context + 1):
                    table[count, row, :, :count] = smoothing.matrix(count)  # pyrefly: ignore
            if chosen:
                self.smoothed[is_log] = chosen, f"smoothing_{is_log}"
                self.register_buffer(f"smoothing_{is_log}", tensor(table))

    def forward(
        self,
        past: Tensor,
        lengths: Tensor,
        series: Tensor | None = None,
        known: Tensor | None = None,
        observed: Tensor | None = None,
    ) -> Tensor:
        series = torch.zeros_like(lengths) if series is None else series
        target = torch.arange(self.targets, device=past.device)
        series = (series[:, None] * self.targets + target).flatten()  # (L,)
        target = target.expand(lengths.shape[0], self.targets).flatten()  # (L,)
        if self.targets > 1:
            torch._check(past.shape[2] == self.targets)  # for torch.export: this axis has a fixed size
            lengths, past = lengths.repeat_interleave(self.targets), past.flatten(1)
        mean, scale = self.mean[series], self.scale[series]
        z = (past - mean) / scale  # (T, L)
        count = lengths.clamp(max=self.context)  # (L,) values in the window, which starts at `first`
        first, last = lengths - count, lengths - 1
        place = torch.arange(past.shape[0] + self.horizon, device=past.device)[:, None]  # (T + h, 1)
        inside = place < count
        at = torch.minimum(first + place, last)
        view = _view(z.gather(0, at), z.gather(0, last[None])[0], inside, count, self.least_spread)
        known = self._known(known, first, count, place)
        beside = Beside(self.static[series], known, self._observed(z, observed, series, at))
        base = self._base(past, at, view, inside, count, series, beside)
        columns = self._columns(view, base, inside, count, place, target, beside)
        found = self.network(columns, count + self.horizon)  # (L, h, Q)
        found = (found.sort(dim=-1).values + self.shifts).sort(dim=-1).values
        found = base.t()[:, :, None] + self.unit[series][:, None, None] * found
        level, spread = view.level[:, None, None], view.spread[:, None, None]
        found = mean[:, None, None] + scale[:, None, None] * (level + spread * found)
        least = past.gather(0, at).amin(dim=0)
        is_floored = (self.never_below[series] & (least >= 0)) | (self.in_logs[series] & (least > 0))
        found = torch.where(is_floored[:, None, None], found.clamp(min=0.0), found)
        return found if self.targets == 1 else found.unflatten(0, (-1, self.targets)).transpose(1, 2)

    def _columns(
        self, view: View, base: Tensor, inside: Tensor, count: Tensor, place: Tensor, target: Tensor, beside: Beside
    ) -> Tensor:
        """(T + h, L, columns): what the network reads."""
        relative, level, spread = view
        ahead = (place - count).clamp(min=0, max=self.horizon - 1)  # (T + h, L)
        repeated = (self._naive(relative, count, season).gather(0, ahead) for season in self.seasons)
        numbers = [
            torch.where(inside, relative, base.gather(0, ahead)),
            inside.to(relative.dtype),
            *(torch.where(inside, 0.0, row) for row in repeated),
            level.expand_as(relative),
            (level / spread).expand_as(relative),
        ]
        parts = [torch.stack(numbers, dim=-1), beside.static.expand(*relative.shape, -1)]
        if self.targets > 1:
            parts.append((target + 1).to(relative.dtype)[:, None].expand(*relative.shape, 1))
        if beside.known is not None:
            parts.append(beside.known)
        if beside.observed is not None:
            parts.append(self._relative(beside.observed, spread))
            numbers_last = self._numbers(beside.observed)[-1]  # after the window stands its last step
            parts.append(numbers_last.expand(*relative.shape, -1))
        return torch.cat(parts, dim=-1)

    def _naive(self, relative: Tensor, count: Tensor, season: int | Tensor) -> Tensor:
        """(h, L): the last season repeated, or the last value without a full season."""
        ahead = torch.arange(self.horizon, device=count.device)[:, None]
        period = _period(count, season)
        return relative.gather(0, count - period + ahead % period)

    # ------------------------------------------------------------------------------------------ base forecast

    def _base(
        self, past: Tensor, at: Tensor, view: View, inside: Tensor, count: Tensor, series: Tensor, beside: Beside
    ) -> Tensor:
        """(h, L): the mixed forecast."""
        log_mean, log_scale = self.log_mean[series], self.log_scale[series]
        total = torch.zeros(self.horizon, 1, dtype=past.dtype)
        of_logs = view
        if any(self.is_log):
            floor = (log_mean - LOG_RANGE * log_scale).exp()
            logs = (torch.maximum(past, floor).log() - log_mean) / log_scale
            of_logs = _view(logs.gather(0, at), logs.gather(0, at[-1:])[0], inside, count, self.least_spread)
        for k, is_log in enumerate(self.is_log):
            if not self.is_plain[k]:
                continue
            own = of_logs if is_log else view
            found = self._linear(self.weights[k], self.periods[k], own, count, beside)
            found = self._from_log(found, own, view, series) if is_log else found
            weight = self.mix[series, k]
            total = total + torch.where(weight > 0, weight * found, 0.0)
        for is_log, (members, table) in self.smoothed.items():
            own = of_logs if is_log else view
            found = self._smoothed(getattr(self, table), own, count)  # (members, h, L)
            found = self._from_log(found, own, view, series) if is_log else found
            weight = self.mix[series][:, members].t()[:, None]
            total = total + torch.where(weight > 0, weight * found, 0.0).sum(dim=0)
        return total

    def _linear(self, weights: Tensor, periods: Tensor, view: View, count: Tensor, beside: Beside) -> Tensor:
        """(h, L): a linear forecast with weights (targets, horizon, columns)."""
        at = count - self.context + torch.arange(self.context, device=count.device)[:, None]  # (C, L)
        parts = [
            (view.relative.gather(0, at.clamp(min=0)) * (at >= 0)).t(),
            torch.ones_like(view.level)[:, None],
            (view.level / view.spread)[:, None],
            _one_hot(beside.static, self.static_sizes),
            *self._linear_observed(beside.observed, view.spread, count),
        ]
        row = torch.cat(parts, dim=-1)  # (L, C + 2 + S)
        width = row.shape[1]
        each = row.unflatten(0, (-1, self.targets))  # (B, targets, …)
        change = torch.einsum("bkc,khc->hbk", each, weights[..., :width]).flatten(1)
        period = periods.expand(each.shape[0], self.targets).flatten()
        found = self._naive(view.relative, count, period) + change
        if beside.known is None:
            return found
        ahead = count + torch.arange(self.horizon, device=count.device)[:, None]  # (h, L)
        to_come = beside.known[ahead, torch.arange(count.shape[0], device=count.device)]  # (h, L, 2F)
        to_come = _one_hot(to_come, (*self.known_sizes, *self.known_sizes)).unflatten(1, (-1, self.targets))
        return found + torch.einsum("hbkf,khf->hbk", to_come, weights[..., width:]).flatten(1)

    def _from_log(self, found: Tensor, own: View, view: View, series: Tensor) -> Tensor:
        """Forecasts of logarithms, relative to their window, as such of the values."""
        log_mean, log_scale = self.log_mean[series], self.log_scale[series]
        value = (own.level + own.spread * found).clamp(-LOG_RANGE, LOG_RANGE)
        value = ((log_mean + log_scale * value).exp() - self.mean[series]) / self.scale[series]
        return (value - view.level) / view.spread

    def _smoothed(self, table: Tensor, view: View, count: Tensor) -> Tensor:
        """(members, h, L): smoothing by a table (context + 1, members, h, context) of matrices for every length."""
        at = torch.minimum(torch.arange(self.context, device=count.device)[:, None], count - 1)  # (C, L)
        return torch.einsum("lkhc,cl->khl", table[count], view.relative.gather(0, at))  # the table ends with the window

    def _linear_observed(self, observed: Tensor | None, spread: Tensor, count: Tensor) -> list[Tensor]:
        """(L, …) each: the lags of numbers, their last values, and the last categories one-hot."""
        if observed is None:
            return []
        numbers = self._numbers(observed)  # (T + h, L, numbers)
        lanes = torch.arange(count.shape[0], device=count.device)
        at = count - self.lags + torch.arange(self.lags, device=count.device)[:, None]  # (lags, L)
        recent = (numbers[at.clamp(min=0), lanes] - numbers[-1]) / spread[:, None]
        lags = (recent * (at >= 0)[:, :, None]).transpose(0, 1).flatten(1)
        codes = [k for k, size in enumerate(self.observed_sizes) if size]
        sizes = tuple(self.observed_sizes[k] for k in codes)
        return [lags, numbers[-1], _one_hot(observed[-1][:, codes], sizes)]

    # ------------------------------------------------------------------------------------------ covariates

    def _known(self, known: Tensor | None, first: Tensor, count: Tensor, place: Tensor) -> Tensor | None:
        """(T + h, L, 2F): scaled covariates, and those at the step that the naive forecast repeats."""
        if known is None:
            return None
        period = _period(count, self.season)
        before = torch.where(place < count, (place - period).clamp(min=0), count - period + (place - count) % period)
        lanes = torch.arange(count.shape[0], device=count.device)
        scaled = ((known - self.known_mean) / self.known_scale).repeat_interleave(self.targets, dim=1)
        now = torch.minimum(first + place, first + count + self.horizon - 1)
        return torch.cat([scaled[now, lanes], scaled[first + before, lanes]], dim=-1)

    def _observed(self, z: Tensor, observed: Tensor | None, series: Tensor, at: Tensor) -> Tensor | None:
        """(T + h, L, P): all targets, if there are several, and the observed covariates, scaled."""
        parts = []
        if self.targets > 1:
            parts.append(z.unflatten(1, (-1, self.targets)).repeat_interleave(self.targets, dim=1))
        if observed is not None:
            given = observed.repeat_interleave(self.targets, dim=1)
            parts.append((given - self.observed_mean[series]) / self.observed_scale[series])
        lanes = torch.arange(at.shape[1], device=at.device)
        return torch.cat(parts, dim=-1)[at, lanes] if parts else None

    def _relative(self, observed: Tensor, spread: Tensor) -> Tensor:
        """Numbers minus their last value, in spreads of the target; codes stay."""
        is_code = torch.tensor(self.observed_sizes, device=observed.device) > 0
        return torch.where(is_code, observed, (observed - observed[-1]) / spread[:, None])

    def _numbers(self, observed: Tensor) -> Tensor:
        return observed[..., [k for k, size in enumerate(self.observed_sizes) if not size]]


def _one_hot(values: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Columns (…, F), in which each code of K categories becomes K columns of 0 and 1; numbers stay."""
    parts = []
    for k, size in enumerate(sizes):
        column = values[..., k, None]
        kinds = torch.arange(1, size + 1, device=values.device)
        parts.append((column == kinds).to(values.dtype) if size else column)
    return torch.cat(parts, dim=-1) if parts else values


def _view(values: Tensor, level: Tensor, inside: Tensor, count: Tensor, least: float) -> View:
    spread = _deviation(values, inside, count).clamp(min=least)
    return View(torch.where(inside, (values - level) / spread, 0.0), level, spread)


def _period(count: Tensor, season: int | Tensor) -> Tensor:
    return torch.where(count >= season, season, 1)


def _deviation(values: Tensor, inside: Tensor, count: Tensor) -> Tensor:
    """(L,): the standard deviation of the values inside the window."""
    mean = torch.where(inside, values, 0.0).sum(dim=0) / count
    return (torch.where(inside, (values - mean).square(), 0.0).sum(dim=0) / count).sqrt()
