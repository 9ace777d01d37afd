"""What is looked at: a model, made ready to be looked at, and a sample of the data it runs on."""

import copy
import inspect
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ..cell import Cell
from ..data.batching import BatchSource, collate
from ..data.sequences import Batch, SequenceSet
from ..engine.dispatch import Sequences, scan
from ..errors import InputError, ShapeError
from ..interop.torch import accelerate
from ..layers import Recurrent
from .step_recorder import Listener


@dataclass(frozen=True)
class Sample:
    """A few sequences side by side, time first, and what a person calls their steps."""

    inputs: Tensor  # (T, B, D) numbers or (T, B) tokens
    lengths: Tensor  # (B,)
    targets: Tensor | None = None  # (T, B), (T, B, q), (B,) or (B, q)
    per_step: bool = False  # whether there is a target at every step
    labels: tuple[tuple[str, ...], ...] = ()  # for every sequence, a word a step
    features: tuple[str, ...] = ()
    source: str = ""

    @property
    def tokens(self) -> Tensor | None:
        """(T, B) what stands at each step, as a number; None where the inputs are measurements.

        A word spelled as several numbers, (T, B, n), is known by all of them.
        """
        if self.inputs.is_floating_point():
            return None
        if self.inputs.dim() == 2:
            return self.inputs
        return self.inputs.flatten(0, 1).unique(dim=0, return_inverse=True)[1].view(self.inputs.shape[:2])

    @property
    def ragged(self) -> bool:
        return bool((self.lengths != len(self.inputs)).any())

    def to(self, device: torch.device, dtype: torch.dtype) -> "Sample":
        def move(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            return value.to(device, dtype) if value.is_floating_point() else value.to(device)

        return replace(self, inputs=move(self.inputs), lengths=self.lengths.to(device), targets=move(self.targets))  # pyrefly: ignore

    def label(self, sequence: int, step: int) -> str:
        """What stands at a step: its token, or its numbers."""
        if self.labels:
            return self.labels[sequence][step]
        value = self.inputs[step, sequence]
        if value.dim() == 0:
            return str(value.item())
        names = self.features or tuple(f"x{d + 1}" for d in range(len(value)))
        shown = [f"{name} {number:.3g}" for name, number in zip(names, value.tolist(), strict=False)]
        return ", ".join(shown[:6]) + (", …" if len(shown) > 6 else "")


def sample(data: Any, *, sequences: int = 4, steps: int = 1000, batch_first: bool = False) -> Sample:
    """The first sequences of whatever holds them, cut to at most so many steps."""
    found = _sample(data, sequences, batch_first)
    if found.inputs.dim() not in (2, 3) or 0 in found.inputs.shape:
        raise ShapeError(
            "data", f"shape {tuple(found.inputs.shape)}", "(T, B, D) numbers, (T, D) numbers or (T, B) tokens"
        )
    targets = found.targets
    if targets is not None:
        targets = targets[:steps, :sequences] if found.per_step else targets[:sequences]
    return replace(
        found,
        inputs=found.inputs[:steps, :sequences],
        lengths=found.lengths[:sequences].clamp_max(steps),
        targets=targets,
    )


def _sample(data: Any, sequences: int, batch_first: bool) -> Sample:
    match data:
        case Sample():
            return data
        case SequenceSet():
            return _of_set(data, sequences)
        case Batch():
            per_step = _per_step(data.targets, data.inputs)
            return Sample(data.inputs, data.lengths, data.targets, per_step)
        case Tensor():
            return _of_tensor(data, batch_first)
        case (Tensor() as inputs, Tensor() as targets):
            found = _of_tensor(inputs, batch_first)
            per_step = _per_step(
                targets.transpose(0, 1) if batch_first and targets.dim() > 1 else targets, found.inputs
            )
            targets = targets.transpose(0, 1) if batch_first and per_step else targets
            return replace(found, targets=targets, per_step=per_step)
        case (list() as inputs, Tensor() as targets):  # a list of sequences and a class each
            return replace(_sample(inputs, sequences, batch_first), targets=targets)
        case list() | tuple() if data and all(hasattr(one, "__len__") for one in data):
            rows = [_series(one) for one in data[:sequences]]
            return Sample(pad_sequence(rows), torch.tensor([len(row) for row in rows]))
        case _ if hasattr(data, "epoch"):
            source: BatchSource = data
            return _sample(next(iter(source.epoch(0))), sequences, batch_first)
        case _ if hasattr(data, "__array__"):
            return _of_tensor(torch.as_tensor(data), batch_first)
    raise InputError(
        "data", type(data).__name__, "a tensor (T, B, D), a pair (inputs, targets), a Batch, a SequenceSet or a list"
    )


def _series(values: Any) -> Tensor:
    tensor = torch.as_tensor(values)
    return tensor[:, None] if tensor.is_floating_point() and tensor.dim() == 1 else tensor


def _of_tensor(inputs: Tensor, batch_first: bool) -> Sample:
    if inputs.is_floating_point():
        inputs = inputs[:, None] if inputs.dim() == 2 else inputs[:, None, None] if inputs.dim() == 1 else inputs
        inputs = inputs.transpose(0, 1) if batch_first and inputs.shape[1] != 1 else inputs
    else:
        inputs = inputs[:, None] if inputs.dim() == 1 else inputs.transpose(0, 1) if batch_first else inputs
    if inputs.dim() < 2:
        raise ShapeError("data", f"shape {tuple(inputs.shape)}", "(T, B, D) numbers, (T, D) numbers or (T, B) tokens")
    return Sample(inputs, torch.full((inputs.shape[1],), len(inputs)))


def _per_step(targets: Tensor, inputs: Tensor) -> bool:
    """(T, B, …) beside (T, B, …), against (B,) classes or (B, q) numbers."""
    floating = targets.is_floating_point()
    return targets.shape[:2] == inputs.shape[:2] and targets.dim() == (3 if floating else 2)


def _of_set(data: SequenceSet, sequences: int) -> Sample:
    chosen = range(min(sequences, len(data)))
    if not len(chosen):
        raise InputError("data", "an empty set", "at least one sequence")
    batch = collate(data, list(chosen))
    labels: tuple[tuple[str, ...], ...] = ()
    if data.texts is not None:
        labels = tuple(tuple(map(str, data.texts[i])) for i in chosen)
    elif data.vocabulary:
        labels = tuple(tuple(data.vocabulary[k] for k in data[i].inputs.tolist()) for i in chosen)
    return Sample(batch.inputs, batch.lengths, batch.targets, data.per_step, labels, tuple(data.features), data.source)


# ---------------------------------------------------------------------------------------------------- the model


class Lone(nn.Module):
    """A cell as a model: run over a sequence, its output put out."""

    def __init__(self, cell: Cell):
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        state = self.cell.initial_state(x.shape[1], x)
        return scan(self.cell, Sequences(x, state, self.cell.draw_masks(len(x), x.shape[1], x), lengths)).y


class Reservoirs(nn.Module):
    """The reservoirs of an echo state network's first member, one above the other."""

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
    """The network inside what a user calls a model, torch.nn's layers as recurra's."""
    if isinstance(model, Cell):
        return Lone(model)
    if isinstance(model, nn.Module):
        foreign = any(isinstance(part, nn.RNNBase) for part in model.modules())
        return accelerate(copy.deepcopy(model)) if foreign else model
    if hasattr(model, "members_"):
        return Reservoirs(model)
    for attribute in ("model_", "module_", "model"):
        if isinstance(inside := getattr(model, attribute, None), nn.Module):
            return inside
    raise InputError(
        "model", type(model).__name__, "a torch module, a cell, or a fitted estimator or run that holds one"
    )


def _named(taken: Sample, model: nn.Module) -> Sample:
    """Tokens without names take those of the model's own vocabulary, where it has one."""
    names = getattr(getattr(model, "vocabulary", None), "tokens", None)
    tokens = taken.inputs
    plain = not taken.labels and tokens.dim() == 2 and not tokens.is_floating_point()
    if not plain or not isinstance(names, tuple) or int(tokens.max()) >= len(names):
        return taken
    return replace(taken, labels=tuple(tuple(names[k] for k in row) for row in tokens.T.tolist()))


class Subject:
    """A copy of the model, ready to be looked at: evaluation mode, double precision, torch.nn's layers as recurra's.

    A copy, so that looking changes nothing; double precision (`dtype=None` keeps the model's own), because a gradient
    that vanishes soon leaves the range of single; evaluation, because dropout would blur what is measured.
    """

    def __init__(
        self, model: Any, data: Any, *, sequences: int = 4, steps: int = 1000, dtype: torch.dtype | None = torch.float64
    ):
        given = module_of(model)
        weight = next(given.parameters(), torch.empty(0))
        dtype = weight.dtype if dtype is None else dtype
        self.module = copy.deepcopy(given).to(dtype=dtype).eval().requires_grad_(True)
        for part in self.module.modules():
            if isinstance(part, Recurrent):
                part.reset_state()  # what was carried over belongs to other sequences
        self.batch_first = bool(getattr(given, "batch_first", False))
        taken = sample(data, sequences=sequences, steps=steps, batch_first=self.batch_first)
        self.sample = _named(taken, given).to(weight.device, dtype)

    def listen(self, names: bool = False) -> tuple[Tensor, Listener]:
        """Run the sample: the model's output, time first, and all that was heard."""
        listener = Listener(self.module, names)
        with listener.listening():
            output = self._call()
        if not listener.results():
            raise InputError("model", type(self.module).__name__, "a model whose forward runs a recurrent layer")
        return output, listener

    def _call(self) -> Tensor:
        x, lengths = self.sample.inputs, self.sample.lengths
        accepted = inspect.signature(self.module.forward).parameters
        x = x.detach().requires_grad_() if x.is_floating_point() else x
        given = x.transpose(0, 1) if self.batch_first else x
        wanted = "lengths" in accepted and (
            self.sample.ragged or accepted["lengths"].default is inspect.Parameter.empty
        )
        output = self.module(given, lengths=lengths) if wanted else self.module(given)
        output = output[0] if isinstance(output, tuple) else output
        if self.batch_first and output.dim() == 3:
            output = output.transpose(0, 1)
        return output
