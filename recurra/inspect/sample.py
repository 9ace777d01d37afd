"""A few sequences to inspect a model on, taken from any form in which data comes."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ..data.batching import BatchSource, collate
from ..data.sequences import Batch, SequenceSet
from ..errors import InputError, ShapeError


@dataclass(frozen=True)
class Sample:
    """A padded batch of a few sequences, time first, with readable labels for their steps."""

    inputs: Tensor  # (T, B, D) numbers or (T, B) tokens
    lengths: Tensor  # (B,)
    targets: Tensor | None = None  # (T, B), (T, B, q), (B,) or (B, q)
    per_step: bool = False  # whether there is a target at every step
    labels: tuple[tuple[str, ...], ...] = ()  # for every sequence, one text per step
    features: tuple[str, ...] = ()
    source: str = ""

    @property
    def tokens(self) -> Tensor | None:
        """(T, B) token ids, or None for real-valued inputs.

        Where a token is several integers, (T, B, n), such as the characters of a word, each distinct row is one id.
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
        """The text of a step: its token, or its features with their values."""
        if self.labels:
            return self.labels[sequence][step]
        value = self.inputs[step, sequence]
        if value.dim() == 0:
            return str(value.item())
        names = self.features or tuple(f"x{d + 1}" for d in range(len(value)))
        shown = [f"{name} {number:.3g}" for name, number in zip(names, value.tolist(), strict=False)]
        return ", ".join(shown[:6]) + (", …" if len(shown) > 6 else "")


def sample(data: Any, *, sequences: int = 4, steps: int = 1000, batch_first: bool = False) -> Sample:
    """The first `sequences` sequences of `data`, cut to at most `steps` steps.

    `data` is a tensor (T, B, D), (T, D) or (T, B), a pair (inputs, targets), a `Batch`, a `SequenceSet`, a batch
    source, a list of sequences, or a `Sample`.
    """
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
            return _sample_of_set(data, sequences)
        case Batch():
            per_step = _per_step(data.targets, data.inputs)
            return Sample(data.inputs, data.lengths, data.targets, per_step)
        case Tensor():
            return _sample_of_tensor(data, batch_first)
        case (Tensor() as inputs, Tensor() as targets):
            found = _sample_of_tensor(inputs, batch_first)
            per_step = _per_step(
                targets.transpose(0, 1) if batch_first and targets.dim() > 1 else targets, found.inputs
            )
            targets = targets.transpose(0, 1) if batch_first and per_step else targets
            return replace(found, targets=targets, per_step=per_step)
        case (list() as inputs, Tensor() as targets):  # a list of sequences with one class per sequence
            return replace(_sample(inputs, sequences, batch_first), targets=targets)
        case list() | tuple() if data and all(hasattr(item, "__len__") for item in data):
            rows = [_as_sequence(item) for item in data[:sequences]]
            return Sample(pad_sequence(rows), torch.tensor([len(row) for row in rows]))
        case _ if hasattr(data, "epoch"):
            source: BatchSource = data
            return _sample(next(iter(source.epoch(0))), sequences, batch_first)
        case _ if hasattr(data, "__array__"):
            return _sample_of_tensor(torch.as_tensor(data), batch_first)
    raise InputError(
        "data", type(data).__name__, "a tensor (T, B, D), a pair (inputs, targets), a Batch, a SequenceSet or a list"
    )


def _as_sequence(values: Any) -> Tensor:
    tensor = torch.as_tensor(values)
    return tensor[:, None] if tensor.is_floating_point() and tensor.dim() == 1 else tensor


def _sample_of_tensor(inputs: Tensor, batch_first: bool) -> Sample:
    if inputs.is_floating_point():
        inputs = inputs[:, None] if inputs.dim() == 2 else inputs[:, None, None] if inputs.dim() == 1 else inputs
        inputs = inputs.transpose(0, 1) if batch_first and inputs.shape[1] != 1 else inputs
    else:
        inputs = inputs[:, None] if inputs.dim() == 1 else inputs.transpose(0, 1) if batch_first else inputs
    if inputs.dim() < 2:
        raise ShapeError("data", f"shape {tuple(inputs.shape)}", "(T, B, D) numbers, (T, D) numbers or (T, B) tokens")
    return Sample(inputs, torch.full((inputs.shape[1],), len(inputs)))


def _per_step(targets: Tensor, inputs: Tensor) -> bool:
    """Whether the targets are (T, B, …), one per step, and not (B,) classes or (B, q) numbers."""
    floating = targets.is_floating_point()
    return targets.shape[:2] == inputs.shape[:2] and targets.dim() == (3 if floating else 2)


def _sample_of_set(data: SequenceSet, sequences: int) -> Sample:
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
