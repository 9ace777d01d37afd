"""Sequences as the compiled loops read them: several views of each, behind each other in one float32 array."""

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

_HOME = os.getpid()  # a forked child lacks OpenMP's threads and runs on one


class CSequences(ctypes.Structure):
    """`struct Sequences` of feature_banks.cpp."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("count", "views", "threads")),
        *((name, ctypes.c_void_p) for name in ("x", "starts", "lengths")),
    ]


@dataclass(frozen=True)
class Sequences:
    """n sequences, each (views, T) in float32."""

    items: Sequence[np.ndarray]

    def __len__(self) -> int:
        return len(self.items)

    @property
    def views(self) -> int:
        return self.items[0].shape[0]

    @cached_property
    def lengths(self) -> np.ndarray:
        return np.array([x.shape[1] for x in self.items], dtype=np.int64)

    @property
    def typical_length(self) -> int:
        return int(np.median(self.lengths))

    @cached_property
    def _packed(self) -> tuple[np.ndarray, np.ndarray]:
        starts = np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)
        return np.concatenate([np.ascontiguousarray(x, dtype=np.float32).ravel() for x in self.items]), starts

    def as_c(self) -> CSequences:
        """The argument of a compiled loop; its memory is that of this object."""
        x, starts = self._packed
        threads = torch.get_num_threads() if os.getpid() == _HOME else 1
        pointers = (array.ctypes.data for array in (x, starts, self.lengths))
        return CSequences(len(self), self.views, max(1, min(threads, len(self))), *pointers)

    def part(self, first: int, last: int) -> "Sequences":
        return Sequences(self.items[first:last])
