"""Batches of sequences of unequal length: packed and nested containers, lengths, reversal in time."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence, pad_sequence

from .errors import DeviceError, DtypeError, LengthsError, ShapeError


@dataclass(frozen=True)
class Wrapping:
    """The container of an input batch, in which the outputs are returned."""

    packed: PackedSequence | None = None
    nested: Tensor | None = None

    def wrap(self, y: Tensor, lengths: Tensor) -> Tensor | PackedSequence:
        """Padded `(T, B, F)` outputs → the container."""
        if self.packed is not None:
            return _pack(y, lengths, self.packed)
        if self.nested is not None:
            return _nest(y, lengths, self.nested)
        return y


def unwrap(x: Tensor | PackedSequence) -> tuple[Tensor, Tensor, Wrapping] | None:
    """`(padded (T, B, D), lengths, wrapping)` of a PackedSequence or a nested tensor; None for a plain tensor."""
    if isinstance(x, PackedSequence):
        padded, lengths = pad_packed_sequence(x)
        return padded, lengths, Wrapping(packed=x)
    if isinstance(x, Tensor) and x.is_nested:
        sequences = x.unbind()
        if len({sequence.shape[1:] for sequence in sequences}) > 1:
            raise ShapeError(
                "x", f"shapes {[tuple(s.shape) for s in sequences]}", "sequences that differ in length alone"
            )
        lengths = torch.tensor([len(sequence) for sequence in sequences], device=x.device)
        return pad_sequence(list(sequences)), lengths, Wrapping(nested=x)
    return None


def _pack(y: Tensor, lengths: Tensor, like: PackedSequence) -> PackedSequence:
    order = like.sorted_indices
    if order is not None:
        y, lengths = y.index_select(1, order), lengths.index_select(0, order.to(lengths.device))
    packed = pack_padded_sequence(y, lengths.cpu())
    return PackedSequence(packed.data, packed.batch_sizes, like.sorted_indices, like.unsorted_indices)


def _nest(y: Tensor, lengths: Tensor, like: Tensor) -> Tensor:
    sequences = [row[:n] for row, n in zip(y.transpose(0, 1).unbind(), lengths.tolist(), strict=True)]
    whole = like.layout is torch.jagged and like.lengths() is None  # pyrefly: ignore
    if whole:  # with the same offsets, input and output can be added
        return torch.nested.nested_tensor_from_jagged(torch.cat(sequences), like.offsets())  # pyrefly: ignore
    return torch.nested.as_nested_tensor(sequences, layout=like.layout)


def check_lengths(lengths: Tensor | Sequence[int], steps: int, batch: int, device: torch.device) -> Tensor:
    """Lengths as int64 on `device`. Values on an accelerator are not checked: reading them would synchronise."""
    tensor = _as_tensor(lengths)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise DtypeError("lengths", tensor.dtype, "whole numbers")
    if tensor.layout is not torch.strided:
        raise LengthsError("lengths", f"a tensor with the layout {tensor.layout}", "a dense tensor")
    if tensor.is_meta and device.type != "meta":
        raise DeviceError("lengths", tensor.device, f"values, on the CPU or on x's device, {device}")
    if tensor.shape != (batch,):
        raise LengthsError("lengths", f"shape {tuple(tensor.shape)}", f"one length per sequence, shape ({batch},)")
    if _is_readable(tensor) and batch:
        low, high = int(tensor.min()), int(tensor.max())
        if low < 1 or high > steps:
            raise LengthsError("lengths", low if low < 1 else high, f"values from 1 to T = {steps}")
    if tensor.is_cpu and device.type == "cuda" and _is_readable(tensor):
        tensor = tensor.to(torch.int64).pin_memory()  # copying pageable memory waits for all earlier work on the card
        return tensor.to(device, non_blocking=True)
    return tensor.to(device=device, dtype=torch.int64)


def _as_tensor(lengths: Tensor | Sequence[int]) -> Tensor:
    if isinstance(lengths, Tensor):
        return lengths
    try:
        return torch.as_tensor(lengths, device="cpu") if len(lengths) else torch.empty(0, dtype=torch.int64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise LengthsError("lengths", repr(lengths), "whole numbers, one per sequence") from error


def _is_readable(tensor: Tensor) -> bool:
    """Whether the values can be read without a device synchronisation, a graph break or an error in a transform."""
    plain = tensor.device.type == "cpu" and not torch.compiler.is_compiling()
    return plain and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def reverse(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each sequence of `(T, B, …)` in time; padding stays where it is. Its own inverse."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)  # (T, B)
    return x.gather(0, source.view(*source.shape, *[1] * (x.dim() - 2)).expand_as(x))


def reverse_resets(resets: Tensor, lengths: Tensor | None) -> Tensor:
    """Resets for the backward direction, which starts a sequence at its last step."""
    following = torch.cat([resets[1:], torch.zeros_like(resets[:1])])
    return reverse(following, lengths)
