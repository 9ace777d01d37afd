"""An online estimator's folder: network, optimiser and all that the stream carries, so that it goes on exactly."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..errors import InputError, ModelFileError, WeightsMismatchError
from ..storage import WEIGHTS, FolderContents, StoredModel, read_folder
from ..tensor_files import check_shapes, decode, encode
from . import saved_options

if TYPE_CHECKING:
    from .online import OnlineEstimator

NETWORK, STREAM = "network.", "stream."  # beginnings of the names of tensors
Kind = TypeVar("Kind", bound="OnlineEstimator")


def contents_of(model: "OnlineEstimator") -> FolderContents:
    """What an online estimator puts into its folder, after its first step."""
    if not hasattr(model, "learner_"):
        raise InputError("model", "no step learned", "a model after its first learn_one, to be saved")
    options = model.get_params(deep=False)
    if "classes" in options and not isinstance(options["classes"], int):
        options["classes"] = list(options["classes"])
    learner, carried = model.learner_, {}
    stream = {"learner": learner.extra_state(), "last": torch.from_numpy(model.last_)}
    stream |= {name: torch.from_numpy(value) for name, value in _scaling_arrays(model).items()}
    fitted = {"features": list(model.feature_names_in_), "steps": model.steps_, "stream": encode(stream, carried)}
    tensors = {STREAM + name: tensor for name, tensor in carried.items()} | _network_tensors(model)
    if "classes" in options and isinstance(options["classes"], int):
        fitted["labels"] = saved_options.options_to_json({"cell": None, "labels": model.classes_})["labels"]
    config = {"options": saved_options.options_to_json(options), "fitted": fitted}
    return FolderContents(type(model).__name__, config, tensors)


def load(kind: type[Kind], folder: str | Path) -> Kind:
    """The estimator that was saved, at the step of the stream that it had reached."""
    stored = read_folder(folder, kind.__name__)
    known = kind().get_params(deep=False)
    model = kind(**saved_options.options_from_json(stored.section("options"), known, folder))
    fitted = stored.section("fitted")
    with stored.expecting("a saved online estimator"):
        features, steps = fitted["features"], int(fitted["steps"])
        with stored.building():
            model.start(features)
        if "labels" in fitted:
            model.classes_ = list(fitted["labels"])
    _load_weights(model, stored)
    carried = {name.removeprefix(STREAM): t.clone() for name, t in stored.weights.items() if name.startswith(STREAM)}
    try:
        with stored.expecting("the state of a stream"):
            _continue(model, decode(fitted["stream"], carried), steps)
    except RuntimeError as error:  # torch: another shape
        raise WeightsMismatchError(stored.folder / WEIGHTS, str(error), "the state of this network") from error
    _check_moments(model.learner_.optimizer, stored)
    return model


def _network_tensors(model: "OnlineEstimator") -> dict[str, Tensor]:
    return {NETWORK + name: tensor for name, tensor in model.learner_.model.state_dict().items()}


def _load_weights(model: "OnlineEstimator", stored: StoredModel) -> None:
    found = {name: tensor for name, tensor in stored.weights.items() if not name.startswith(STREAM)}
    check_shapes(stored.folder / WEIGHTS, {n: tuple(t.shape) for n, t in found.items()}, _network_tensors(model))
    model.learner_.model.load_state_dict({name.removeprefix(NETWORK): t for name, t in found.items()})


def _continue(model: "OnlineEstimator", stream: dict[str, Any], steps: int) -> None:
    """Set the model to the step of the stream that it had reached."""
    for name, own in _scaling_arrays(model).items():
        own[...] = _like(own, name, stream)
    model.last_[...] = _like(model.last_, "last", stream)
    for scaling in model.scalings():
        scaling.count = steps
    model.steps_ = model.learner_.steps = steps
    model.learner_.load_extra_state(stream["learner"])


def _scaling_arrays(model: "OnlineEstimator") -> dict[str, Any]:
    pairs = enumerate(model.scalings())
    return {f"{part}{k}": getattr(scaling, part) for k, scaling in pairs for part in ("mean", "squares")}


def _like(own: Any, name: str, stream: dict[str, Any]) -> Any:
    found = stream[name].numpy()
    if found.shape != own.shape:
        raise ValueError(f"{name} of shape {found.shape}, not {own.shape}")
    return found


def _check_moments(optimizer: Optimizer, stored: StoredModel) -> None:
    """The optimiser takes tensors of any shape, and would fail at the next step."""
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                got = f"{name} of shape {tuple(value.shape)}"
                raise ModelFileError(stored.folder / WEIGHTS, got, f"{tuple(parameter.shape)}, as its weight")
