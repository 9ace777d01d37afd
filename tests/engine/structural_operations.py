"""Operations that move, reduce, order and multiply numbers of a row, as a user writes them in a step.

Each takes the cell, a value `v` (B, 12) computed in the step and the state `h` (B, 12), and gives (B, 12) or fewer.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recurra.cell import Cell

UNITS = 12
Operation = Callable[["Structured", Tensor, Tensor], Tensor]


class Structured(Cell):
    """An affine, and the mean of some operations of a row added to it."""

    def __init__(self, input_size: int, hidden_size: int, operations: list[Operation]):
        super().__init__(input_size, hidden_size)
        self.operations = operations
        self.a, self.b = self.affine("x", "h"), self.affine("x", "h")
        self.W = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size**0.5)
        self.heads = nn.Parameter(0.5 * torch.randn(3, 4, 5))
        self.many = nn.Parameter(0.5 * torch.randn(UNITS // 2, 2, 2))
        self.kernel = nn.Parameter(0.5 * torch.randn(3, 2, 3))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        v, total = torch.tanh(self.a(x, h)), self.b(x, h)
        for operation in self.operations:
            total = total + fit(operation(self, v, h)) / len(self.operations)
        return torch.tanh(total)


def fit(value: Tensor) -> Tensor:
    """(B, …) as (B, 12): filled up with zeros, or cut."""
    row = value.flatten(1)
    return F.pad(row, (0, UNITS - row.shape[1])) if row.shape[1] < UNITS else row[:, :UNITS]


def by_heads(value: Tensor, heads: int = 3) -> Tensor:
    return value.view(value.shape[0], heads, -1)


def assigned(row: Tensor, place: tuple, value: Tensor | float) -> Tensor:
    row = 0.7 * row
    row[place] = value
    return row


MOVED: dict[str, Operation] = {
    "flip": lambda s, v, h: v.flip(-1),
    "flip of two axes": lambda s, v, h: by_heads(v).flip(1, 2),
    "roll along two axes": lambda s, v, h: by_heads(v).roll((1, 2), (1, 2)),
    "every second": lambda s, v, h: v[:, 1::2],
    "even, then odd": lambda s, v, h: torch.cat([v[:, ::2], v[:, 1::2]], -1),
    "indices": lambda s, v, h: v[:, torch.arange(11, -1, -2)],
    "index_select": lambda s, v, h: v.index_select(1, torch.arange(12) * 5 % 12),
    "gather": lambda s, v, h: v.gather(1, (torch.arange(12) * 5 % 7).expand(v.shape[0], -1)),
    "heads transposed": lambda s, v, h: by_heads(v).transpose(1, 2).reshape(-1, 12),
    "four axes permuted": lambda s, v, h: v.view(-1, 3, 2, 2).permute(0, 3, 1, 2),
    "stacked last": lambda s, v, h: torch.stack([v, h], -1).flatten(1)[:, 3:15],
    "chunks backwards": lambda s, v, h: torch.cat(v.chunk(6, -1)[::-1], -1),
    "unbound": lambda s, v, h: torch.cat(by_heads(v, 6).unbind(2), -1),
    "repeat_interleave": lambda s, v, h: v[:, :4].repeat_interleave(3, 1),
    "pad": lambda s, v, h: F.pad(v, (2, 1)),
    "unfold": lambda s, v, h: v.unfold(1, 4, 2).sum(-1),
    "tril": lambda s, v, h: v.view(-1, 3, 4).tril(),
    "diagonal": lambda s, v, h: torch.diagonal(v.view(-1, 3, 4), dim1=1, dim2=2),
    "index_copy": lambda s, v, h: h.index_copy(1, torch.arange(0, 12, 3), v[:, :4]),
    "scatter": lambda s, v, h: h.scatter(1, (torch.arange(4) * 3).expand(h.shape[0], -1), v[:, :4]),
    "assigned with a stride": lambda s, v, h: assigned(h, (slice(None), slice(None, None, 2)), v[:, :6]),
}
REDUCED: dict[str, Operation] = {
    "sum over heads": lambda s, v, h: by_heads(v).sum(1, keepdim=True) * by_heads(h),
    "mean over heads": lambda s, v, h: by_heads(v, 2).mean(1),
    "amax over heads": lambda s, v, h: by_heads(v, 6).amax(1),
    "amin within heads": lambda s, v, h: by_heads(v, 6).amin(2),
    "softmax over heads": lambda s, v, h: by_heads(v, 6).softmax(1),
    "softmax within heads": lambda s, v, h: by_heads(v, 6).softmax(-1),
    "log_softmax over heads": lambda s, v, h: by_heads(v, 6).log_softmax(1),
    "logsumexp over heads": lambda s, v, h: by_heads(v, 6).logsumexp(1),
    "norm over heads": lambda s, v, h: by_heads(v).norm(dim=1),
    "normalize": lambda s, v, h: F.normalize(by_heads(v, 6), dim=-1),
    "std over heads": lambda s, v, h: by_heads(v, 6).std(1),
    "layer_norm within heads": lambda s, v, h: F.layer_norm(by_heads(v, 6), (2,), eps=0.1),
    "rms_norm within heads": lambda s, v, h: F.rms_norm(by_heads(v, 6), (2,), eps=0.1),
}
ORDERED: dict[str, Operation] = {
    "cumsum": lambda s, v, h: v.cumsum(-1),
    "cumsum over heads": lambda s, v, h: by_heads(v).cumsum(1),
    "cumsum of many": lambda s, v, h: torch.cat([v, h, v * h, -v], -1).cumsum(-1)[:, 30:42] * 0.3,
    "cumprod": lambda s, v, h: v.cumprod(-1),
    "prod": lambda s, v, h: (v + 1).prod(-1, keepdim=True) * 0.1 + h,
    "prod over heads": lambda s, v, h: by_heads(v).prod(1),
    "max": lambda s, v, h: v.max(-1, keepdim=True).values * h,
    "max over heads": lambda s, v, h: by_heads(v).max(1)[0],
    "min": lambda s, v, h: v.min(-1)[0][:, None] * h,
    "argmax": lambda s, v, h: v.argmax(-1, keepdim=True) * h,
    "argmin over heads": lambda s, v, h: by_heads(v).argmin(1, keepdim=True) * by_heads(h) / 3,
    "sort": lambda s, v, h: v.sort(-1).values,
    "sort of heads, descending": lambda s, v, h: by_heads(v).sort(1, descending=True)[0],
    "argsort": lambda s, v, h: v.argsort(-1) * h / 12,
    "topk": lambda s, v, h: v.topk(5, -1)[0],
    "indices of the smallest": lambda s, v, h: v.topk(5, -1, largest=False)[1] * h[:, :5] / 12,
}
MULTIPLIED: dict[str, Operation] = {
    "outer product": lambda s, v, h: v[:, :4, None] * h[:, None, :3],
    "outer product, summed": lambda s, v, h: (v[:, :, None] * h[:, None, :]).sum(1),
    "bmm": lambda s, v, h: torch.bmm(by_heads(v), h.view(-1, 4, 3)),
    "matmul of four axes": lambda s, v, h: v.view(-1, 2, 3, 2) @ h.view(-1, 2, 2, 3),
    "attention": lambda s, v, h: torch.softmax(by_heads(v) @ by_heads(h).mT, -1) @ by_heads(h),
    "outer einsum": lambda s, v, h: torch.einsum("bi,bj->bij", v[:, :3], h[:, :4]),
    "einsum over heads": lambda s, v, h: torch.einsum("bhd,bhe->bde", by_heads(v), by_heads(h)),
    "block-diagonal einsum": lambda s, v, h: torch.einsum("bhd,hde->bhe", by_heads(v), s.heads),
    "many blocks": lambda s, v, h: torch.einsum("bhd,hde->bhe", by_heads(v, 6), s.many),
    "linear within heads": lambda s, v, h: F.linear(by_heads(v), s.W[:4, :4]),
    "batch folded": lambda s, v, h: F.linear(torch.tanh(v.reshape(-1, 4)), s.W[:4, :4]).view(-1, 12),
    "batch folded by its size": lambda s, v, h: (v.reshape(v.shape[0] * 6, 2) @ s.W[:2, :2]).view(v.shape[0], 12),
    "weights of a row": lambda s, v, h: (s.W * h[:, None]).sum(-1),
    "weights on the left": lambda s, v, h: s.W[:4, :4] @ v.view(-1, 4, 3),
}
STRUCTURAL = {"moved": MOVED, "reduced": REDUCED, "ordered": ORDERED, "multiplied": MULTIPLIED}
