"""Where the numbers of a value lie: its shape filled with their places, and back.

An operation that only moves numbers runs on the places themselves, for a batch of `SEQUENCES`. What it returns says
which number each result reads, and whether sequences were mixed.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from .values import BATCH, Fold, Shape, Size, Unsupported, at_batch, count, has_batch

SEQUENCES = 2  # as steps are traced


def places_of(shape: Shape, stride: int, first: int = 0) -> Tensor:
    """A tensor of this shape with `1 + first` and on for a row, and `stride` more for the second sequence.

    0 is left for what an operation fills with zeros. Values without a batch have the same places for both sequences.
    """
    own = torch.arange(count(shape), dtype=torch.float64) + 1 + first  # some operations take no integers
    if not has_batch(shape):
        return own.reshape(at_batch(shape, 1))
    before, after = _around_batch(shape)
    sequence = torch.arange(SEQUENCES).reshape(1, -1, 1) * stride
    return (own.reshape(before, 1, after) + sequence).reshape(at_batch(shape, SEQUENCES))


def _around_batch(shape: Shape) -> tuple[int, int]:
    """The numbers of a row before and after the batch, in the order of the axes."""
    axis = next(i for i, size in enumerate(shape) if not isinstance(size, int))
    size = shape[axis]
    fold = size if isinstance(size, Fold) else Fold(1, 1)
    return count(shape[:axis]) * fold.before, fold.after * count(shape[axis + 1 :])


def row_of(places: Tensor, stride: int, what: str) -> tuple[Tensor, Shape]:
    """The places that one sequence reads, flat and from 0 on (-1: a zero), and the shape of the result."""
    (row,), shape = rows_of([(places, stride)], what)
    return row, shape


def rows_of(read: Sequence[tuple[Tensor, int | None]], what: str) -> tuple[list[Tensor], Shape]:
    """The same for several tensors of one shape. Stride None: the places of what all sequences share."""
    for shape in _batch_shapes(tuple(read[0][0].shape)):
        before, after = _around_batch(shape)
        pairs = [places.reshape(before, SEQUENCES, after).unbind(1) for places, _ in read]
        if all(_is_row(a, b, stride) for (a, b), (_, stride) in zip(pairs, read, strict=True)):
            return [first.flatten().long() - 1 for first, _ in pairs], shape
    raise Unsupported(f"{what} across sequences")


def _is_row(first: Tensor, second: Tensor, stride: int | None) -> bool:
    """Whether the second sequence reads of its own row what the first one reads of its own."""
    if stride is None:
        return bool((first == second).all())
    return bool(((second == first + stride) | ((first == 0) & (second == 0))).all() and (first <= stride).all())


def _batch_shapes(sizes: tuple[int, ...]) -> Iterator[Shape]:
    """The shapes that have these sizes for `SEQUENCES` sequences: first those with the batch as an axis of its own."""
    folds = [(axis, fold) for axis, size in enumerate(sizes) for fold in _folds(size)]
    for axis, fold in sorted(folds, key=lambda item: item[1] != BATCH):
        yield (*sizes[:axis], fold, *sizes[axis + 1 :])


def _folds(size: int) -> list[Size]:
    if size == SEQUENCES:
        return [BATCH]
    whole = size // SEQUENCES
    divisors = [n for n in range(1, whole + 1) if whole % n == 0] if size % SEQUENCES == 0 else []
    return [Fold(n, whole // n) for n in divisors]


def move(function: Callable[..., object], shapes: Sequence[Shape], what: str) -> list[tuple[Tensor, Shape]]:
    """Run an operation on the places of values that lie side by side; places and shape of each of its results."""
    stride, first, given = sum(map(count, shapes)), 0, []
    for shape in shapes:
        given.append(places_of(shape, stride, first))
        first += count(shape)
    made = function(*given)
    results = made if isinstance(made, (tuple, list)) else [made]
    return [row_of(result, stride, what) for result in results]
