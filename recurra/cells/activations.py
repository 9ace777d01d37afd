"""Squashing functions a cell may be given by name."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import InputError, UnknownNameError

Activation = Callable[[Tensor], Tensor]


def identity(a: Tensor) -> Tensor:
    return a


ACTIVATIONS: dict[str, Activation] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": identity,
}


def activation(nonlinearity: str | Activation) -> Activation:
    """The function of that name, or the function itself."""
    if callable(nonlinearity):
        return nonlinearity
    if not isinstance(nonlinearity, str):
        raise InputError("nonlinearity", repr(nonlinearity), "a name or a function of one tensor")
    if nonlinearity not in ACTIVATIONS:
        raise UnknownNameError("nonlinearity", repr(nonlinearity), ACTIVATIONS)
    return ACTIVATIONS[nonlinearity]
