"""The operation of a tensor that a step writes out, `torch.tensor([0.5, 2.0])`: its numbers are part of the graph."""

from collections.abc import Sequence

import torch
from torch import Tensor

MAX_NUMBERS = 4096  # of one literal; a graph prints all of them

torch.library.define("recurra::literal", "(float[] values, int[] shape, ScalarType dtype) -> Tensor")


def _literal(values: Sequence[float], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).to(dtype).reshape(shape)


torch.library.impl("recurra::literal", "CompositeExplicitAutograd", _literal)


@torch.library.register_fake("recurra::literal")
def _fake(values: Sequence[float], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    return torch.empty(shape, dtype=dtype)


literal = torch.ops.recurra.literal.default


def literal_arguments(tensor: Tensor) -> tuple[list[float], list[int], torch.dtype] | None:
    """The arguments of the operation that makes an equal tensor; None if it is large, complex, or beyond float64."""
    if tensor.numel() > MAX_NUMBERS or tensor.is_complex() or not tensor.is_cpu:
        return None
    values = tensor.double()
    if not (tensor.is_floating_point() or torch.equal(values.to(tensor.dtype), tensor)):
        return None
    return values.flatten().tolist(), list(tensor.shape), tensor.dtype
