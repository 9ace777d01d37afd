"""Every random generator a training step may draw from, as plain numbers and tensors."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def capture() -> dict[str, Any]:
    """The state of torch's generators, Python's, and NumPy's where NumPy is in use."""
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
    """Back to a captured state; generators that are not in it stay as they are."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(saved, device)
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])  # noqa: NPY002 — the global generator is what users draw from


@contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever is drawn inside leaves no trace outside, so that how often one validates does not change training."""
    state = capture()
    try:
        yield
    finally:
        restore(state)
