"""Activation functions that a cell takes by name."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InputError, UnknownNameError

Activation = Callable[[Tensor], Tensor]


def identity(a: Tensor) -> Tensor:
    """No activation."""
    return a


ACTIVATIONS: dict[str, Activation] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}


def activation(nonlinearity: str | Activation) -> Activation:
    """The function with this name; a function is returned unchanged."""
    if callable(nonlinearity):
        return nonlinearity
    if not isinstance(nonlinearity, str):
        raise InputError("nonlinearity", repr(nonlinearity), "a name or a function of one tensor")
    if nonlinearity not in ACTIVATIONS:
        raise UnknownNameError("nonlinearity", repr(nonlinearity), ACTIVATIONS)
    return ACTIVATIONS[nonlinearity]
