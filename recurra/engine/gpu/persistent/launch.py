"""Load, launch and cache a persistent kernel; properties of the card."""

import functools
import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ... import caches
from ...cpu import compiler
from ...ir.buffers import BufferRef, X
from ...on_device import on_device
from .. import select
from .codegen import KernelSource
from .tiling import Tiling


@dataclass
class PersistentLoop:
    """A persistent kernel, ready to be called."""

    rendered: KernelSource
    tiling: Tiling
    function: Any
    processors: int = 1  # that its programs may occupy
    as_written: bool = False  # without fused multiply-adds, see plan/exactness.py
    machine_code: Any = None  # for the device of the first call, pointers aligned to sixteen bytes

    summed_in = torch.float32  # dtype of sums over all steps, which are kept in registers

    def tiles(self, batch: int) -> int:
        return self.tiling.tiles(batch)

    def __call__(self, bound: Mapping[BufferRef, Tensor], steps: int, batch: int) -> None:
        tiles, device = self.tiles(batch), bound[X].device
        pointers = [bound[buffer] for buffer in self.rendered.arguments]
        if not pointers:  # the step, or its derivative, computes nothing
            return
        if device.type == "cpu":  # Triton's interpreter
            self.function[self.tiling.programs, tiles](*pointers, steps, batch, tiles)
            return
        grid = (self.tiling.programs, self.tiling.concurrent_tiles(batch, self.processors), 1)
        aligned = not any(address % 16 for address in map(Tensor.data_ptr, pointers))
        with on_device(device):
            try:
                self._launch(grid, [*pointers, steps, batch, tiles], aligned)
            except select.launch_errors() as error:
                if not select.is_refusal(error):
                    raise
                raise select.LaunchRefused(str(error)) from error

    def _launch(self, grid: tuple[int, int, int], arguments: list, aligned: bool) -> None:
        if self.machine_code is not None and aligned:  # skips Triton's look-up, which takes as long as a step
            self.machine_code[grid](*arguments)
            return
        found = self.function[grid](*arguments, **self._options)
        self.machine_code = found if aligned else None

    def compile(self, pointers: list[Tensor]) -> Any:
        """The machine code for pointers to such numbers, without a launch."""
        return self.function.warmup(*pointers, 2, 2, 2, grid=(1, 1, 1), **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        cooperative = not self.tiling.row_per_program
        return {"num_warps": self.tiling.warps, "launch_cooperative_grid": cooperative} | rounding(self.as_written)


def rounding(as_written: bool) -> dict[str, bool]:
    """Triton's option for kernels that must give a number the same bits wherever they compute it."""
    return {"enable_fp_fusion": False} if as_written else {}


@functools.cache
def processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes of shared memory a program may use."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # pyrefly: ignore  (its stubs)


@functools.lru_cache(maxsize=512)
def load_module(text: str) -> ModuleType:
    """Import generated source as a module, from a file: Triton reads the source of its functions."""
    name = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = compiler.folder() / f"{name}.py"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        compiler._write(path, text.encode())
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


caches.register("GPU modules", load_module.cache_clear, lambda: load_module.cache_info().currsize)
