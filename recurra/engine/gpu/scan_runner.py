"""Runs plans that have no other kernels on a GPU: scans over time of cells that read rows in another order."""

import functools

import torch

from ..ir.values import Unsupported
from ..plan.program import Plan
from .runner import INDEX_LIMIT, GpuExecutor


class ScanExecutor(GpuExecutor):
    """A plan that runs as a scan over time, whatever the number of steps."""

    def __init__(self, plan: Plan, dtype: torch.dtype, key: str = ""):
        super().__init__(plan, dtype, key)
        if self.scan is None:
            raise Unsupported(self.why_no_scan)

    def scans(self, steps: int) -> bool:
        """Always: there is no loop."""
        return True

    def _obstacle(self, batch: int, device: torch.device) -> str:
        return "" if batch * self._widest < INDEX_LIMIT else "a step has too many numbers"

    @functools.cached_property
    def _widest(self) -> int:
        return max(buffer.width for buffer in self.plan.forward.buffers.values())
