"""Which of two ways a loop goes on a card: one kernel for all steps, or products and kernels step by step.

One kernel is faster where the weights stay on the chip, for its programs hand numbers to each other without leaving
it. It needs all its programs at once, and tensor cores that Gluon can name.
"""

import contextlib
from collections.abc import Iterator

import torch

from .persistent.tiling import Tiling

OLDEST = (8, 0)  # the compute capability from which on the kernel's tensor-core instruction exists
# Where weights come from memory at each step anyway: from so many rows on, a library's products are faster. On an H200.
ROWS_WORTH_A_LIBRARY = {"forward": 64, "backward": 1}

_forced = {"tier": ""}


class Refused(RuntimeError):
    """The card does not take the one kernel; nothing has run."""


def launch_errors() -> tuple[type[Exception], ...]:
    """What Triton raises when a kernel cannot be launched."""
    from triton.runtime.errors import OutOfResources

    return RuntimeError, OutOfResources


def is_refusal(error: Exception) -> bool:
    """Whether the programs do not all fit on what the card has free, or one of them wants more than there is."""
    return not isinstance(error, RuntimeError) or "cooperative launch" in str(error)


@contextlib.contextmanager
def only(tier: str) -> Iterator[None]:
    """For tests and measurements: every loop by programs "alone" or "together", or "by steps", where it is possible."""
    before = _forced["tier"]
    _forced["tier"] = tier
    try:
        yield
    finally:
        _forced["tier"] = before


def forced() -> str:
    return _forced["tier"]


def why_by_steps(shape: Tiling | None, batch: int, device: torch.device, direction: str) -> str:
    """Why a loop for which one kernel would have this shape runs step by step; empty if it does not."""
    if forced() == "by steps":
        return "it was asked for"
    if shape is None:
        return "the card has too few multiprocessors for one kernel of so wide a layer"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST:
        return "the card is too old for one kernel over all steps"
    if shape.weights == "memory" and batch >= ROWS_WORTH_A_LIBRARY[direction] and forced() != "together":
        return "the weights are too many for the chip, and a library's products are faster"
    return ""
