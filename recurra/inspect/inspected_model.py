"""A copy of a model prepared for measurement, with a sample of the data it runs on."""

import copy
import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ..cell import Cell
from ..engine.dispatch import Sequences, scan
from ..engine.found_draws import draw_ahead
from ..errors import InputError
from ..interop.torch import accelerate
from ..layers import Recurrent
from .sample import Sample, sample
from .step_recorder import StepRecorder


class CellModel(nn.Module):
    """A single cell as a model: it runs over a sequence and returns its outputs (T, B, H)."""

    def __init__(self, cell: Cell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        state = self.cell.initial_state(x.shape[1], x)
        return scan(self.cell, Sequences(x, state, draw_ahead(self.cell, len(x), x.shape[1], x), lengths)).y


class ReservoirStack(nn.Module):
    """The stacked reservoirs of the first member of an echo state network, as recurrent layers."""

    def __init__(self, network: Any):
        super().__init__()
        layers = network.members_[0].reservoir.layers
        if getattr(network, "feedback", 0.0):
            raise InputError("model", "an echo state network with feedback", "one without: its input is its own output")
        self.layers = nn.ModuleList(_reservoir(layer) for layer in layers)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, lengths=lengths)[0]
        return x


def _reservoir(reservoir: Any) -> Recurrent:
    if hasattr(reservoir, "layer"):
        return copy.deepcopy(reservoir.layer)
    U = torch.as_tensor(reservoir.weights.U)
    layer = Recurrent("leaky_rnn", U.shape[1], U.shape[0], tau=1.0 / reservoir.leak, dtype=torch.float64)
    W = reservoir.weights.W
    with torch.no_grad():
        affine: Any = layer.cell_list[0].a
        affine.W.copy_(torch.as_tensor(W.toarray() if hasattr(W, "toarray") else W))
        affine.U.copy_(U)
        affine.b.copy_(torch.as_tensor(reservoir.weights.b))
    return layer


def module_of(model: Any) -> nn.Module:
    """The network inside a cell, module, echo state network, fitted estimator or training run.

    Layers of torch.nn are replaced by equal layers of recurra, in a copy.
    """
    if isinstance(model, Cell):
        return CellModel(model)
    if isinstance(model, nn.Module):
        foreign = any(isinstance(part, nn.RNNBase) for part in model.modules())
        return accelerate(copy.deepcopy(model)) if foreign else model
    for attribute in ("network_", "tagger_", "model_", "module_", "model"):
        if isinstance(inside := getattr(model, attribute, None), nn.Module):
            return inside
    if hasattr(model, "members_") and not hasattr(model, "inspection_inputs"):
        return ReservoirStack(model)
    raise InputError(
        "model", type(model).__name__, "a torch module, a cell, or a fitted estimator or run that holds one"
    )


def network_and_data(model: Any, data: Any, sequences: int = 4) -> tuple[Any, Any]:
    """The network of a fitted estimator, and data in the form that `predict` takes as the network gets it."""
    if not isinstance(model, nn.Module) and hasattr(model, "inspection_inputs"):
        return model.inspection_inputs(data, sequences)
    return model, data


def _with_vocabulary_labels(taken: Sample, model: nn.Module) -> Sample:
    """Label the tokens of an unlabelled sample with the vocabulary of the model, if it has one."""
    names = getattr(getattr(model, "vocabulary", None), "tokens", None)
    tokens = taken.inputs
    plain = not taken.labels and tokens.dim() == 2 and not tokens.is_floating_point()
    if not plain or not isinstance(names, tuple) or int(tokens.max()) >= len(names):
        return taken
    return replace(taken, labels=tuple(tuple(names[k] for k in row) for row in tokens.T.tolist()))


class InspectedModel:
    """A copy of the model in evaluation mode and float64, and a sample of the data.

    A copy, so that a measurement changes nothing. Float64, because a vanishing gradient soon underflows float32;
    `dtype=None` keeps the dtype of the model. Evaluation mode, because dropout would add noise to the measurement.
    """

    def __init__(
        self, model: Any, data: Any, *, sequences: int = 4, steps: int = 1000, dtype: torch.dtype | None = torch.float64
    ):
        model, data = network_and_data(model, data, sequences)
        given = module_of(model)
        weight = next(given.parameters(), torch.empty(0))
        dtype = weight.dtype if dtype is None else dtype
        self.module = copy.deepcopy(given).to(dtype=dtype).eval().requires_grad_(True)
        for part in self.module.modules():
            if isinstance(part, Recurrent):
                part.reset_state()  # a carried state belongs to other sequences
        self.batch_first = bool(getattr(given, "batch_first", False))
        taken = sample(data, sequences=sequences, steps=steps, batch_first=self.batch_first)
        self.sample = _with_vocabulary_labels(taken, given).to(weight.device, dtype)

    def record(self, named_values: bool = False) -> tuple[Tensor, StepRecorder]:
        """Run the sample: the output of the model, time first, and the recorded steps of all its cells."""
        recorder = StepRecorder(self.module, named_values)
        with recorder.recording():
            output = self._call()
        if not recorder.runs():
            raise InputError("model", type(self.module).__name__, "a model whose forward runs a recurrent layer")
        return output, recorder

    def _call(self) -> Tensor:
        x, lengths = self.sample.inputs, self.sample.lengths
        accepted = inspect.signature(self.module.forward).parameters
        x = x.detach().requires_grad_() if x.is_floating_point() else x
        x = x.transpose(0, 1) if self.batch_first else x
        pass_lengths = "lengths" in accepted and (
            self.sample.ragged or accepted["lengths"].default is inspect.Parameter.empty
        )
        output = self.module(x, lengths=lengths) if pass_lengths else self.module(x)
        output = output[0] if isinstance(output, tuple) else output
        if self.batch_first and output.dim() == 3:
            output = output.transpose(0, 1)
        return output
