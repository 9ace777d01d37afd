"""Dropout inside a step: calls of torch's dropout functions take masks that are drawn before a call of the layer.

While a step is traced, every active call takes one more input, `dropout_1`, `dropout_2`, …, a `StepDropout`. The plain
loop runs the step itself inside `GivenDropouts`, which hands the same masks to the same calls, in order. So all engines
compute with the same numbers. In evaluation a call is inactive, and the identity, as torch's.

Not taken, and drawn by torch on the plain loop: dropout of a weight, or of any other value whose first axis is not the
batch; and dropout inside torch's own functions, such as attention.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..draws import StepDropout

ALPHA = 1.7580993408473766  # SELU's -λα, where alpha dropout puts a dropped unit


@dataclass(frozen=True)
class _Kind:
    """Whether a function drops whole channels, keeps mean and variance of a SELU, and is active by default."""

    features: bool = False
    alpha: bool = False
    training: bool = True


FUNCTIONS: dict[Callable, _Kind] = {
    **dict.fromkeys((F.dropout, torch.dropout, torch.dropout_), _Kind()),
    **dict.fromkeys((F.dropout1d, F.dropout2d, F.dropout3d), _Kind(features=True)),
    **dict.fromkeys((torch.feature_dropout, torch.feature_dropout_), _Kind(features=True)),
    **dict.fromkeys((F.alpha_dropout, torch.alpha_dropout, torch.alpha_dropout_), _Kind(alpha=True, training=False)),
    F.feature_alpha_dropout: _Kind(True, True, False),
    torch.feature_alpha_dropout: _Kind(True, True),
    torch.feature_alpha_dropout_: _Kind(True, True),
}
NAMES = {function.__name__ for function in FUNCTIONS}


@dataclass(frozen=True)
class DropoutCall:
    """An active call of a dropout function."""

    value: Tensor
    rate: float
    kind: _Kind
    in_place: bool

    def drawn(self, batch: int) -> StepDropout | None:
        """What it draws for a batch of this size; None if the value is not one row or block per sequence."""
        value, features = self.value, self.kind.features
        if value.dim() < (3 if features else 1) or value.shape[0] != batch:
            return None
        size = value.shape[1] if features else math.prod(value.shape[1:])
        return StepDropout(size, self.rate, scaled=not self.kind.alpha)

    def __call__(self, mask: Tensor) -> Tensor:
        """The result of the call with this mask, (B, size)."""
        shape = self.value.shape
        shape = (*shape[:2], *[1] * (len(shape) - 2)) if self.kind.features else shape
        mask = mask.to(self.value.dtype)
        mask = mask if mask.shape == shape else mask.view(shape)
        if not self.kind.alpha or self.rate == 1:
            return self.value.mul_(mask) if self.in_place else self.value * mask
        scale = 1 / math.sqrt((ALPHA**2 * self.rate + 1) * (1 - self.rate))
        shift = (mask - 1) * (ALPHA * scale) + ALPHA * scale * self.rate
        return self.value.mul_(mask * scale).add_(shift) if self.in_place else self.value * (mask * scale) + shift


def active_call(function: Any, args: tuple, kwargs: dict[str, Any]) -> DropoutCall | None:
    """The call `function(*args, **kwargs)`, if it is one of dropout that drops something."""
    try:
        kind = FUNCTIONS.get(function)
    except TypeError:  # not hashable
        kind = None
    if kind is None:
        return None
    given = dict(zip(("input", "p", "training", "inplace"), args, strict=False)) | kwargs
    value, rate = given.get("input"), given.get("p", 0.5)
    is_active = given.get("training", given.get("train", kind.training))
    if not is_active or not isinstance(value, Tensor) or not value.is_floating_point():
        return None
    if not isinstance(rate, (int, float)) or not 0 < rate <= 1:  # 0 drops nothing; torch refuses the others
        return None
    return DropoutCall(value, float(rate), kind, given.get("inplace", False) or function.__name__.endswith("_"))


class GivenDropouts(TorchFunctionMode):
    """Context manager: active dropout calls take these masks, in order, instead of drawing."""

    def __init__(self, masks: Iterable[Tensor]):
        super().__init__()
        self.masks = iter(masks)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        call = active_call(func, args, kwargs or {})
        return func(*args, **(kwargs or {})) if call is None else call(next(self.masks))
