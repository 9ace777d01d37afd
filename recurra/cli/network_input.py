"""A model's network and a few sequences as it sees them, scaled and encoded."""

from typing import Any

import torch
from torch import nn

from recurra.cli.embeddings import _stand_in
from recurra.cli.models import Model
from recurra.data.sequences import SequenceSet
from recurra.inspect.subject import Sample
from recurra.problem import Found
from recurra.problem.series import pieces

CHARACTERS = 300


def in_sight(model: Model, source: str, count: int) -> tuple[nn.Module, Any]:
    """What `rc.report` takes."""
    found, estimator = model.read(source), model.estimator
    match model.task:
        case "forecast":
            return AtEveryStep(estimator.network_), _windows(estimator, found, count)
        case "tag":
            return estimator.tagger_, estimator.tagger_.encode(found.X[:count])
        case "language":
            return estimator.model_, _tokens(estimator.model_, found.X)
    return estimator.network_, _sequences(model, found, count)


def _sequences(model: Model, found: Found, count: int) -> SequenceSet:
    X, estimator = found.X[:count], model.estimator
    scaled = [torch.tensor(estimator.input_scaling_.apply(x), dtype=torch.float32) for x in X]
    names = tuple(model.reading.get("inputs", ()))
    about: dict[str, Any] = {"features": names if len(names) == X[0].shape[1] else ()}
    if model.task == "classify" and found.y is not None:
        order = {label: k for k, label in enumerate(estimator.classes_.tolist())}
        marks = [order.get(label, 0) for label in found.y[:count].tolist()]
        classes = tuple(map(str, estimator.classes_.tolist()))
        return SequenceSet.from_arrays(scaled, marks, "classification", classes=classes, **about)
    return SequenceSet.from_arrays(scaled, torch.zeros(len(X), 1), "regression", **about)


class AtEveryStep(nn.Module):
    """A forecasting network that answers at every step of its window, not only at those to come."""

    def __init__(self, network: Any):
        super().__init__()
        self.recurrent, self.readout = network.recurrent, network.readout

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return self.readout(self.recurrent(x, lengths=lengths)[0])  # (T, B, quantiles)


def _windows(estimator: Any, found: Found, count: int) -> Sample:
    """The windows a forecast reads, as the network is given them."""
    heard: list[tuple[torch.Tensor, torch.Tensor]] = []
    few = found.X.slice(0, sum(piece.num_rows for _, piece in pieces(found.X)[:count]))
    handle = estimator.network_.register_forward_pre_hook(lambda module, given: heard.append(given[:2]))
    try:
        estimator.predict(None, few, _stand_in(estimator, Found(few, None, [])))
    finally:
        handle.remove()
    x, lengths = heard[0]
    return Sample(x, lengths)


def _tokens(network: Any, text: str) -> torch.Tensor:
    return network.vocabulary.encode(text[:CHARACTERS])[:, None]  # (T, 1)
