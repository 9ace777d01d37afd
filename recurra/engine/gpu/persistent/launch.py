"""One kernel for all steps, ready to be called, and what it asks of the card."""

import contextlib
import functools
import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from ...cpu import compiler
from ...ir.buffers import BufferRef, X
from .. import select
from .codegen import Rendered
from .tiling import Tiling


@dataclass
class Loop:
    """A rendered kernel, ready to be called."""

    rendered: Rendered
    tiling: Tiling
    function: Any
    machine_code: Any = None  # of the card it was first called on, for pointers at multiples of sixteen bytes

    summed_in = torch.float32  # where sums over all steps add up: here in registers

    def tiles(self, batch: int) -> int:
        return self.tiling.tiles(batch)

    def __call__(self, bound: Mapping[BufferRef, Tensor], steps: int, batch: int) -> None:
        tiles, device = self.tiles(batch), bound[X].device
        pointers = [bound[buffer] for buffer in self.rendered.arguments]
        if not pointers:  # a cell whose step, or whose derivative, is nothing
            return
        if device.type == "cpu":  # Triton's interpreter
            self.function[1, tiles](*pointers, steps, batch, tiles)
            return
        grid = (self.tiling.programs, self.tiling.abreast(batch, processors(device)), 1)
        aligned = not any(address % 16 for address in map(Tensor.data_ptr, pointers))
        there = torch.cuda.current_device() == device.index
        with contextlib.nullcontext() if there else torch.cuda.device(device):
            try:
                self._launch(grid, [*pointers, steps, batch, tiles], aligned)
            except select.launch_errors() as error:
                if not select.is_refusal(error):
                    raise
                raise select.Refused(str(error)) from error

    def _launch(self, grid: tuple[int, int, int], arguments: list, aligned: bool) -> None:
        if self.machine_code is not None and aligned:  # past Triton's own look-up, which takes as long as a step
            self.machine_code[grid](*arguments)
            return
        at_once = not self.tiling.alone
        found = self.function[grid](*arguments, num_warps=self.tiling.warps, launch_cooperative_grid=at_once)
        self.machine_code = found if aligned else None


@functools.cache
def processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def shared_memory(device: torch.device) -> int:
    """Bytes a program may have."""
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # pyrefly: ignore  (its stubs)


@functools.cache
def loaded(text: str) -> ModuleType:
    """The text as a module: Triton reads its functions from a file."""
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
