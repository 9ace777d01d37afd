"""The gradient of each weight, put together from what the backward pass leaves: products over all steps, and sums."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ..ir.nodes import Matrix, Vector
from .program import Plan, Product


@dataclass(frozen=True)
class _Part:
    """Some of a weight's gradient: one part of one piece."""

    piece: int
    part: int
    of: Matrix | Vector


class Assembly:
    """Which parts of the pieces make up which weight: the same at every call."""

    def __init__(self, plan: Plan, names: Sequence[str], runs: Sequence[Sequence[Product]]):
        assert plan.backward is not None
        self.widths = [[product.delta.width for product in run] for run in runs]
        self.widths.append([node.width for _, node in plan.backward.sums])
        self.parts: dict[str, list[_Part]] = {name: [] for name in names}
        for i, run in enumerate(runs):
            for j, product in enumerate(run):
                self.parts[product.matrix.weight].append(_Part(i, j, product.matrix))
        for j, (vector, _) in enumerate(plan.backward.sums):
            self.parts[vector.weight].append(_Part(len(runs), j, vector))

    def __call__(self, pieces: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        cut = [
            piece.split_with_sizes(widths) if len(widths) > 1 else (piece,)
            for piece, widths in zip(pieces, self.widths, strict=True)
        ]
        return [_whole(parts, cut, weight) for parts, weight in zip(self.parts.values(), weights, strict=True)]


def _whole(parts: list[_Part], cut: list, weight: Tensor) -> Tensor:
    if len(parts) == 1:
        found = _oriented(cut[parts[0].piece][parts[0].part], parts[0].of)
        if found.shape == weight.shape:
            return found
        if found.dim() == 1 and found.numel() == weight.numel():
            return found.reshape(weight.shape)
    total = cut[-1][0].new_zeros(weight.shape)
    for one in parts:
        _place(total, one.of).add_(_oriented(cut[one.piece][one.part], one.of))
    return total


def _oriented(part: Tensor, of: Matrix | Vector) -> Tensor:
    if isinstance(of, Matrix):
        return part.t() if of.flipped else part
    low, high = of.rows
    return part if part.numel() == high - low else part.sum().reshape(1)


def _place(total: Tensor, of: Matrix | Vector) -> Tensor:
    """The numbers of a weight that a part belongs to."""
    if isinstance(of, Matrix):
        return total[slice(*of.rows), slice(*of.cols)]
    return total[slice(*of.rows), of.col] if of.col is not None else total.view(-1)[slice(*of.rows)]
