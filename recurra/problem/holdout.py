"""Train/test splits: a random fraction, or a test file that belongs to the training file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recurra.errors import InputError

DEFAULT_FRACTION = 0.2


def matching_test_file(path: Path) -> Path | None:
    """The test file that belongs to a training file by name: X_TRAIN.ts and X_TEST.ts, train.txt and test.txt."""
    for train, test in (("TRAIN", "TEST"), ("train", "test"), ("Train", "Test")):
        before, found, after = path.name.rpartition(train)
        if found and (path.parent / (before + test + after)).is_file():
            return path.parent / (before + test + after)
    return None


def holdout_fraction(test: Any) -> float | None:
    """The fraction to hold out, or None where `test` is a file."""
    if test is None:
        return DEFAULT_FRACTION
    try:
        fraction = float(test)
    except (TypeError, ValueError):
        return None
    if not 0 <= fraction < 1:
        raise InputError("test", test, "a fraction from 0 to below 1, or a file")
    return fraction


def random_split(
    count: int, fraction: float, seed: int, labels: Sequence[Any] | np.ndarray | None = None
) -> tuple[list[int], list[int]]:
    """Indices to train on and to test on, stratified by `labels`; a class with one member is not held out."""
    rng = np.random.default_rng(seed)
    if labels is None:
        groups = [np.arange(count)]
    else:
        _, codes = np.unique(np.asarray(labels), return_inverse=True)
        groups = [np.flatnonzero(codes == k) for k in range(codes.max() + 1)]
    test: list[int] = []
    for group in groups:
        size = min(len(group) - 1, max(1, round(fraction * len(group)))) if fraction else 0
        test += rng.permutation(group)[:size].tolist()
    chosen = set(test)
    return [k for k in range(count) if k not in chosen], sorted(test)
