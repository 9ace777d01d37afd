"""The influence of all weights on all states of some sequences, advanced step by step: what RTRL and SnAp-n carry."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...cell import Cell
from ..cell_cache import cache_of
from ..cpu.compiler import BuildError
from ..ir.values import Unsupported
from ..traced_step import clean_context
from ..user_code import Untraceable
from . import words
from .pattern import MATRIX, OWN, START, Block, blocks_of, influence_numbers, multiplications, reach, state_links
from .program import Programs, Sheet
from .structure import StackStructure

REAL = {torch.float32: "float", torch.float64: "double"}


class NotCompiled(Exception):
    """Why the forward-mode step of a network is not compiled."""


class Weights:
    """The tensors that a stack of cells reads: parameters as they are, and values derived from them."""

    def __init__(self, cells: Sequence[Cell]):
        self.cells = cells
        self.parameters = [dict(cell.named_parameters()) for cell in cells]
        found = (p.dtype for own in self.parameters for p in own.values())
        self.dtype = next(found, None)  # of all that programs read; conditions are derived as booleans
        self.derived: dict[tuple[int, str], Tensor] = {}
        self.steps: list[Any] = []  # lowered steps, once they are known

    def learned(self, k: int, name: str) -> bool:
        parameter = self.parameters[k].get(name)
        if parameter is not None:
            return parameter.requires_grad
        return name.startswith("=") or name not in dict(self.cells[k].named_buffers())

    def is_direct(self, k: int, name: str) -> bool:
        parameter = self.parameters[k].get(name)
        return parameter is not None and parameter.is_contiguous()

    def is_constant(self, k: int, name: str) -> bool:
        """Whether a derived value depends on nothing that is learned."""
        return not self.is_direct(k, name) and not self.derived[k, name].requires_grad

    def refresh(self) -> None:
        """Compute what is derived from the parameters, with its graph."""
        for k, (cell, step) in enumerate(zip(self.cells, self.steps, strict=True)):
            wanted = [name for name in step.hoisted if not self.is_direct(k, name)]
            if not wanted:
                continue
            with torch.enable_grad():
                given = cell.weights()
                values = step.prologue(*(given[name] for name in step.weights))
            found = dict(zip(step.hoisted, values, strict=True))
            self.derived |= {(k, name): found[name].to(self.dtype).contiguous() for name in wanted}

    def tensor(self, k: int, name: str) -> Tensor:
        parameter = self.parameters[k].get(name)
        return parameter if parameter is not None and parameter.is_contiguous() else self.derived[k, name]


class InfluencePlan:
    """What is carried, and what it costs, before memory is taken. Raises `NotCompiled` with the reason."""

    def __init__(self, cells: Sequence[Cell], depth: str | None, steps: int | None, local: bool = False):
        self.cells, self.weights = cells, Weights(cells)
        _check(cells)
        try:
            with clean_context():
                self.structure = StackStructure(cells, depth, self.weights.learned, local)
            self.weights.steps = self.structure.steps
            self.weights.refresh()
            self.shapes = {
                (k, n): tuple(shape) for k, s in enumerate(self.structure.steps) for n, shape in s.hoisted.items()
            }
            uses = self.structure.uses
            uses[:] = [use for use in uses if not self.weights.is_constant(use.cell, use.block.weight)]
            self.blocks = blocks_of(self.structure, self.shapes, _starts(cells))
            self.links = state_links(self.structure)
            reach(self.blocks, self.links, steps)
        except (Unsupported, Untraceable) as reason:
            raise NotCompiled(str(reason)) from reason

    @property
    def numbers(self) -> int:
        """Numbers of the influence of one sequence."""
        return influence_numbers(self.blocks)

    @property
    def multiplications(self) -> int:
        """Multiply-adds a step to advance it."""
        return multiplications(self.blocks, self.links)

    def kinds(self) -> dict[str, int]:
        """How many weights are kept as one number per unit, and how many as a matrix over all units."""
        found = {OWN: 0, MATRIX: 0}
        for block in self.blocks:
            found[MATRIX if block.roots(MATRIX) else OWN] += block.size
        return found


def _check(cells: Sequence[Cell]) -> None:
    like = next((p for cell in cells for p in cell.parameters()), None)
    if like is None or like.dtype not in REAL or like.device.type != "cpu":
        what = "a cell without parameters" if like is None else f"{like.dtype} on {like.device.type}"
        raise NotCompiled(f"{what}: the compiled step takes float32 and float64 on the CPU")
    if any(p.dtype != like.dtype for cell in cells for p in cell.parameters()):
        raise NotCompiled("parameters of several dtypes")
    if any(cache_of(cell).hooked for cell in cells):
        raise NotCompiled("a hook on a part of the cell must be called at every step")


def _starts(cells: Sequence[Cell]) -> dict[tuple[int, str], str]:
    """(cell, state) → the learned parameter that is its first value."""
    found = {}
    for k, cell in enumerate(cells):
        parameters = dict(cell.named_parameters())
        for state, start in cell.starts.items():
            if isinstance(start, str) and start in parameters and parameters[start].requires_grad:  # no buffer
                found[k, state] = start
    return found


class CompiledInfluence:
    """The states of `batch` sequences and their influence, with the programs that advance both.

    `forward(x)` runs one step; `learn(cotangents)` then advances the influence, and gives the gradient of
    Σ cotangents · outputs, for each of the `readouts` rows of cotangents.
    """

    def __init__(
        self,
        plan: InfluencePlan,
        batch: int,
        readouts: int = 1,
        whole: bool = False,
        programs: type[Programs] = Programs,
    ):
        self.plan, self.batch, self.readouts = plan, batch, readouts
        like = next(p for cell in plan.cells for p in cell.parameters())
        self.dtype = like.dtype
        try:
            with clean_context():
                self.programs = programs(plan.structure, plan.blocks, plan.links, plan.shapes, readouts, whole)
            self.library = words.library(REAL[like.dtype])
        except (Unsupported, BuildError) as reason:
            raise NotCompiled(str(reason)) from reason
        self.whole = {key for key, shape in plan.shapes.items() if _is_one_block(plan, key, shape)}
        self._allocate()

    def _allocate(self) -> None:
        programs, s, b = self.programs, self.plan.structure, self.batch

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(b, *shape, dtype=self.dtype)

        self.scratch, self.state, self.new = zeros(programs.size), zeros(s.state_size), zeros(s.state_size)
        self.pool = torch.tensor(programs.pool, dtype=self.dtype)
        self.outputs, self.cotangents = zeros(s.output_size), zeros(self.readouts, s.output_size)
        self.kept, self.gradient = zeros(programs.kept_size), zeros(self.readouts, programs.gradient_size)
        self.old_sheets = [zeros(self.readouts + sheet.rows, sheet.columns) for sheet in programs.sheets]
        self.new_sheets = [torch.empty_like(sheet) for sheet in self.old_sheets]
        self.maps = torch.cat(programs.maps) if programs.maps else torch.zeros(1, dtype=torch.int32)
        self.sequence_strides = torch.tensor(self._strides(), dtype=torch.int64)
        count = len(self.sequence_strides)
        self.pointers = (ctypes.c_void_p * count)()
        self.jacobian = self._jacobian()

    def _strides(self) -> list[int]:
        s = self.plan.structure
        own = [self.scratch.shape[1], s.cells[0].input_size, s.state_size, s.state_size, 0]
        own += [self.readouts * s.output_size, s.output_size, self.kept.shape[1], self.gradient[0].numel()]
        sheets = [n for sheet in self.old_sheets for n in (sheet[0].numel(),) * 2]
        return [*own, *sheets, *[0] * len(self.programs.weight_region)]

    def _jacobian(self) -> Tensor:
        """∂s'/∂s with the rows of the readouts first, (B, readouts + rows, n), where a product by BLAS needs it."""
        if not self.programs.uses_matrix:
            return self.scratch[:, :0]
        return self._rows_at(self.programs.jacobian, self.readouts + self.plan.structure.row_count)

    def _rows_at(self, place: int, rows: int) -> Tensor:
        """Rows of the width of the state vector in the scratch, (B, rows, n)."""
        n, at = self.plan.structure.state_size, place & ((1 << words.REGION) - 1)
        return self.scratch.as_strided((self.batch, rows, n), (self.scratch.shape[1], n, 1), at)

    def reset(self, state: Tensor) -> None:
        """Start sequences from this state, (B, n)."""
        self.plan.weights.refresh()
        self.state.copy_(state)
        self.kept.zero_()
        for sheet in self.old_sheets:
            sheet.zero_()
        for block in self.plan.blocks:
            for root in block.first:
                kind = block.kinds.get(root)
                if kind == OWN:
                    at = self.programs.kept_at[block, root]
                    self.kept[:, at : at + block.size] = 1.0
                elif kind == MATRIX:
                    self._part(block, root).copy_(torch.eye(root.width, dtype=self.dtype))

    def _part(self, block: Block, root: Any) -> Tensor:
        """The influence of a block on a root, as a part of a sheet: (B, units of the root, weights)."""
        number = self.programs.sheet_of(block)
        assert number is not None
        sheet = self.programs.sheets[number]
        row, column = self.readouts + sheet.row(root), sheet.at[block]
        return self.old_sheets[number][:, row : row + root.width, column : column + block.size]

    # ------------------------------------------------------------------------------------------ running

    def _run(self, *parts: Tensor) -> None:
        own = [self.scratch, self.input, self.state, self.new, self.pool, self.cotangents, self.outputs]
        own += [self.kept, self.gradient]
        for old, new in zip(self.old_sheets, self.new_sheets, strict=True):
            own += [old, new]
        pointers, first = self.pointers, len(own)
        for i, tensor in enumerate(own):
            pointers[i] = tensor.data_ptr()
        for i, (k, name) in enumerate(self.programs.weight_region):
            pointers[first + i] = self.plan.weights.tensor(k, name).data_ptr()
        strides, maps = ctypes.c_void_p(self.sequence_strides.data_ptr()), ctypes.c_void_p(self.maps.data_ptr())
        for part in parts:
            program = ctypes.c_void_p(part.data_ptr())
            self.library.run(program, ctypes.c_int64(len(part)), pointers, strides, maps, ctypes.c_int64(self.batch))

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (B, q) of the step that reads x (B, D). The new state is in force after `learn`."""
        self.input = x.detach().to(self.dtype).contiguous()
        self._run(self.programs.forward)
        return self.outputs

    def learn(self, cotangents: Tensor | None) -> None:
        """Advance the influence; `gradients` then gives those of Σ cotangents · outputs. (B, readouts, q)."""
        if cotangents is None:
            self.cotangents.zero_()
        else:
            self.cotangents.copy_(cotangents)
        if self.old_sheets:
            self._run(self.programs.back)
            self._products()
            self._run(self.programs.advance)
        else:
            self._run(self.programs.back, self.programs.advance)
        self.state, self.new = self.new, self.state
        self.old_sheets, self.new_sheets = self.new_sheets, self.old_sheets

    def _products(self) -> None:
        """∂s'/∂s times the influence, and the readouts' part of the gradient, by BLAS."""
        for number, sheet in enumerate(self.programs.sheets):
            old, new = self.old_sheets[number], self.new_sheets[number]
            dense = self.programs.runs(self.programs.dense_columns(sheet))
            if not dense:
                new.zero_()
                continue
            for left_rows, first, last in self._row_ranges(number, sheet):
                for run_number, run in enumerate(dense):
                    a, b = run[0].at, run[-1].at + run[-1].width
                    row = self.readouts + sheet.row(run[0])
                    left, right, to = left_rows[:, :, a:b], old[:, row : row + b - a], new[:, first:last]
                    self._multiply(left, right, to, add=run_number > 0)

    def _multiply(self, left: Tensor, right: Tensor, to: Tensor, add: bool) -> None:
        """`left` times `right` for every sequence. One thread uses all of a vector, of which BLAS may leave half."""
        by_blas = torch.get_num_threads() > 1 or any(t.stride(2) != 1 for t in (left, right, to))
        for own, a, b in zip(to, left, right, strict=True):
            if by_blas:
                own.addmm_(a, b) if add else torch.mm(a, b, out=own)
                continue
            places = [n for t in (own, a, b) for n in (ctypes.c_void_p(t.data_ptr()), ctypes.c_int64(t.stride(0)))]
            sizes = len(a), len(b), b.shape[1], add
            self.library.sheet_product(*places, *map(ctypes.c_int64, sizes))

    def _row_ranges(self, number: int, sheet: Sheet) -> list[tuple[Tensor, int, int]]:
        """Rows of ∂s'/∂s, and the rows (first, last) of the sheet that they give. Those of the readouts come first."""
        n, jacobian, at = self.readouts, self.jacobian, self.readouts
        found = [(0, n, 0, n)] if number == 0 else []
        for run in self.programs.runs(sheet.roots):
            low, width = n + run[0].at, run[-1].at + run[-1].width - run[0].at
            if found and found[-1][1] == low and found[-1][3] == at:
                found[-1] = (found[-1][0], low + width, found[-1][2], at + width)
            else:
                found.append((low, low + width, at, at + width))
            at += width
        ranges = [(jacobian[:, low:high], first, last) for low, high, first, last in found]
        return ranges if number == 0 else [(self._rows_at(self.programs.back_state[number], n), 0, n), *ranges]

    # ------------------------------------------------------------------------------------------ results

    def block_gradient(self, block: Block) -> Tensor:
        """(B, readouts, weights of the block), in the order of the influence."""
        total: Tensor | None = None
        at = self.programs.gradient_at.get(block)
        if at is not None:
            total = self.gradient[:, :, at : at + block.size]
        number = self.programs.sheet_of(block)
        if number is not None:  # `learn` has made the new sheets the old ones
            column = self.programs.sheets[number].at[block]
            part = self.old_sheets[number][:, : self.readouts, column : column + block.size]
            total = part if total is None else total + part
        assert total is not None
        return total

    def gradients(self) -> dict[tuple[int, str], Tensor]:
        """(cell, tensor) → its gradient, summed over sequences, for one readout row."""
        found: dict[tuple[int, str], Tensor] = {}
        for block in self.plan.blocks:
            part = self.block_gradient(block)
            part = part[0, 0] if self.batch == 1 else part.sum(0)[0]
            key = block.cell, block.weight
            shape = self.plan.shapes.get(key, (block.size,))
            if key in self.whole:
                found[key] = part.view(shape)
                continue
            if key not in found:
                found[key] = torch.zeros(shape, dtype=self.dtype)
            to = block.of(found[key])
            to.add_(part.view(to.shape))
        return found

    def influence_of(self, block: Block, root: Any) -> Tensor:
        """∂(root)/∂(weights of the block), in full: (B, units, weights). For inspection and tests."""
        kind = block.kinds.get(root)
        if kind == MATRIX:
            return self._part(block, root).clone()
        full = torch.zeros(self.batch, root.width, block.size, dtype=self.dtype)
        if kind == OWN:
            at = self.programs.kept_at[block, root]
            values = self.kept[:, at : at + block.size]
            unit = torch.arange(block.units)
            unit = unit.repeat(block.deep) if block.along_units else unit.repeat_interleave(block.deep)
            full[:, unit, torch.arange(block.size)] = values
        return full

    def state_dict(self) -> dict[str, Any]:
        sheets = [sheet.clone() for sheet in self.old_sheets]
        return {"state": self.state.clone(), "kept": self.kept.clone(), "sheets": sheets}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.plan.weights.refresh()
        self.state.copy_(state["state"])
        self.kept.copy_(state["kept"])
        for own, saved in zip(self.old_sheets, state["sheets"], strict=True):
            own.copy_(saved)


def _is_one_block(plan: InfluencePlan, key: tuple[int, str], shape: tuple[int, ...]) -> bool:
    """Whether a tensor is one block, in the order of its memory: its gradient needs no copy."""
    blocks = [block for block in plan.blocks if (block.cell, block.weight) == key]
    return len(blocks) == 1 and blocks[0].size == torch.Size(shape).numel()


__all__ = ["START", "CompiledInfluence", "InfluencePlan", "NotCompiled"]
