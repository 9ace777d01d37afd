"""A forecaster's config and tensors: its weights, its scalings, and the end of every series, which it continues."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from recurra.estimators import saved_options
from recurra.estimators.linear import LinearForecast
from recurra.estimators.panel import Panel
from recurra.estimators.sampled_paths import MAX_RANKS, PATHS, equal_ranks
from recurra.estimators.scaling import Scaling
from recurra.estimators.windows import Windows
from recurra.storage import FolderContents, StoredModel, read_folder

if TYPE_CHECKING:
    from recurra.estimators.forecaster import Forecaster

KIND = "Forecaster"


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
        "linear_season": model.linear_.season,
        "calibrated_": model.calibrated_,
        "history_": model.history_,
    }
    options = saved_options.options_to_json(model.get_params(deep=False))
    return FolderContents(KIND, {"options": options, "fitted": fitted}, _tensors(model))


def load(cls: "type[Forecaster]", folder: str | Path) -> Any:
    """The forecaster that was saved in a folder."""
    stored = read_folder(folder, KIND)
    options = saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder)
    sequences: dict[str, Any] = {
        name: tuple(options[name]) for name in ("known", "static", "quantiles") if name in options
    }
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
        "shifts": model.shifts_,
        "linear": model.linear_.weights,
        "past.y": np.concatenate(past.y),
        "past.known": np.concatenate(past.known),
        "past.static": past.static,
    }
    if model.ranks_ is not None:
        values["ranks"] = model.ranks_
    if past.times is not None:
        values["past.times"] = np.concatenate(past.times)
    weights = {f"network.{name}": tensor for name, tensor in model.network_.state_dict().items()}
    return weights | {name: torch.tensor(np.ascontiguousarray(value)) for name, value in values.items()}


def _allocate(model: "Forecaster", stored: StoredModel) -> None:
    """Give the model attributes of the right shapes, filled with zeros."""
    fitted, weights = stored.section("fitted"), stored.weights
    ids, lengths = [str(name) for name in fitted["ids"]], [int(n) for n in fitted["lengths"]]
    steps = sum(lengths) if len(ids) == len(set(ids)) == len(lengths) > 0 and min(lengths) > 0 else 0
    if not steps or weights["past.y"].shape != (steps,):
        raise ValueError("ids and lengths of the series")
    if fitted["unit"] not in ("date", "seconds", "whole") or fitted["form"] not in ("one", "series", "table"):
        raise ValueError("unit or form of the series")
    known, static = len(model.known), len(model.static)
    times = [np.zeros(n, dtype=np.int64) for n in lengths] if fitted["timed"] else None
    y, covariates = [np.zeros(n) for n in lengths], [np.zeros((n, known)) for n in lengths]
    model.past_ = Panel(ids, y, covariates, np.zeros((len(ids), static)), times, fitted["unit"], fitted["form"])
    names = fitted.get("columns", model.past_.columns)  # absent in older folders
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise ValueError("columns of the table")
    model.past_.columns = (names[0], names[1], names[2])
    context, horizon, season = int(fitted["context"]), int(model.horizon), int(fitted["linear_season"])
    if (horizon, context + 2 + static + 2 * known) != weights["linear"].shape or not 0 < season <= 1 << 24:
        raise ValueError("context, horizon or linear_season")
    each = {name: Scaling.none(1) for name in ids}
    model.windows_ = Windows(context, int(model.season), each, Scaling.none(known), Scaling.none(static))
    model.linear_ = LinearForecast.none(horizon, context, static, known, season)
    model.calibrated_ = bool(fitted["calibrated_"])
    model.history_ = list(fitted["history_"])
    model.shifts_ = np.zeros((int(model.horizon), len(model.quantiles)))
    model.ranks_ = _empty_ranks(weights, horizon)
    with stored.building():
        model.network_ = model._build()


def _empty_ranks(weights: dict[str, Any], horizon: int) -> Any:
    """Zeros for the ranks of errors; None for older folders, which have none."""
    if "ranks" not in weights:
        return None
    rows, steps = weights["ranks"].shape
    if steps != horizon or not 0 < rows <= max(MAX_RANKS, PATHS):
        raise ValueError("ranks of the errors")
    return np.zeros((rows, steps))


def _fill(model: "Forecaster", tensors: dict[str, Tensor]) -> None:
    """Replace the zeros by the stored numbers."""
    prefix = "network."
    model.network_.load_state_dict({k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)})
    model.network_.eval()
    values = {name: tensor.numpy() for name, tensor in tensors.items() if not name.startswith(prefix)}
    past, cuts = model.past_, np.cumsum([len(y) for y in model.past_.y])[:-1]
    past.y, past.known = np.split(values["past.y"], cuts), np.split(values["past.known"], cuts)
    past.static, model.shifts_ = values["past.static"], values["shifts"]
    model.ranks_ = equal_ranks(int(model.horizon)) if model.ranks_ is None else values["ranks"]
    model.linear_ = replace(model.linear_, weights=values["linear"])
    if past.times is not None:
        past.times = np.split(values["past.times"], cuts)
    each = zip(past.ids, values["series.mean"], values["series.scale"], strict=True)
    model.windows_ = replace(
        model.windows_,
        series={name: Scaling(np.array([mean]), np.array([scale])) for name, mean, scale in each},
        known=Scaling(values["known.mean"], values["known.scale"]),
        static=Scaling(values["static.mean"], values["static.scale"]),
    )
