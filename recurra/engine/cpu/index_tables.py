"""Index maps as the tables that `IndexMap` of kernels/loop.h describes, and rows of constants."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ir.index_map import IndexMap

SCATTERED, NOTHING, REPEATED = -1, -2, -3  # as in kernels/loop.h


class IndexTables:
    """All maps of a program: an array of `IndexMap`, and the memory it points to."""

    def __init__(self, maps: Iterable[IndexMap], vector: int):
        rows, self._alive = [], []
        for index in maps:
            places = _by_vector(index, vector)
            runs, grids = _runs(places, index.width), _grids(places, index.width)
            self._alive += [places, runs, grids]
            rows.append([places.data_ptr(), runs.data_ptr(), grids.data_ptr(), index.terms, places.shape[1]])
        self._table = torch.tensor(rows or [[0]], dtype=torch.int64)

    @property
    def address(self) -> int:
        return self._table.data_ptr()


class LiteralTables:
    """All rows of constants of a program: an array of their addresses."""

    def __init__(self, rows: Iterable[tuple[float, ...]], dtype: torch.dtype):
        self._alive = [torch.tensor(row, dtype=dtype) for row in rows]
        self._table = torch.tensor([*(row.data_ptr() for row in self._alive), 0], dtype=torch.int64)

    @property
    def address(self) -> int:
        return self._table.data_ptr()


def _by_vector(index: IndexMap, vector: int) -> Tensor:
    """(terms, vectors, vector), int32; the last vector is filled up with -1."""
    padded = F.pad(index.places, (0, -index.width % vector), value=-1)
    return padded.reshape(index.terms, -1, vector).to(torch.int32).contiguous()


def _past(places: Tensor, width: int) -> Tensor:
    """(vectors, vector): the lanes after the last result."""
    return (torch.arange(places[0].numel()) >= width).reshape(places.shape[1:])


def _grids(places: Tensor, width: int) -> Tensor:
    """(vectors, 3): `first, by_term, by_lane` where all places of a vector lie on such a grid, else -1, 0, 0."""
    first = places[:1, :, :1]
    by_term = places[1:2, :, :1] - first if len(places) > 1 else torch.zeros_like(first)
    by_lane = torch.where(_past(places, width)[:, 1:2], 0, places[:1, :, 1:2] - first)
    terms = torch.arange(len(places), dtype=torch.int32)[:, None, None]
    lanes = torch.arange(places.shape[-1], dtype=torch.int32)
    expected = first + terms * by_term + lanes * by_lane
    fits = (((places == expected) & (places >= 0)) | _past(places, width)).all(-1).all(0)
    grid = torch.stack([first[0, :, 0], by_term[0, :, 0], by_lane[0, :, 0]], dim=-1)
    return torch.where(fits[:, None], grid, torch.tensor([-1, 0, 0])).to(torch.int32).contiguous()


def _runs(places: Tensor, width: int) -> Tensor:
    """(terms, vectors): the first place where a vector reads consecutive ones, else a mark."""
    first, lane = places[..., :1], torch.arange(places.shape[-1], dtype=torch.int32)
    past = _past(places, width)
    reads = first[..., 0] >= 0
    runs = torch.where((places < 0).all(-1), NOTHING, SCATTERED)
    runs = torch.where(((places == first) | past).all(-1) & reads, REPEATED - first[..., 0], runs)
    runs = torch.where(((places == first + lane) | past).all(-1) & reads, first[..., 0], runs)
    return runs.to(torch.int32).contiguous()
