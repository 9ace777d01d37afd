"""Operations that only move numbers, or fill in zeros. They run on the places of the numbers: see placement.py."""

from collections.abc import Sequence
from typing import Any

import torch

from .values import Fold, Shape, Unsupported, Value, is_batch

aten = torch.ops.aten

# The sizes of the result are an argument: these say where the batch is.
SIZED = {
    aten.view.default: 1,
    aten._unsafe_view.default: 1,
    aten._reshape_alias.default: 1,
    aten.expand.default: 1,
}
# Arguments that are indices: constants of the step.
INDEXED = {
    aten.index.Tensor: 1,
    aten._unsafe_index.Tensor: 1,
    aten.index_put.default: 1,
    aten.take_along_dim.default: 1,
    aten.index_select.default: 2,
    aten.index_copy.default: 2,
    aten.gather.default: 2,
    aten.scatter.src: 2,
}
VIEWS = {
    *SIZED,
    aten.unsqueeze.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
}
MOVES = {
    *VIEWS,
    *INDEXED,
    aten.cat.default,
    aten.stack.default,
    aten.repeat.default,
    aten.slice.Tensor,
    aten.select.int,
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    aten.unbind.int,
    aten.flip.default,
    aten.roll.default,
    aten.diagonal.default,
    aten.unfold.default,
    aten.tril.default,
    aten.triu.default,
    aten.diag_embed.default,
    aten.constant_pad_nd.default,
    aten.reflection_pad1d.default,
    aten.replication_pad1d.default,
    aten.slice_scatter.default,
    aten.select_scatter.default,
    aten.diagonal_scatter.default,
    aten.rot90.default,
    aten.pixel_shuffle.default,
    aten.channel_shuffle.default,
}


def check_sizes(target: Any, args: Sequence[Any], result: Value) -> None:
    """Check that the batch is where the caller put it, and nowhere a size that happens to be the same."""
    if target in SIZED:
        given = args[SIZED[target]]
        if any(size != -1 and is_batch(size) != is_batch(own) for size, own in zip(given, result.shape, strict=True)):
            raise Unsupported(f"{target_name(target)} with the batch size as another size")
    elif target is aten.slice.Tensor:
        dim, bounds = (args[1] if len(args) > 1 else 0), args[2:]
        if any(map(is_batch, bounds)) and not is_batch(args[0].shape[dim]):
            raise Unsupported("a slice of a row with the batch size as a bound")
    elif any(map(is_batch, _numbers(args))):
        raise Unsupported(f"{target_name(target)} by the batch size")


def check_fill(target: Any, args: Sequence[Any]) -> None:
    """Check that what is filled in is zero."""
    if target is aten.constant_pad_nd.default and len(args) > 2 and args[2] != 0:
        raise Unsupported("aten.constant_pad_nd with another number than zero")


def target_name(target: Any) -> str:
    return str(target).rpartition(".")[0]


def _numbers(args: Sequence[Any]) -> list[Any]:
    """Numbers among arguments and in lists of them; not those of shapes of values."""
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, (list, tuple)) and not isinstance(arg, Fold):
            found += _numbers(arg)
        elif not isinstance(arg, Value):
            found.append(arg)
    return found


def shape_without(shape: Shape, axes: set[int], keepdim: bool) -> Shape:
    """A shape without some of its axes, or with 1 in their place."""
    if keepdim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes)
