"""A feature ensemble as plain JSON and tensors, for the folder of a saved model."""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelFileError
from ..scaling import Scaling
from .ensemble import FeatureEnsemble, Size
from .ridge import Ridge
from .summaries import Summary
from .views import Views

MOST = 1 << 24  # the largest count that a config may have


def to_json(ensemble: FeatureEnsemble, outputs: int) -> dict[str, Any]:
    views = ensemble.views
    return {
        "steps": ensemble.steps,
        "length": ensemble.length,
        "draws": ensemble.draws,
        "size": asdict(ensemble.size),
        "by_set": views.by_set,
        "mixtures": views.mixing.shape[1],
        "features": views.mixing.shape[0],
        "outputs": outputs,
        "summary": ensemble.members[-1].banks[0].numbers,
    }


def from_json(stored: Any, path: Any, elements: int) -> FeatureEnsemble:
    """An ensemble of the stored size, its tensors still to be set. The file has so many elements."""
    try:
        names = ("steps", "length", "draws", "mixtures", "features", "outputs")
        steps, length, draws, mixtures, features, outputs = (_count(stored[name]) for name in names)
        size = Size(**{name: _count(value) for name, value in stored["size"].items()})
        blank = Views(Scaling.none(features), np.zeros((features, mixtures)), bool(stored["by_set"]), np.ones(1))
        views = Views(blank.scaling, blank.mixing, blank.by_set, np.ones(blank.count))
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(path, repr(error), "the sizes of the feature banks") from error
    units = size.delay_lines + size.resonators + size.networks + size.heats
    if max(units * views.count * draws, length * features, features * mixtures) > elements:
        raise ModelFileError(
            path, f"{units} units for {views.count} views", f"as many as the {elements} numbers stored"
        )
    ensemble = FeatureEnsemble(views, steps, length, size, draws, np.random.default_rng(0))
    numbers = stored.get("summary", 2)  # absent in older folders
    if numbers not in (2, Summary.most):
        raise ModelFileError(path, f"a summary of {numbers!r} numbers", f"2 or {Summary.most}")
    ensemble.members[-1].banks = [Summary(numbers)]
    for member in ensemble.members:
        width = sum(bank.width(features) for bank in member.banks)
        member.ridge = Ridge(np.zeros(width), np.zeros((width, outputs), dtype=np.float32), np.zeros(outputs))
    return ensemble


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < MOST:
        raise ValueError(f"{value!r} is not a count")
    return value


def arrays(ensemble: FeatureEnsemble) -> dict[str, np.ndarray]:
    """Every array of the ensemble, by name; they are the ensemble's own memory."""
    views = ensemble.views
    found = {"weights": ensemble.weights, "mixing": views.mixing, "sizes": views.sizes}
    found |= {"scaling.mean": views.scaling.mean, "scaling.scale": views.scaling.scale}
    for k, member in enumerate(ensemble.members):
        assert member.ridge is not None
        for j, bank in enumerate(member.banks):
            found |= {f"{k}.{j}.{name}": getattr(bank, name) for name in bank.arrays}
        ridge = member.ridge
        found |= {f"{k}.mean": ridge.mean, f"{k}.coefficients": ridge.coefficients, f"{k}.intercept": ridge.intercept}
    return found


def tensors(ensemble: FeatureEnsemble) -> dict[str, Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays(ensemble).items()}


def set_tensors(ensemble: FeatureEnsemble, stored: dict[str, Tensor]) -> None:
    """Copy stored tensors into the ensemble."""
    for name, array in arrays(ensemble).items():
        array[...] = stored[name].numpy()
