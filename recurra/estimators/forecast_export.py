"""Exports a forecaster to ONNX: `windows.py`, `linear.py` and `base_forecast.py` in torch operations."""

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import InputError
from .forecast_quantiles import in_logs
from .linear import LOG_RANGE
from .onnx_file import tensor, write
from .scaling import Scaling

if TYPE_CHECKING:
    from .forecaster import Forecaster


def export(model: "Forecaster", path: str | Path) -> Path:
    """Write an ONNX file; its metadata have the series, the covariates and the quantile levels."""
    past, random = model.past_, np.random.default_rng(0)
    if model.likelihood is not None:
        raise InputError("model", f"likelihood={model.likelihood!r}", "likelihood=None: a file has no sampled paths")
    if model.network == "es_rnn":
        raise InputError("model", "network='es_rnn'", "network='errors': a file has no numbers of series to smooth by")
    if len(past.targets) > 1 or model.observed or past.covariates.categories:
        got = "a forecaster with several targets, observed columns or text"
        raise InputError("model", got, "one target and covariates of numbers that are known or static")
    longest, batch = max(map(len, past.y)), 3
    rows = [past.y[k % len(past)] for k in range(batch)]
    example: dict[str, Any] = {
        "past": tensor(np.stack([np.resize(y, longest) for y in rows], axis=1)),
        "lengths": torch.tensor([longest, max(1, longest - 1), max(1, longest // 2)]),
    }
    if len(past) > 1:
        example["series"] = torch.arange(batch) % len(past)
    if model.known:
        seen = np.concatenate(past.known)
        example["known"] = tensor(random.permuted(np.resize(seen, (longest + model.horizon, batch, seen.shape[1]))))
    facts = {"kind": "Forecaster", "series": past.ids, "known": list(model.known), "levels": list(model.quantiles)}
    facts |= {"horizon": int(model.horizon), "context": model.windows_.context, "outputs": "quantiles (B, horizon, Q)"}
    return write(ForecastModule(model).eval(), path, example, facts, ["quantiles"])


class View(NamedTuple):
    """The window of values, or of their logarithms."""

    relative: Tensor  # (T + h, B): minus the level, in spreads, zero outside
    level: Tensor  # (B,)
    spread: Tensor  # (B,)


class ForecastModule(nn.Module):
    """Values (T, B) and lengths (B,) → calibrated quantiles (B, horizon, Q), all in the units of the data.

    `series` (B,) has the number of each series among those of `fit`. `known` (T', B, F) are the covariates, from the
    first value to the last step ahead.
    """

    mean: Tensor
    scale: Tensor
    static: Tensor
    known_mean: Tensor
    known_scale: Tensor
    weights: Tensor
    shifts: Tensor
    mix: Tensor
    unit: Tensor
    log_mean: Tensor
    log_scale: Tensor
    never_below: Tensor
    in_logs: Tensor

    def __init__(self, model: "Forecaster"):
        super().__init__()
        windows, ids = model.windows_, model.past_.ids
        self.network, self.season = deepcopy(model.network_).eval(), windows.season
        self.seasons, self.context, self.horizon = windows.seasons, windows.context, int(model.horizon)
        self.members = [(member.log, member.linear.seasons[0]) for member in model.base_.members]
        shares = [model.base_.series.get(name, model.base_.usual) for name in ids]
        self.least_spread = windows.least_spread
        floors = [windows.never_below(model.past_, k, len(y)) for k, y in enumerate(model.past_.y)]
        self.register_buffer("never_below", torch.tensor(floors))
        self.register_buffer("in_logs", torch.tensor([in_logs(model, name) for name in ids]))
        logs = [windows.logs.get(name, Scaling.none(1)) for name in ids]
        constants = {
            "mean": np.concatenate([windows.series[name].mean for name in ids]),
            "scale": np.concatenate([windows.series[name].scale for name in ids]),
            "static": windows.static.apply(model.past_.static),
            "known_mean": windows.known.mean,
            "known_scale": windows.known.scale,
            "weights": np.stack([member.linear.weights for member in model.base_.members]),
            "mix": np.stack([share.weights for share in shares]),
            "unit": np.array([share.unit for share in shares]),
            "log_mean": np.concatenate([one.mean for one in logs]),
            "log_scale": np.concatenate([one.scale for one in logs]),
            "shifts": model.shifts_,
        }
        for name, value in constants.items():
            self.register_buffer(name, tensor(value))

    def forward(
        self, past: Tensor, lengths: Tensor, series: Tensor | None = None, known: Tensor | None = None
    ) -> Tensor:
        series = torch.zeros_like(lengths) if series is None else series
        mean, scale = self.mean[series], self.scale[series]
        z = (past - mean) / scale  # (T, B)
        count = lengths.clamp(max=self.context)  # (B,) values in the window, which starts at `first`
        first, last = lengths - count, lengths - 1
        place = torch.arange(past.shape[0] + self.horizon, device=past.device)[:, None]  # (T + h, 1)
        inside = place < count
        at = torch.minimum(first + place, last)
        view = _view(z.gather(0, at), z.gather(0, last[None])[0], inside, count, self.least_spread)
        relative, level, spread = view
        static = list(self.static[series].t()) if self.static.shape[1] else []  # S times (B,)
        covariates = self._covariates(known, first, count, place)  # (T + h, B, 2F) or none
        base = self._base(past, at, view, inside, count, series, static, covariates)
        ahead = (place - count).clamp(min=0, max=self.horizon - 1)  # (T + h, B)
        columns = torch.stack(
            [
                torch.where(inside, relative, base.gather(0, ahead)),
                inside.to(z.dtype),
                *(torch.where(inside, 0.0, self._naive(relative, count, s).gather(0, ahead)) for s in self.seasons),
                level.expand_as(relative),
                (level / spread).expand_as(relative),
                *(row.expand_as(relative) for row in static),
            ],
            dim=-1,
        )
        columns = columns if covariates is None else torch.cat([columns, covariates], dim=-1)
        found = self.network(columns, count + self.horizon)  # (B, h, Q)
        found = (found.sort(dim=-1).values + self.shifts).sort(dim=-1).values
        found = base.t()[:, :, None] + self.unit[series][:, None, None] * found
        found = mean[:, None, None] + scale[:, None, None] * (level[:, None, None] + spread[:, None, None] * found)
        least = past.gather(0, at).amin(dim=0)
        is_floored = (self.never_below[series] & (least >= 0)) | (self.in_logs[series] & (least > 0))
        return torch.where(is_floored[:, None, None], found.clamp(min=0.0), found)

    def _naive(self, relative: Tensor, count: Tensor, season: int) -> Tensor:
        """(h, B): the last season repeated, or the last value without a full season."""
        ahead = torch.arange(self.horizon, device=count.device)[:, None]
        period = _period(count, season)
        return relative.gather(0, count - period + ahead % period)

    def _base(
        self,
        past: Tensor,
        at: Tensor,
        view: View,
        inside: Tensor,
        count: Tensor,
        series: Tensor,
        static: list[Tensor],
        covariates: Tensor | None,
    ) -> Tensor:
        """(h, B): the mixed forecast."""
        log_mean, log_scale = self.log_mean[series], self.log_scale[series]
        mean, scale, total = self.mean[series], self.scale[series], torch.zeros(self.horizon, 1, dtype=past.dtype)
        of_logs = view
        if any(log for log, _ in self.members):
            floor = (log_mean - LOG_RANGE * log_scale).exp()
            logs = (torch.maximum(past, floor).log() - log_mean) / log_scale
            of_logs = _view(logs.gather(0, at), logs.gather(0, at[-1:])[0], inside, count, self.least_spread)
        for k, (log, season) in enumerate(self.members):
            own = of_logs if log else view
            found = self._linear(self.weights[k], season, own, count, static, covariates)
            if log:
                value = (own.level + own.spread * found).clamp(-LOG_RANGE, LOG_RANGE)
                value = ((log_mean + log_scale * value).exp() - mean) / scale
                found = (value - view.level) / view.spread
            weight = self.mix[series, k]
            total = total + torch.where(weight > 0, weight * found, 0.0)
        return total

    def _linear(
        self,
        weights: Tensor,
        season: int,
        view: View,
        count: Tensor,
        static: list[Tensor],
        covariates: Tensor | None,
    ) -> Tensor:
        """(h, B): a linear forecast."""
        constants = torch.stack([torch.ones_like(view.level), view.level / view.spread, *static])
        at = count - self.context + torch.arange(self.context, device=count.device)[:, None]  # (C, B)
        lags = view.relative.gather(0, at.clamp(min=0)) * (at >= 0)
        row = torch.cat([lags, constants])  # (C + 2 + S, B)
        found = self._naive(view.relative, count, season) + weights[:, : row.shape[0]] @ row
        if covariates is None:
            return found
        ahead = count + torch.arange(self.horizon, device=count.device)[:, None]  # (h, B)
        to_come = covariates[ahead, torch.arange(count.shape[0], device=count.device)]  # (h, B, 2F)
        return found + (to_come * weights[:, None, row.shape[0] :]).sum(dim=-1)

    def _covariates(self, known: Tensor | None, first: Tensor, count: Tensor, place: Tensor) -> Tensor | None:
        """(T + h, B, 2F): scaled covariates, and those at the step that the naive forecast repeats."""
        if known is None:
            return None
        period = _period(count, self.season)
        before = torch.where(place < count, (place - period).clamp(min=0), count - period + (place - count) % period)
        lanes = torch.arange(count.shape[0], device=count.device)
        scaled = (known - self.known_mean) / self.known_scale
        now = torch.minimum(first + place, first + count + self.horizon - 1)
        return torch.cat([scaled[now, lanes], scaled[first + before, lanes]], dim=-1)


def _view(values: Tensor, level: Tensor, inside: Tensor, count: Tensor, least: float) -> View:
    spread = _deviation(values, inside, count).clamp(min=least)
    return View(torch.where(inside, (values - level) / spread, 0.0), level, spread)


def _period(count: Tensor, season: int) -> Tensor:
    return torch.where(count >= season, season, 1)


def _deviation(values: Tensor, inside: Tensor, count: Tensor) -> Tensor:
    """(B,): the standard deviation of the values inside the window."""
    mean = torch.where(inside, values, 0.0).sum(dim=0) / count
    return (torch.where(inside, (values - mean).square(), 0.0).sum(dim=0) / count).sqrt()
