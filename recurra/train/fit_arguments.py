"""Conversion of what `fit` accepts as data and optimizer into what the loop uses."""

from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.optim import Optimizer

from recurra.argument_checks import positive_number
from recurra.data.batching import Batches, BatchSource
from recurra.data.sequences import SequenceSet
from recurra.errors import InputError, OptionError, UnknownNameError

BATCH_SIZE = 32
RATE = 1e-3
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "nadam": torch.optim.NAdam,
    "rmsprop": torch.optim.RMSprop,
    "sgd": torch.optim.SGD,
    "adagrad": torch.optim.Adagrad,
}

OptimizerLike = str | Optimizer | Callable[[Iterable[nn.Parameter]], Optimizer]


def as_batch_source(
    data: BatchSource | SequenceSet, argument: str, batch_size: int | None, shuffle: bool
) -> BatchSource:
    """A source of batches unchanged; a `SequenceSet` wrapped in `Batches`."""
    if isinstance(data, SequenceSet):
        return Batches(data, BATCH_SIZE if batch_size is None else batch_size, shuffle=shuffle)
    if not (hasattr(data, "epoch") and hasattr(data, "__len__")):
        raise InputError(
            argument, type(data).__name__, "a SequenceSet, or a source of batches such as Batches or Streams"
        )
    return data


def build_optimizer(optimizer: OptimizerLike, model: nn.Module, rate: float | None) -> Optimizer:
    """An optimizer from its name, from a function of the parameters, or as given."""
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZERS:
            raise UnknownNameError("optimizer", optimizer, OPTIMIZERS)
        rate = RATE if rate is None else positive_number("lr", rate)
        return OPTIMIZERS[optimizer]([p for p in model.parameters() if p.requires_grad], lr=rate)
    if rate is not None:
        raise OptionError("lr", rate, "no lr: the given optimizer already has one")
    built = optimizer(model.parameters()) if callable(optimizer) else optimizer
    if not isinstance(built, Optimizer):
        raise InputError(
            "optimizer", type(built).__name__, "a name, an optimizer of torch, or a function that makes one"
        )
    ours = {id(p) for p in model.parameters()}
    if any(id(p) not in ours for group in built.param_groups for p in group["params"]):
        raise InputError("optimizer", "parameters of another model", "an optimizer of this model's parameters")
    return built
