"""Lowers torch's views: a row gets another shape, its numbers stay in place. One table row each."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .ops_reduce import Reader
from .values import BATCH, Shape, Unsupported, Value, count, format_shapes

aten = torch.ops.aten


def _unsqueeze(reader: Reader, value: Value, dim: int) -> Value:
    shape = list(value.shape)
    shape.insert(dim % (len(shape) + 1), 1)
    return value.with_shape(shape)


def _squeeze(reader: Reader, value: Value, dims: Any = None) -> Value:
    axes = range(len(value.shape)) if dims is None else dims if isinstance(dims, (list, tuple)) else [dims]
    gone = {axis % len(value.shape) for axis in axes}
    if dims is not None and any(value.shape[axis] == BATCH for axis in gone):
        raise Unsupported("aten.squeeze of the batch")
    return value.with_shape([size for axis, size in enumerate(value.shape) if axis not in gone or size != 1])


def _permute(reader: Reader, value: Value, order: Sequence[int]) -> Value:
    axes = [axis % len(value.shape) for axis in order]
    long = [axis for axis in axes if value.shape[axis] not in (1, BATCH)]
    if long != sorted(long):
        raise Unsupported(f"aten.permute that reorders a row {format_shapes(value.shape)}")
    return value.with_shape([value.shape[axis] for axis in axes])


def _transpose(reader: Reader, value: Value, first: int, second: int) -> Value:
    axes = list(range(len(value.shape)))
    axes[first], axes[second] = axes[second], axes[first]
    return _permute(reader, value, axes)


def transpose_all(reader: Reader, value: Value) -> Value:
    """Reverse all axes."""
    return _permute(reader, value, range(len(value.shape))[::-1])


def _view(reader: Reader, value: Value, shape: Sequence[Any], *_: Any) -> Value:
    new = _infer_size(value, shape)
    if (
        count(new) != value.width
        or (BATCH in new) != (BATCH in value.shape)
        or _numbers_before_batch(new) != _numbers_before_batch(value.shape)
    ):
        raise Unsupported(f"a view of {format_shapes(value.shape)} as {format_shapes(shape)}")
    return value.with_shape(new)


def _infer_size(value: Value, shape: Sequence[Any]) -> Shape:
    """The shape with -1 replaced: by the batch if no other axis is the batch."""
    others = [size for size in shape if size != -1]
    missing = BATCH if BATCH in value.shape and BATCH not in others else value.width // count(others)
    return tuple(missing if size == -1 else size for size in shape)


def _numbers_before_batch(shape: Shape) -> int:
    """The number of elements of a row before the batch axis. A view keeps it."""
    return count(shape[: shape.index(BATCH)]) if BATCH in shape else 1


def _expand(reader: Reader, value: Any, shape: Sequence[Any], **_: Any) -> Value:
    row = reader.value(value)
    lead = len(shape) - len(row.shape)
    return reader.broadcast_to(row, tuple(row.shape[i - lead] if size == -1 else size for i, size in enumerate(shape)))


VIEWS: dict[Any, Callable] = {
    aten.unsqueeze.default: _unsqueeze,
    aten.squeeze.default: _squeeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.permute.default: _permute,
    aten.transpose.int: _transpose,
    aten.t.default: transpose_all,
    aten.view.default: _view,
    aten._unsafe_view.default: _view,
    aten._reshape_alias.default: _view,
    aten.expand.default: _expand,
}
