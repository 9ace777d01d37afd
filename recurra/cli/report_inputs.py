"""A model's network and a sample of its inputs, scaled and encoded, for `rc.report`."""

from typing import Any

import torch
from torch import nn

from recurra.cli.embeddings import placeholder_future
from recurra.cli.model_folder import SavedModel
from recurra.data.sequences import SequenceSet
from recurra.inspect.sample import Sample
from recurra.problem import LoadedData
from recurra.problem.series import split_series

CHARACTERS = 300


def report_inputs(model: SavedModel, data: LoadedData, count: int) -> tuple[nn.Module, Any]:
    """The network and up to `count` sequences, as `rc.report` takes them."""
    estimator = model.estimator
    match model.task:
        case "forecast":
            return EveryStepForecast(estimator.network_), _windows(estimator, data.X, count)
        case "tag":
            return estimator.tagger_, estimator.tagger_.encode(data.X[:count])
        case "language":
            return estimator.model_, _tokens(estimator.model_, data.X)
    return estimator.network_, _sequences(model, data, count)


def _sequences(model: SavedModel, data: LoadedData, count: int) -> SequenceSet:
    X, estimator = data.X[:count], model.estimator
    scaled = [torch.tensor(estimator.input_scaling_.apply(x), dtype=torch.float32) for x in X]
    names = tuple(model.schema.get("features", ()))
    features: dict[str, Any] = {"features": names if len(names) == X[0].shape[1] else ()}
    if model.task == "classify" and data.y is not None:
        order = {label: k for k, label in enumerate(estimator.classes_.tolist())}
        targets = [order.get(label, 0) for label in data.y[:count].tolist()]
        classes = tuple(map(str, estimator.classes_.tolist()))
        return SequenceSet.from_arrays(scaled, targets, "classification", classes=classes, **features)
    return SequenceSet.from_arrays(scaled, torch.zeros(len(X), 1), "regression", **features)


class EveryStepForecast(nn.Module):
    """A forecasting network with outputs at every step of its window, not only at the forecast steps."""

    def __init__(self, network: Any):
        super().__init__()
        self.recurrent, self.readout = network.recurrent, network.readout

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.readout(self.recurrent(x, lengths=lengths)[0])  # (T, B, quantiles)


def _windows(estimator: Any, table: Any, count: int) -> Sample:
    """The inputs of a forecaster's network, recorded while it predicts the first `count` series."""
    recorded: list[tuple[torch.Tensor, torch.Tensor]] = []
    few = table.slice(0, sum(one.num_rows for _, one in split_series(table)[:count]))
    handle = estimator.network_.register_forward_pre_hook(lambda module, given: recorded.append(given[:2]))
    try:
        estimator.predict(None, few, placeholder_future(estimator, few))
    finally:
        handle.remove()
    x, lengths = recorded[0]
    return Sample(x, lengths)


def _tokens(network: Any, text: str) -> torch.Tensor:
    return network.vocabulary.encode(text[:CHARACTERS])[:, None]  # (T, 1)
