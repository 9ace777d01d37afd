"""What is held out to test on: a share drawn by a seed, or a file that stands beside the one to learn from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurra.errors import InputError

SHARE = 0.2


def sibling(path: Path) -> Path | None:
    """The test file that belongs to a training file by its name: X_TRAIN.ts and X_TEST.ts, train.txt and test.txt."""
    for learn, check in (("TRAIN", "TEST"), ("train", "test"), ("Train", "Test")):
        before, found, after = path.name.rpartition(learn)
        if found and (path.parent / (before + check + after)).is_file():
            return path.parent / (before + check + after)
    return None


def share(test: Any) -> float | None:
    """The share to hold out, or None where `test` is a file."""
    if test is None:
        return SHARE
    try:
        found = float(test)
    except (TypeError, ValueError):
        return None
    if not 0 <= found < 1:
        raise InputError("test", test, "a share from 0 to below 1, or a file")
    return found


def draw(
    count: int, part: float, seed: int, labels: Sequence[Any] | np.ndarray | None = None
) -> tuple[list[int], list[int]]:
    """Places to learn from and places to test on, each class in both where there are enough of it."""
    rng = np.random.default_rng(seed)
    if labels is None:
        groups = [np.arange(count)]
    else:
        _, which = np.unique(np.asarray(labels), return_inverse=True)
        groups = [np.flatnonzero(which == k) for k in range(which.max() + 1)]
    held: list[int] = []
    for group in groups:
        wanted = min(len(group) - 1, max(1, round(part * len(group)))) if part else 0
        held += rng.permutation(group)[:wanted].tolist()
    chosen = set(held)
    return [k for k in range(count) if k not in chosen], sorted(held)
