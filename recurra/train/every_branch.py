"""Which derivatives of a step can ever be other than zero: the step with all branches of its choices added up.

A probe at a random point sees one branch of a maximum, and a zero where a relu is off. Under `EveryBranch`, operations
that choose become sums of what they choose from, so that derivatives at one random point show every dependence.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def _sum_of_two(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def _first(a: Tensor, *options: Any, **others: Any) -> Tensor:
    return a


def _either(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    return torch.as_tensor(a) + b


def _all_columns(a: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Tensor:
    return a.sum(tuple(dim), keepdim=keepdim)


CHOICES: dict[str, Callable[..., Tensor]] = {
    "maximum": _sum_of_two,
    "minimum": _sum_of_two,
    "where": _either,
    "amax": _all_columns,
    "amin": _all_columns,
    **dict.fromkeys(("relu", "clamp", "clamp_min", "clamp_max", "clip", "hardtanh", "masked_fill", "spike"), _first),
}

GOLDEN = 0.6180339887498949


class EveryBranch(TorchFunctionMode):
    """Inside this context, operations that choose between values add them up, each with another factor.

    With equal factors, relu(a) - relu(a - b) would not depend on a.
    """

    def __init__(self) -> None:
        super().__init__()
        self.factor = 1.0

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = getattr(func, "__name__", "").partition(".")[0]  # of aten.relu.default and of torch.relu
        if name not in CHOICES:
            return func(*args, **(kwargs or {}))
        self.factor = (self.factor + GOLDEN) % 1
        return (0.5 + self.factor) * CHOICES[name](*args, **(kwargs or {}))
