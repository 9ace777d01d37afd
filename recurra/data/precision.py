"""Reading in float64."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def double_precision() -> Iterator[None]:
    """Readers return float64 inside: float64 is torch's default dtype there."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
