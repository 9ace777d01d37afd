"""A forecaster's config and tensors: its weights, its scalings, and the end of every series, which it continues."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recurra.estimators import saved_options
from recurra.estimators.base_forecast import BaseForecast, Member, Shares
from recurra.estimators.covariates import Covariates
from recurra.estimators.disturbances import Limits
from recurra.estimators.exponential_smoothing import TRENDS, Smoothing
from recurra.estimators.linear import LinearForecasts
from recurra.estimators.panel import Panel
from recurra.estimators.sampled_paths import MAX_RANKS, PATHS, equal_ranks
from recurra.estimators.scaling import Scaling
from recurra.estimators.wandering import MAX_LAGS
from recurra.estimators.windows import Windows
from recurra.storage import FolderContents, StoredModel, read_folder

if TYPE_CHECKING:
    from recurra.estimators.forecaster import Forecaster

KIND = "Forecaster"
LISTS = "known", "static", "observed", "quantiles", "season"  # options that are tuples
FORMER_OPTIONS = ("stretches",)


def contents_of(model: "Forecaster") -> FolderContents:
    """What a fitted forecaster puts into its folder."""
    past = model.past_
    fitted = {
        "ids": past.ids,
        "lengths": [len(y) for y in past.y],
        "timed": past.times is not None,
        "unit": past.unit,
        "form": past.form,
        "columns": list(past.columns),
        "context": model.windows_.context,
        "members": _members(model),
        "categories": {name: list(values) for name, values in past.covariates.categories.items()},
        "calibrated_": model.calibrated_,
        "share_": model.share_,
        "disturbed_": getattr(model, "disturbed_", []),
        "history_": model.history_,
    }
    options = saved_options.options_to_json(model.get_params(deep=False))
    return FolderContents(KIND, {"options": options, "fitted": fitted}, _tensors(model))


def _members(model: "Forecaster") -> list[dict[str, Any]]:
    """What the members of the base forecast are; a forecaster with a likelihood has none."""
    if model.likelihood is not None:
        return []
    return [
        {"log": member.log, "seasons": member.linear.seasons, "smoothing": _smoothing_to_json(member.smoothing)}
        for member in model.base_.members
    ]


def _smoothing_to_json(smoothing: Smoothing | None) -> dict[str, Any] | None:
    return None if smoothing is None else asdict(smoothing)


def _smoothing_from_json(stored: Any, horizon: int) -> Smoothing | None:
    """Absent in older folders."""
    if stored is None:
        return None
    level, slope, damping = (float(stored[name]) for name in ("level", "slope", "damping"))
    found = Smoothing(str(stored["trend"]), level, slope, damping, int(stored["horizon"]))
    is_possible = found.trend in TRENDS and found.horizon == horizon
    if not is_possible or not all(0 <= factor <= 1 for factor in (level, slope, damping)):
        raise ValueError("smoothing of a member")
    return found


def load(cls: "type[Forecaster]", folder: str | Path) -> Any:
    """The forecaster that was saved in a folder."""
    stored = read_folder(folder, KIND)
    saved = {name: value for name, value in stored.section("options").items() if name not in FORMER_OPTIONS}
    options = saved_options.options_from_json(saved, cls().get_params(deep=False), folder)
    sequences: dict[str, Any] = {name: tuple(options[name]) for name in LISTS if isinstance(options.get(name), list)}
    model = cls(**(options | sequences))
    with stored.expecting("the config.json of a forecaster"):
        _allocate(model, stored)
    _fill(model, stored.tensors(like=_tensors(model)))
    return model


def _tensors(model: "Forecaster") -> dict[str, Tensor]:
    past, windows = model.past_, model.windows_
    scalings = [windows.series[name] for name in past.ids]
    values = {
        "series.mean": np.concatenate([s.mean for s in scalings]),
        "series.scale": np.concatenate([s.scale for s in scalings]),
        "known.mean": windows.known.mean,
        "known.scale": windows.known.scale,
        "static.mean": windows.static.mean,
        "static.scale": windows.static.scale,
        "past.y": np.concatenate(past.y),
        "past.known": np.concatenate(past.known),
        "past.static": past.static,
    }
    values |= _base_tensors(model) if model.likelihood is None else {}
    if model.observed:
        observed = [windows.observed[name] for name in past.ids]
        values["observed.mean"] = np.stack([s.mean for s in observed])
        values["observed.scale"] = np.stack([s.scale for s in observed])
        values["past.observed"] = np.concatenate(past.observed)
    for name in ("ranks", "variances"):
        if getattr(model, f"{name}_", None) is not None:
            values[name] = getattr(model, f"{name}_")
    if past.times is not None:
        values["past.times"] = np.concatenate(past.times)
    weights = {f"network.{name}": tensor for name, tensor in model.network_.state_dict().items()}
    return weights | {name: torch.tensor(np.ascontiguousarray(value)) for name, value in values.items()}


def _base_tensors(model: "Forecaster") -> dict[str, np.ndarray]:
    """Members, corrections, and shares by series, the last row for other series; no shares if one member is for all."""
    base, ids, windows = model.base_, model.past_.ids, model.windows_
    found = {"shifts": model.shifts_, "linear": np.concatenate([member.linear.weights for member in base.members])}
    if not base.series:
        return found
    shares = [*(base.series.get(name, base.usual) for name in ids), base.usual]
    none = Scaling(np.zeros(1), np.zeros(1))
    logs = [windows.logs.get(name, none) for name in ids]
    limits = windows.limits or {}
    return found | {
        "limits": np.array([limits.get(name, Limits()) for name in ids]),
        "base.weights": np.stack([one.weights for one in shares]),
        "base.units": np.array([one.unit for one in shares]),
        "log.mean": np.concatenate([one.mean for one in logs]),
        "log.scale": np.concatenate([one.scale for one in logs]),
    }


def _allocate(model: "Forecaster", stored: StoredModel) -> None:
    """Give the model attributes of the right shapes, filled with zeros."""
    fitted, weights = stored.section("fitted"), stored.weights
    ids, lengths = [str(name) for name in fitted["ids"]], [int(n) for n in fitted["lengths"]]
    steps = sum(lengths) if len(ids) == len(set(ids)) == len(lengths) > 0 and min(lengths) > 0 else 0
    if not steps or weights["past.y"].shape != (steps,):
        raise ValueError("ids and lengths of the series")
    if fitted["unit"] not in ("date", "seconds", "whole") or fitted["form"] not in ("one", "series", "table"):
        raise ValueError("unit or form of the series")
    covariates = _covariates(model, fitted.get("categories", {}))
    times = [np.zeros(n, dtype=np.int64) for n in lengths] if fitted["timed"] else None
    y, known, observed = (
        [np.zeros((n, *width)) for n in lengths] for width in ((), (len(model.known),), (len(model.observed),))
    )
    static = np.zeros((len(ids), len(model.static)))
    names = tuple(fitted.get("columns", ("unique_id", "ds", "y")))  # absent in older folders
    if len(names) < 3 or not all(isinstance(name, str) for name in names) or len(ids) % (len(names) - 2):
        raise ValueError("columns of the table")
    form = {"times": times, "unit": fitted["unit"], "form": fitted["form"], "columns": names}
    model.past_ = Panel(ids, y, known, static, **form, observed=observed, covariates=covariates)
    context = int(fitted["context"])
    model.windows_ = Windows.of(model.past_, context, model.seasons)
    model.calibrated_, model.share_ = bool(fitted["calibrated_"]), float(fitted.get("share_", 1.0))
    if not 0 <= model.share_ <= 1:
        raise ValueError("share_")
    model.history_, model.disturbed_ = list(fitted["history_"]), list(fitted.get("disturbed_", []))
    if model.likelihood is None:
        _allocate_base(model, fitted, weights)
    with stored.building():
        model.network_ = model._build()
        model.network_.share.fill_(model.share_)


def _allocate_base(model: "Forecaster", fitted: dict[str, Any], weights: dict[str, Any]) -> None:
    horizon = int(model.horizon)
    model.base_ = _empty_base(model, fitted, weights)
    if "limits" in weights:  # absent in older folders
        model.windows_.limits = dict.fromkeys(model.past_.ids, Limits())
    model.shifts_ = np.zeros((horizon, len(model.quantiles)))
    model.ranks_ = _empty_ranks(weights, horizon * len(model.past_.targets))
    model.variances_ = _empty_variances(weights)


def _empty_base(model: "Forecaster", fitted: dict[str, Any], weights: dict[str, Any]) -> BaseForecast:
    """The base forecast with zeros as weights. Older folders have one linear forecast."""
    members: Any = fitted.get("members")
    if members is None:
        seasons = fitted["linear_season"]
        members = [{"log": False, "seasons": seasons if isinstance(seasons, list) else [seasons]}]
    targets, context = len(model.past_.targets), model.windows_.context
    shape = targets * int(model.horizon), model.windows_.linear_width
    if not members or weights["linear"].shape != (len(members) * shape[0], shape[1]):
        raise ValueError("members, context or horizon")
    found = []
    for member in members:
        seasons = [int(season) for season in member["seasons"]]
        if len(seasons) != targets or any(not 0 < season <= 1 << 24 for season in seasons):
            raise ValueError("seasons of a member")
        linear = LinearForecasts.from_weights(np.zeros(shape), seasons, context)
        smoothing = _smoothing_from_json(member.get("smoothing"), int(model.horizon))
        found.append(Member(bool(member["log"]), linear, smoothing))
    if "base.weights" not in weights:
        return BaseForecast.of_one(found[0].linear)
    usual = Shares(np.zeros(len(found)))
    return BaseForecast(tuple(found), usual, dict.fromkeys(model.past_.ids, usual))


def _fill_base(model: "Forecaster", values: dict[str, np.ndarray]) -> None:
    """The stored weights, corrections, shares and scalings of logarithms."""
    width = int(model.horizon) * len(model.past_.targets)
    model.shifts_ = values["shifts"]
    model.ranks_ = equal_ranks(width) if model.ranks_ is None else values["ranks"]
    model.variances_ = np.ones(1) if model.variances_ is None else values["variances"]
    base, ids, context = model.base_, model.past_.ids, model.windows_.context
    parts = np.split(values["linear"], len(base.members))
    members = tuple(
        replace(member, linear=LinearForecasts.from_weights(part, member.linear.seasons, context))
        for member, part in zip(base.members, parts, strict=True)
    )
    if "base.weights" not in values:
        model.base_ = replace(base, members=members)
        return
    shares = [Shares(mix, float(unit)) for mix, unit in zip(values["base.weights"], values["base.units"], strict=True)]
    model.base_ = BaseForecast(members, shares[-1], dict(zip(ids, shares, strict=False)))
    if model.windows_.limits is not None:
        model.windows_.limits = {name: Limits(*row) for name, row in zip(ids, values["limits"].tolist(), strict=True)}
    each = zip(ids, values["log.mean"], values["log.scale"], strict=True)
    model.windows_.logs = {name: Scaling(np.array([mean]), np.array([scale])) for name, mean, scale in each if scale}


def _covariates(model: "Forecaster", categories: dict[str, list[str]]) -> Covariates:
    found = {str(name): tuple(map(str, values)) for name, values in categories.items()}
    covariates = Covariates(model.known, model.static, model.observed, found)
    if set(found) - set(covariates.columns):
        raise ValueError("categories of columns")
    return covariates


def _empty_ranks(weights: dict[str, Any], width: int) -> Any:
    """Zeros for the ranks of errors; None for older folders, which have none."""
    if "ranks" not in weights:
        return None
    rows, steps = weights["ranks"].shape
    if steps != width or not 0 < rows <= max(MAX_RANKS, PATHS):
        raise ValueError("ranks of the errors")
    return np.zeros((rows, steps))


def _empty_variances(weights: dict[str, Any]) -> Any:
    """Zeros for the variances of changes; None for older folders, which have none."""
    if "variances" not in weights:
        return None
    (count,) = weights["variances"].shape
    if not 0 < count <= MAX_LAGS:
        raise ValueError("variances of changes")
    return np.zeros(count)


def _fill(model: "Forecaster", tensors: dict[str, Tensor]) -> None:
    """Replace the zeros by the stored numbers."""
    prefix = "network."
    model.network_.load_state_dict({k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)})
    model.network_.eval()
    values = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith(prefix)}
    past, cuts = model.past_, np.cumsum([len(y) for y in model.past_.y])[:-1]
    past.y, past.known = np.split(values["past.y"], cuts), np.split(values["past.known"], cuts)
    past.static = values["past.static"]
    if past.times is not None:
        past.times = np.split(values["past.times"], cuts)
    each = zip(past.ids, values["series.mean"], values["series.scale"], strict=True)
    model.windows_ = replace(
        model.windows_,
        series={name: Scaling(np.array([mean]), np.array([scale])) for name, mean, scale in each},
        known=Scaling(values["known.mean"], values["known.scale"]),
        static=Scaling(values["static.mean"], values["static.scale"]),
    )
    if model.likelihood is None:
        _fill_base(model, values)
    if model.observed:
        past.observed = np.split(values["past.observed"], cuts)
        each = zip(past.ids, values["observed.mean"], values["observed.scale"], strict=True)
        model.windows_.observed = {name: Scaling(mean, scale) for name, mean, scale in each}
