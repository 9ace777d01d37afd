"""The choice between one persistent kernel for all steps and stepwise execution.

A persistent kernel is faster where the weights stay on the chip: its programs exchange values without a launch in
between. It needs all of its programs resident at once, and the tensor-core instruction that Gluon emits.
"""

import contextlib
from collections.abc import Iterator

import torch

from .persistent.tiling import COOPERATIVE, Tiling

STEPWISE = "stepwise"
LOOP = "loop"  # as chosen, but no scan over time
OLDEST = (8, 0)  # compute capability from which on the tensor-core instruction of the persistent kernel exists
# Where weights are read from memory at each step anyway: rows from which on cuBLAS is faster, measured on an H200.
CUBLAS_ROWS = {"forward": 64, "backward": 1}

_forced = {"mode": ""}


class LaunchRefused(RuntimeError):
    """The card does not take the persistent kernel; nothing has run."""


def launch_errors() -> tuple[type[Exception], ...]:
    """The errors Triton raises when a kernel cannot be launched."""
    from triton.runtime.errors import OutOfResources

    return RuntimeError, OutOfResources


def is_refusal(error: Exception) -> bool:
    """Whether the grid does not fit on the card as a whole, or a program needs more than a multiprocessor has."""
    return not isinstance(error, RuntimeError) or "cooperative launch" in str(error)


@contextlib.contextmanager
def only(mode: str) -> Iterator[None]:
    """Force a mode for tests and benchmarks, where possible: "row_per_program", "cooperative", "stepwise" or "loop"."""
    before = _forced["mode"]
    _forced["mode"] = mode
    try:
        yield
    finally:
        _forced["mode"] = before


def forced() -> str:
    """The mode in force; empty: recurra chooses."""
    return _forced["mode"]


def why_stepwise(shape: Tiling | None, batch: int, device: torch.device, direction: str) -> str:
    """The reason to run stepwise a loop whose persistent kernel would have this tiling; empty if there is none."""
    if forced() == STEPWISE:
        return "it was asked for"
    if shape is None:
        return "the card has too few multiprocessors for one kernel of so wide a layer"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        return "the card is too old for one kernel over all steps"
    if shape.weights == "memory" and batch >= CUBLAS_ROWS[direction] and forced() != COOPERATIVE:
        return "the weights are too many for the chip, and cuBLAS is faster"
    return ""
