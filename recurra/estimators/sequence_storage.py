"""Saving, loading and exporting sequence estimators."""

from abc import abstractmethod
from copy import deepcopy
from pathlib import Path
from typing import Any, Self

import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..errors import ModelFileError
from ..storage import FolderContents, StoredModel, read_folder, write_folder
from . import saved_options
from .feature_banks import stored as stored_features
from .feature_banks.ensemble import FeatureEnsemble
from .onnx_file import ScaledNetwork, write
from .scaling import Scaling
from .trained_network import NetworkEstimator

SIZE_ATTRIBUTES = ("n_features_in_", "input_size_", "n_outputs_")


class StoredEstimator(NetworkEstimator):
    """An estimator with random features, a trained network or both, as a folder or an ONNX file."""

    ensemble_: FeatureEnsemble | None
    columns_: tuple[str, ...]
    table_reading_: dict[str, Any]
    effort_: str
    sharpness_: float
    network_weight_: float

    @abstractmethod
    def _fitted_config(self) -> dict[str, Any]:
        """The fitted attributes of the subclass as plain JSON."""

    def export(self, path: str | Path) -> Path:
        """Write an ONNX file: unscaled `x` (T, B, D) and `lengths` (B,) → `probabilities` or `predictions` (B, q).

        The metadata have the classes. The file is compared with the model in onnxruntime before it is put in place.
        A model with random features is refused: train a network, such as with `cell="lstm"`, to export it.
        """
        from ..interop.onnx.export_errors import ExportError

        check_is_fitted(self, "n_iter_")
        if self.ensemble_ is not None:
            raise ExportError(
                f"export: {type(self).__name__} reads out random features, whose compiled loops ONNX does not have; "
                'fit with cell="lstm" (or another cell) and effort="auto" to get a network that can be exported, or '
                "use save and load"
            )
        scaling, targets = self._scalings()["inputs"], self._scalings().get("targets")
        centre = torch.tensor(scaling.mean, dtype=torch.float32)
        module = ScaledNetwork(deepcopy(self.network_).eval(), scaling, targets, self._link()).eval()
        example = centre + torch.zeros(5, 3, self.input_size_), torch.tensor([5, 2, 4])
        facts = {"kind": type(self).__name__, **self._fitted_config()}
        outputs = ["probabilities" if self.task == "classification" else "predictions"]
        return write(module, path, example, facts, outputs)

    def _link(self) -> str:
        """What turns outputs into predictions in an ONNX file."""
        return "identity"

    def save(self, folder: str | Path) -> None:
        """Write `config.json` and `model.safetensors` into a folder; `load` reads them."""
        write_folder(folder, self.folder_contents())

    def folder_contents(self) -> FolderContents:
        """What `save` writes."""
        check_is_fitted(self, "n_iter_")
        fitted = {name: getattr(self, name) for name in SIZE_ATTRIBUTES} | {"columns_": list(self.columns_)}
        fitted["table_reading_"] = self.table_reading_
        fitted |= {"effort_": self.effort_, "sharpness_": self.sharpness_, "network_weight_": self.network_weight_}
        fitted |= {"history_": getattr(self, "history_", []), "has_network": hasattr(self, "network_")}
        if self.ensemble_ is not None:
            fitted["ensemble"] = stored_features.to_json(self.ensemble_, self.n_outputs_)
        options = saved_options.options_to_json(self.get_params(deep=False))
        config = {"options": options, "fitted": {**fitted, **self._fitted_config()}}
        return FolderContents(type(self).__name__, config, self._tensors())

    def _scalings(self) -> dict[str, Scaling]:
        return {"inputs": self.input_scaling_} if hasattr(self, "network_") else {}

    def _tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if hasattr(self, "network_"):
            found |= {f"network.{name}": tensor for name, tensor in self.network_.state_dict().items()}
        for name, scaling in self._scalings().items():
            found[f"{name}.mean"], found[f"{name}.scale"] = map(torch.tensor, (scaling.mean, scaling.scale))
        if self.ensemble_ is not None:
            found |= {f"ensemble.{name}": tensor for name, tensor in stored_features.tensors(self.ensemble_).items()}
        return found

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """The estimator that `save` wrote. A user-defined cell must be registered before."""
        stored = read_folder(folder, cls.__name__)
        self = cls(**saved_options.options_from_json(stored.section("options"), cls().get_params(deep=False), folder))
        self._restore(stored.section("fitted"), folder)
        self._restore_models(stored)
        tensors = stored.tensors(like=self._tensors())
        if hasattr(self, "network_"):
            self.network_.load_state_dict(_below("network.", tensors))
            self.network_.eval()
        if self.ensemble_ is not None:
            stored_features.set_tensors(self.ensemble_, _below("ensemble.", tensors))
        for name in self._scalings():
            attribute = f"{name.removesuffix('s')}_scaling_"
            setattr(self, attribute, Scaling(tensors[f"{name}.mean"].numpy(), tensors[f"{name}.scale"].numpy()))
        return self

    def _restore(self, fitted: dict[str, Any], folder: str | Path) -> None:
        for name in SIZE_ATTRIBUTES:
            if not isinstance(fitted.get(name), int) or not 0 < fitted[name] < 1 << 24:
                raise ModelFileError(f"{Path(folder) / 'config.json'}, {name}", fitted.get(name), "a whole number")
            setattr(self, name, fitted[name])
        self._forget()
        self.columns_, self.effort_ = tuple(fitted.get("columns_", ())), fitted.get("effort_", "auto")
        self.table_reading_ = fitted.get("table_reading_") or {}
        for name in ("sharpness_", "network_weight_"):
            value = fitted.get(name, 1.0)
            if not isinstance(value, int | float) or not 0 <= value < 1e30:
                raise ModelFileError(f"{Path(folder) / 'config.json'}, {name}", repr(value), "a number")
            setattr(self, name, float(value))

    def _restore_models(self, stored: StoredModel) -> None:
        """A network and an ensemble of the stored sizes."""
        fitted = stored.section("fitted")
        if fitted.get("has_network", True):
            self.history_ = fitted.get("history_", [])
            self.n_iter_, self.input_scaling_ = len(self.history_), Scaling.none(self.input_size_)
            with stored.building():
                self.network_ = self._build()
        if "ensemble" in fitted:
            elements = sum(tensor.numel() for tensor in stored.weights.values())
            self.ensemble_ = stored_features.from_json(fitted["ensemble"], stored.config_path, elements)

    def _forget(self) -> None:
        """Drop what an earlier fit has left."""
        for name in ("network_", "history_", "_optimizer", "input_scaling_"):
            self.__dict__.pop(name, None)
        self.ensemble_, self.network_weight_, self.sharpness_, self.n_iter_ = None, 1.0, 1.0, 0


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
