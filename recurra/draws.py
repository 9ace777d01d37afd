"""What a cell draws before a call: dropout masks and noise. Each is one tensor for all steps, made by one call."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch.compiler import is_compiling


@dataclass(frozen=True)
class Mask:
    """An inverted-dropout mask, with mean 1: random in training, all ones in evaluation."""

    size: int
    rate: float
    each: str = "sequence"  # or "step"

    def draw(self, steps: int, batch: int, like: Tensor, training: bool) -> Tensor:
        """(T, B, size) for a mask of each step, else (B, size)."""
        shape = (steps, batch, self.size) if self.each == "step" else (batch, self.size)
        if not training or self.rate == 0.0:
            return like.new_ones(()).expand(shape)
        return _dropout_mask(shape, self.rate, like)

    def is_random(self, training: bool) -> bool:
        """Whether the mask drops anything in this mode."""
        return training and self.rate > 0.0

    @property
    def mean(self) -> float:
        """The mean of every number."""
        return 1.0


@dataclass(frozen=True)
class StepDropout:
    """The mask of a dropout call inside a step, found by tracing it: drawn for every step while the call is active."""

    size: int
    rate: float
    scaled: bool = True  # False: 0 or 1, for alpha dropout
    each: ClassVar[str] = "step"

    def draw(self, steps: int, batch: int, like: Tensor, training: bool) -> Tensor:
        """(T, B, size)."""
        return _dropout_mask((steps, batch, self.size), self.rate, like, self.scaled)

    def is_random(self, training: bool) -> bool:
        """True: inactive calls are not found."""
        return True

    @property
    def mean(self) -> float:
        """The value at which the call is the identity, or nearly so: alpha dropout shifts and scales."""
        return 1.0


@dataclass(frozen=True)
class Noise:
    """Random numbers drawn for every step and sequence, in training and in evaluation."""

    size: int
    distribution: str = "normal"  # or "uniform"
    each: ClassVar[str] = "step"

    def draw(self, steps: int, batch: int, like: Tensor, training: bool) -> Tensor:
        """(T, B, size), all steps in one call of the generator."""
        sample = torch.rand if self.distribution == "uniform" else torch.randn
        return sample(steps, batch, self.size, dtype=_drawn_dtype(like), device=like.device)

    def is_random(self, training: bool) -> bool:
        """True: noise belongs to the model and is drawn in both modes."""
        return True

    @property
    def mean(self) -> float:
        """The mean of every number."""
        return 0.5 if self.distribution == "uniform" else 0.0


Draw = Mask | Noise | StepDropout


def _dropout_mask(shape: tuple[int, ...], rate: float, like: Tensor, scaled: bool = True) -> Tensor:
    """0 with probability `rate`, else 1, or 1 / (1 - rate) if scaled."""
    if rate == 1.0:  # everything is dropped, and 1 / (1 - rate) is infinite
        return like.new_zeros(()).expand(shape)
    if like.is_cuda and not is_compiling() and peek_interpreter_stack() is None:  # two kernels instead of five
        kept = torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1.0 - rate)
        return kept.div_(1.0 - rate) if scaled else kept
    kept = torch.full(shape, 1.0 - rate, dtype=like.dtype, device=like.device).bernoulli()
    return kept / (1.0 - rate) if scaled else kept


def _drawn_dtype(like: Tensor) -> torch.dtype:
    """The dtype that the engines compute in. Drawn in float32, a uniform number may round to 1 in bfloat16."""
    if like.is_cuda and torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return like.dtype
