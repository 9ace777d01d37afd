"""What `rc.inspect` and `rc.report` measure of an estimator: its network, and data as the network gets it.

The data has the form that the estimator's `predict` takes, or is a pair (X, y).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.sequences import SequenceSet
from ..inspect.sample import Sample
from . import input_conversion
from .likelihood_paths import likelihood_windows
from .smoothing_network import network_inputs
from .windows import Origin

CHARACTERS = 300  # of a text


def split_pair(data: Any) -> tuple[Any, Any]:
    """A pair (X, y), or X and None."""
    return data if isinstance(data, tuple) and len(data) == 2 else (data, None)


def scaled_sequences(estimator: Any, data: Any, count: int) -> SequenceSet:
    """The first sequences, scaled; with their classes if the data has labels."""
    X, y = split_pair(data)
    if y is not None or isinstance(X, SequenceSet) or input_conversion.is_table(X):
        X, y = input_conversion.split_targets(X, y, estimator.task) if _has_targets(estimator, X, y) else (X, None)
    series = estimator._convert_for_predict(X)[:count]
    scaled = [torch.tensor(estimator.input_scaling_.apply(x), dtype=torch.float32) for x in series]
    names = tuple(estimator.columns_)
    about: dict[str, Any] = {"features": names if len(names) == series[0].shape[1] else ()}
    if estimator.task == "classification" and y is not None:
        order = {label: k for k, label in enumerate(estimator.classes_.tolist())}
        targets = [order.get(label, 0) for label in np.asarray(y)[:count].tolist()]
        classes = tuple(map(str, estimator.classes_.tolist()))
        return SequenceSet.from_arrays(scaled, targets, "classification", classes=classes, **about)
    return SequenceSet.from_arrays(scaled, torch.zeros(len(scaled), 1), "regression", **about)


def _has_targets(estimator: Any, X: Any, y: Any) -> bool:
    return y is not None or (isinstance(X, SequenceSet) and X.task == estimator.task)


class EveryStepForecast(nn.Module):
    """A forecasting network with outputs at every step of its window, not only at the forecast steps."""

    def __init__(self, network: Any):
        super().__init__()
        self.embedded, self.recurrent, self.readout = network.embedded, network.recurrent, network.readout

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.readout(self.recurrent(self.embedded(x), lengths=lengths)[0])  # (T, B, quantiles)


class SourceReader(nn.Module):
    """The encoder of an encoder–decoder: tokens (S, B) → what the decoder reads of them, (S, B, F)."""

    def __init__(self, model: Any):
        super().__init__()
        self.source, self.encoder = model.source, model.encoder

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.encoder(self.source(x), lengths=lengths)[0]


def forecast_windows(estimator: Any, data: Any, count: int) -> Sample:
    """The windows from which the last `horizon` steps of the first series are forecast."""
    given = estimator._panel(split_pair(data)[0])
    origins = [Origin(k, max(2, len(y) - estimator.horizon)) for k, y in enumerate(given.y[:count])]
    if estimator.likelihood is not None:
        return Sample(*likelihood_windows(estimator, given, origins))
    pasts = [estimator.windows_.history(given, origin, estimator.horizon) for origin in origins]
    inputs = [
        torch.tensor(network_inputs(estimator, past, estimator.base_(past)), dtype=torch.float32) for past in pasts
    ]
    return Sample(torch.nn.utils.rnn.pad_sequence(inputs), torch.tensor([len(x) for x in inputs]))
