"""The tensors of a call in one list, as a CUDA graph takes them, and apart again."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from ..plan.program import Plan


class Inputs(NamedTuple):
    """What a pass over a sequence reads."""

    x: Tensor
    states: list[Tensor]
    masks: list[Tensor]
    weights: list[Tensor]
    lengths: Tensor | None


def join_inputs(given: Sequence[Tensor], lengths: Tensor | None) -> list[Tensor]:
    """x, states, masks and weights, then the lengths."""
    return [*given, *(() if lengths is None else (lengths.to(given[0].device, torch.int32),))]


def split_inputs(plan: Plan, ragged: bool, inputs: Iterator[Tensor]) -> Inputs:
    """The first tensors of a list that `join_inputs` made."""
    x = next(inputs)
    counts = len(plan.states), len(plan.masks), len(plan.weight_names)
    states, masks, weights = ([*islice(inputs, count)] for count in counts)
    return Inputs(x, states, masks, weights, next(inputs) if ragged else None)


def join_backward(
    given: Sequence[Tensor], lengths: Tensor | None, needed: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> tuple[tuple[bool, ...], list[Tensor]]:
    """(which cotangents there are, all tensors of a backward pass)."""
    present = tuple([cotangent is not None for cotangent in cotangents])
    return present, [*join_inputs(given, lengths), *needed, *(c for c in cotangents if c is not None)]


def split_backward(
    plan: Plan, ragged: bool, needed: int, present: Sequence[bool], inputs: Sequence[Tensor]
) -> tuple[Inputs, list[Tensor], list[Tensor | None]]:
    """(what the forward pass read, what it left for backward, cotangents); `needed`: how many it left."""
    rest = iter(inputs)
    given, left = split_inputs(plan, ragged, rest), [*islice(rest, needed)]
    return given, left, [next(rest) if is_given else None for is_given in present]
