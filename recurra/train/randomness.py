"""Saving and restoring the state of all global random generators: torch, CUDA, Python, NumPy."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def capture() -> dict[str, Any]:
    """The state of torch's, Python's and, where it is imported, NumPy's generators, as plain values and tensors."""
    state: dict[str, Any] = {"torch": torch.get_rng_state(), "python": random.getstate()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = (
            str(name),
            [int(key) for key in keys],
            *(float(x) if i == 2 else int(x) for i, x in enumerate(rest)),
        )
    return state


def restore(state: dict[str, Any]) -> None:
    """Restore a captured state. Generators that are not in it are left alone."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(saved, device)
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])  # noqa: NPY002 — the global generator is what users draw from


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore all generators at the end of the block, so that validation does not change training."""
    state = capture()
    try:
        yield
    finally:
        restore(state)
