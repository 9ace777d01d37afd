"""The loops of a plan on a GPU: one kernel for all steps or stepwise, rendered and compiled when first used."""

import functools
from typing import Any

import torch

from ..ir.lowering import Unsupported
from ..plan.program import Plan
from ..plan.schedule import Schedule, schedule
from . import select
from .inputs_ahead import InputsAhead, take_out
from .persistent.codegen import render
from .persistent.kernel_builder import KernelSpec
from .persistent.launch import PersistentLoop, load_module, processors, shared_memory
from .persistent.tiling import COLUMNS, ROW_PER_PROGRAM, Tiling, depth_of, recurrent, step_tiling, tiling
from .row_sums import with_early_row_sums
from .stepwise import codegen
from .stepwise.run import StepwiseLoop


class GpuLoops:
    """Chooses, renders and keeps the loops of one plan."""

    def __init__(self, plan: Plan, dtype: torch.dtype):
        self.plan, self.dtype, self.trains = plan, dtype, plan.backward is not None
        self.known: dict[Any, PersistentLoop | StepwiseLoop] = {}  # by request
        self.rendered: dict[Any, PersistentLoop] = {}  # by what the text depends on: the tiles of a batch, not its size
        self.stepwise: dict[tuple[bool, str], StepwiseLoop] = {}
        self.single_steps: dict[Any, PersistentLoop | None] = {}
        self.beside: dict[Any, PersistentLoop | None] = {}
        self.turns: dict[tuple[int, torch.device], tuple[int, int]] = {}
        self.refused: set[tuple[bool, int, torch.device]] = set()  # loops whose grid does not fit on the card at once

    @functools.cached_property
    def inputs_ahead(self) -> InputsAhead:
        """What is computed from x and masks before a loop forward, and the program of that loop."""
        return take_out(self.plan.forward)

    @functools.cached_property
    def forward_schedule(self) -> Schedule:
        return schedule(with_early_row_sums(self.inputs_ahead.program, is_gradient=False))

    @functools.cached_property
    def backward_schedule(self) -> Schedule:
        assert self.plan.backward is not None
        return schedule(with_early_row_sums(self.plan.backward, is_gradient=True))

    def tiling(self, backward: bool, batch: int, device: torch.device, share: int = 1) -> Tiling | None:
        """The tiling for a batch, on all multiprocessors or one in `share`."""
        chosen = self.backward_schedule if backward else self.forward_schedule
        size, mode = self.dtype.itemsize, select.forced()
        if device.type != "cpu":
            return tiling(chosen, size, batch, processors(device) // share, shared_memory(device), mode)
        row_per_program = tiling(chosen, size, batch, 1, 0, ROW_PER_PROGRAM) if mode == ROW_PER_PROGRAM else None
        wide = max([8, *(group.width for group in chosen.groups)])
        matrices, block = recurrent(chosen), next((m.bands[1] for m in recurrent(chosen)), 0)
        if block in COLUMNS and all(depth_of(m, block) < m.deep for m in matrices) and not chosen.rowsums:
            return Tiling(block, -(-wide // block), 16, 1, "registers")  # no program waits for another one
        return row_per_program or Tiling(1 << (wide - 1).bit_length(), 1, 16, 1, "registers")

    def find(self, backward: bool, batch: int, ragged: bool, device: torch.device) -> PersistentLoop | StepwiseLoop:
        asked = (backward, batch, ragged, precision_of(self.dtype), device, select.forced())
        if asked not in self.known:
            self.known[asked] = self._chosen_loop(*asked[:-1])
        return self.known[asked]

    def takes_turns(self, batch: int, device: torch.device) -> bool:
        """Whether some tiles of a batch start when others have ended, if one kernel runs all steps forward."""
        at_once, rows = self.turn(batch, device)
        return at_once > 0 and at_once * rows < batch

    def turn(self, batch: int, device: torch.device) -> tuple[int, int]:
        """The tiles of a batch that run at once forward, and the rows of a tile; 0 if no kernel runs all steps."""
        if (batch, device) not in self.turns:
            shape = None if self.plan.gathers else self.tiling(False, batch, device)
            available = 1 if device.type == "cpu" else processors(device)
            self.turns[batch, device] = (shape.concurrent_tiles(batch, available), shape.rows) if shape else (0, 0)
        return self.turns[batch, device]

    def why_stepwise(self, backward: bool, batch: int, device: torch.device) -> str:
        """What speaks for a loop step by step; empty: one kernel runs all steps."""
        if (backward, batch, device) in self.refused:
            return "the card did not take all programs of one kernel at once"
        if self.plan.gathers:
            return "its step reads numbers of a row in another order"
        shape = self.tiling(backward, batch, device)
        reason = select.why_stepwise(shape, batch, device, "backward" if backward else "forward")
        if reason or shape is None:
            return reason
        try:
            self._one_kernel(backward, shape, False, precision_of(self.dtype), device)
        except Unsupported as missing:
            return f"one kernel for all steps does not take {missing}"
        return ""

    def way(self, batch: int, device: torch.device) -> str:
        """How a loop forward runs, in a few words."""
        by_kernel = isinstance(self.find(False, batch, False, device), PersistentLoop)
        return "one kernel runs all steps" if by_kernel else "products and one kernel at each step"

    def _chosen_loop(
        self, backward: bool, batch: int, ragged: bool, precision: str, device: torch.device
    ) -> PersistentLoop | StepwiseLoop:
        if self.why_stepwise(backward, batch, device):
            return self._stepwise_loop(backward, precision)
        shape = self.tiling(backward, batch, device)
        assert shape is not None
        return self._one_kernel(backward, shape, ragged, precision, device)

    def beside_another(self, backward: bool, batch: int, device: torch.device) -> PersistentLoop | None:
        """A loop on half of the card, so that two run at once; None if one kernel cannot run all steps there."""
        key = backward, batch, device, precision_of(self.dtype), select.forced()
        if key not in self.beside:
            self.beside[key] = self._new_beside_another(backward, batch, device)
        return self.beside[key]

    def _new_beside_another(self, backward: bool, batch: int, device: torch.device) -> PersistentLoop | None:
        shape = self.tiling(backward, batch, device, share=2)
        if shape is None or self.why_stepwise(backward, batch, device):
            return None
        if select.why_stepwise(shape, batch, device, "backward" if backward else "forward"):
            return None
        return self._one_kernel(backward, shape, False, precision_of(self.dtype), device, 2)

    def _one_kernel(self, *key: Any) -> PersistentLoop:
        if key not in self.rendered:
            self.rendered[key] = self._new_loop(*key)
        return self.rendered[key]

    def _new_loop(
        self, backward: bool, shape: Tiling, ragged: bool, precision: str, device: torch.device, share: int = 1
    ) -> PersistentLoop:
        chosen = self.backward_schedule if backward else self.forward_schedule
        bits, interpreted = 8 * self.dtype.itemsize, device.type == "cpu"
        by_warp = not interpreted and torch.cuda.get_device_capability(device) >= (9, 0)
        kind = KernelSpec(backward, ragged, self.trains, interpreted, by_warp, bits, precision)
        rendered = render(chosen, self.plan, shape, kind)
        available = 1 if interpreted else processors(device) // share
        return PersistentLoop(rendered, shape, load_module(rendered.text).kernel, available, self.plan.compares_numbers)

    def single_step(self, device: torch.device) -> PersistentLoop | None:
        """One kernel for a single step without gradients; None if its programs would wait for each other."""
        key = precision_of(self.dtype), device
        if key not in self.single_steps:
            self.single_steps[key] = self._new_step_loop(*key)
        return self.single_steps[key]

    def _new_step_loop(self, precision: str, device: torch.device) -> PersistentLoop | None:
        if self.plan.gathers:
            return None
        chosen = schedule(with_early_row_sums(self.plan.forward, is_gradient=False))
        shape = step_tiling(chosen, processors(device))
        by_warp = torch.cuda.get_device_capability(device) >= (9, 0)
        spec = KernelSpec(False, False, False, False, by_warp, 8 * self.dtype.itemsize, precision, single_step=True)
        try:
            rendered = render(chosen, self.plan, shape, spec)
        except Unsupported:
            return None
        if rendered.exchanged:
            return None
        kernel, exact = load_module(rendered.text).kernel, self.plan.compares_numbers
        return PersistentLoop(rendered, shape, kernel, processors(device), exact)

    def _stepwise_loop(self, backward: bool, precision: str) -> StepwiseLoop:
        if (backward, precision) not in self.stepwise:
            chosen = self.backward_schedule if backward else self.forward_schedule
            made = codegen.render(chosen, self.plan, backward, self.trains, self.dtype)
            self.stepwise[backward, precision] = StepwiseLoop(made, load_module(made.text), backward, self.dtype)
        return self.stepwise[backward, precision]

    def refuse(self, *loop: Any) -> None:
        """From now on, this loop runs step by step."""
        self.refused.add(loop)
        self.known = {asked: known for asked, known in self.known.items() if (*asked[:2], asked[4]) != loop}


def precision_of(dtype: torch.dtype) -> str:
    """How 32-bit numbers are multiplied, following torch's setting: as TF32, or exactly, in three products."""
    return "x3" if dtype == torch.float32 and not torch.backends.cuda.matmul.allow_tf32 else "tf32"
