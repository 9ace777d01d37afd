"""Constant index maps: which numbers of a row each number of a result reads.

Every structural operation is one of these: a transpose, a flip or a slice with a stride reads one number per result, a
sum over an axis several. The derivative of a map is its inverse: each source reads the results that read it.
"""

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

MAX_ENTRIES = 1 << 20  # of a map, beyond which reading it costs more than the plain loop


@dataclass(frozen=True)
class IndexMap:
    """`(terms, width)` places in a row, as int32 in bytes, which hash; -1 reads nothing."""

    terms: int
    data: bytes

    @staticmethod
    def of(places: Tensor) -> "IndexMap":
        """From places `(terms, width)`, or `(width,)` for one term."""
        rows = places.reshape(1, -1) if places.dim() == 1 else places
        return IndexMap(rows.shape[0], rows.to(torch.int32).contiguous().numpy().tobytes())

    @functools.cached_property
    def places(self) -> Tensor:
        """(terms, width), int64."""
        return torch.frombuffer(bytearray(self.data), dtype=torch.int32).reshape(self.terms, -1).long()

    @property
    def width(self) -> int:
        return len(self.data) // (4 * self.terms)

    def columns(self, low: int, high: int) -> "IndexMap":
        """The map of results `low` to `high`."""
        return IndexMap.of(self.places[:, low:high])

    def after(self, first: "IndexMap") -> "IndexMap":
        """The map of this one's results from the sources of `first`, which has one term."""
        found = torch.cat([first.places[0], torch.tensor([-1])])[self.places]  # -1 finds the last
        return IndexMap.of(found)

    def moved(self, by: int) -> "IndexMap":
        """The same places in a row that begins `by` numbers earlier."""
        return IndexMap.of(torch.where(self.places >= 0, self.places + by, self.places))

    def single(self) -> tuple[int, int, int] | None:
        """`(low, high, 1)` if it reads consecutive places, `(place, place + 1, times)` if it repeats one; else None."""
        if self.terms > 1:
            return None
        places, first = self.places[0], int(self.places[0, 0])
        if first < 0:
            return None
        if bool((places == torch.arange(first, first + self.width)).all()):
            return first, first + self.width, 1
        return (first, first + 1, self.width) if bool((places == first).all()) else None

    def bounds(self) -> tuple[int, int]:
        """The first and last place it reads; (-1, -1) if it reads nothing."""
        read = self.places[self.places >= 0]
        return (int(read.min()), int(read.max())) if len(read) else (-1, -1)

    def counts(self) -> Tensor:
        """How many numbers each result reads."""
        return (self.places >= 0).sum(0)

    def inverse(self, sources: int, *others: "IndexMap") -> list["IndexMap"]:
        """For each of the sources the results that read it; then, for each other map, what it reads beside them."""
        at = self.places.flatten()
        keep = at >= 0
        order = torch.argsort(at[keep], stable=True)
        source = at[keep][order]
        rank = torch.arange(len(source)) - torch.searchsorted(source, source)
        results = torch.arange(self.width).expand(self.terms, -1)
        made = []
        for value in (results, *(other.places for other in others)):
            places = torch.full((int(rank.max()) + 1 if len(rank) else 1, sources), -1)
            places[rank, source] = value.flatten()[keep][order]
            made.append(IndexMap.of(places))
        return made


@dataclass(frozen=True)
class Gather:
    """What a "gather" node computes: the sum or maximum over the terms of its maps; with two arguments, of products."""

    kind: str  # "sum" or "max"
    maps: tuple[IndexMap, ...]  # one per argument

    @property
    def terms(self) -> int:
        return self.maps[0].terms

    @property
    def moves(self) -> bool:
        """Whether it only moves numbers."""
        return self.terms == 1 and len(self.maps) == 1

    def columns(self, low: int, high: int) -> "Gather":
        return Gather(self.kind, tuple(m.columns(low, high) for m in self.maps))

    def compute(self, args: list[Tensor]) -> Tensor:
        """The result with torch: `(…, sources)` each → `(…, width)`."""
        empty = 0.0 if self.kind == "sum" else -float("inf")
        product: Tensor | None = None
        for arg, index in zip(args, self.maps, strict=True):
            places = index.places.to(arg.device)
            read = torch.where(places >= 0, arg[..., places.clamp(min=0)], torch.full_like(arg[..., :1, None], empty))
            product = read if product is None else product * read
        assert product is not None
        return product.sum(-2) if self.kind == "sum" else product.amax(-2)
