"""The loop of `online_loop.py` where whole layers mix: exact RTRL with an update after every step.

The influence that a step needs is that before a chunk, and what the steps of the chunk have added: each keeps its own
derivatives, made by the weights that it had. A gradient costs (steps of the chunk so far + n) p multiply-adds. After a
chunk, the influence is advanced by products over all of its steps (chunk.py).
"""

import ctypes
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from . import words
from .chunk import OFFSET, MatrixChunk, rows_of
from .influence import CompiledInfluence
from .online_loop import LinearHead, OnlineLoop
from .pattern import OWN, Block
from .structure import Cotangent
from .tables import array, structure

ITEMS = "*p item step"
Delta = structure("Delta", "width first_row row_count *matrix matrix_item low high first_use use_count")
DeltaRow = structure("DeltaRow", "root", ITEMS)
Operand = structure("Operand", ITEMS, "units deep along_units at")
Kept = structure("Kept", "*p sequence root units deep along_units at")
SheetRows = structure("SheetRows", "*p sequence columns rows *places at")
ChunkTable = structure(
    "ChunkTable",
    "roots states scratch_size *scratch *x *state *gradient gradient_size *jacobian jacobian_item",
    "*cotangents *first *delta *row widest *deltas delta_count *rows *operands *kept kept_count *sheets sheet_count",
    "readout_count *readout_column *readout_root *readout_width",
)


class ChunkLoop(OnlineLoop):
    """Steps of a chunk as they come, in any number of calls."""

    def __init__(self, run: CompiledInfluence, parameters: Mapping[tuple[int, str], Tensor], head: LinearHead):
        self.chunk = MatrixChunk(run)
        # Each step reads the influence once and half a chunk of products; advancing it costs n² p.
        self.length = max(2, min(self.chunk.length, round(1.4 * run.plan.structure.state_size)))
        self.at, self.is_fresh = 0, False
        self.places, size = {}, 0
        for sheet in run.programs.sheets:
            self.places |= {block: size + column for block, column in sheet.at.items()}
            size += sheet.columns
        for block in run.plan.blocks:
            if block not in self.places:
                self.places[block], size = size, size + block.size
        self.block_gradient = torch.zeros(1, size, dtype=run.dtype)
        super().__init__(run, parameters, head)
        self._describe()

    def gradient_places(self) -> tuple[Tensor, dict[Block, int]]:
        return self.block_gradient, self.places

    # ------------------------------------------------------------------------------------------ tables for C++

    def _describe(self) -> None:
        run, chunk, s = self.run, self.chunk, self.run.plan.structure
        uses: dict[Cotangent, list[tuple[Block, Any]]] = {}
        for block in run.plan.blocks:
            for use in block.uses:
                uses.setdefault(use.cotangent, []).append((block, use))
        rows, operands, deltas = [], [], []
        for cotangent, pairs in uses.items():
            first_row, first_use = len(rows), len(operands)
            for root, node in cotangent.rows.items():
                rows.append(DeltaRow(root.at, *self._items(run.programs.row(root.cell, node))))
            for block, use in pairs:
                place = self._items(run.programs.operand(use))
                operands.append(Operand(*place, block.units, block.deep, block.along_units, self.places[block]))
            matrix = self._matrix(cotangent)
            counts = len(rows) - first_row, *matrix, first_use, len(pairs)
            deltas.append(Delta(cotangent.width, first_row, *counts))
        items = self.length * run.batch
        widest = max([u.width for u in uses] + [block.deep for block in run.plan.blocks])
        sizes = (items, s.row_count), (run.batch, s.state_size), (items, widest), (items, widest)
        self.work = [torch.zeros(size, dtype=run.dtype) for size in sizes]
        self.sheet_places = [rows_of(sheet) for sheet in run.programs.sheets]
        self.readouts = [
            torch.tensor(column, dtype=torch.int64)
            for column in zip(*((column, root.at, root.width) for column, root in s.readouts), strict=True)
        ]
        chunk.items = items
        jacobian = chunk.jacobians()
        table = ChunkTable(s.row_count, s.state_size, run.programs.size)
        table.scratch, table.x, table.state = (t.data_ptr() for t in (chunk.scratch, chunk.x, chunk.states))
        table.gradient, table.gradient_size = self.block_gradient.data_ptr(), self.block_gradient.numel()
        table.jacobian, table.jacobian_item = jacobian.data_ptr(), run.programs.size
        table.cotangents, table.first, table.delta, table.row = (t.data_ptr() for t in self.work)
        table.widest, table.delta_count, table.readout_count = widest, len(deltas), len(s.readouts)
        table.readout_column, table.readout_root, table.readout_width = (t.data_ptr() for t in self.readouts)
        kept = self._kept()
        pairs_of_kind = (DeltaRow, rows), (Operand, operands), (Delta, deltas), (Kept, kept)
        self.arrays = [array(kind, found) for kind, found in pairs_of_kind]
        table.rows, table.operands, table.deltas, table.kept = map(ctypes.addressof, self.arrays)
        table.kept_count, table.sheet_count = len(kept), len(run.programs.sheets)
        self.table_of_chunk, self.loop.chunk = table, ctypes.addressof(table)

    def _items(self, place: tuple[int, int]) -> tuple[int, int, int]:
        """A row of the program in all steps: address, stride from item to item, stride."""
        memory, item = self.chunk.memory(place[0] >> words.REGION)
        return memory.data_ptr() + (place[0] & OFFSET) * memory.itemsize, item, place[1]

    def _matrix(self, cotangent: Cotangent) -> tuple[Any, int, int, int]:
        found = self.run.programs.matrices.get(cotangent)
        if found is None:
            return None, 0, 0, 0
        address, low, high = found
        scratch = self.chunk.scratch
        return scratch.data_ptr() + (address & OFFSET) * scratch.itemsize, self.run.programs.size, low, high

    def _kept(self) -> list[Any]:
        run, found = self.run, []
        for block in run.plan.blocks:
            for root in block.kept(OWN):
                p = run.kept.data_ptr() + run.programs.kept_at[block, root] * run.dtype.itemsize
                shape = block.units, block.deep, block.along_units, self.places[block]
                found.append(Kept(p, run.kept.shape[1], root.at, *shape))
        return found

    def _sheets(self) -> Any:
        """The influence before the chunk."""
        run, found, at = self.run, [], 0
        for sheet, old, places in zip(run.programs.sheets, run.old_sheets, self.sheet_places, strict=True):
            p = old.data_ptr() + run.readouts * sheet.columns * run.dtype.itemsize
            found.append(SheetRows(p, old[0].numel(), sheet.columns, len(places), places.data_ptr(), at))
            at += sheet.columns
        return array(SheetRows, found)

    # ------------------------------------------------------------------------------------------ running

    def restart(self, is_fresh: bool) -> None:
        """Begin a chunk at the state of the run. `is_fresh`: its influence is zero."""
        self.at, self.is_fresh = 0, is_fresh
        self.chunk.states[: self.run.batch] = self.run.state

    def take(self, x: Tensor, targets: Tensor, counts: Tensor) -> float:
        batch, total, done, updates = self.run.batch, 0.0, 0, 0
        factors = self.loop.factors or 0  # none where no target counts
        while done < len(x):
            count = min(self.length - self.at, len(x) - done)
            piece = slice(done, done + count)
            sheets = self._sheets()
            self.table_of_chunk.sheets = ctypes.addressof(sheets)
            self.loop.at, self.loop.fresh = self.at, self.is_fresh
            self.loop.factors = factors + 16 * updates  # two doubles each
            total += self.run_steps(x[piece], targets[piece], counts[piece])
            updates += int(counts[piece].any(1).sum())
            done, self.at = done + count, self.at + count
            self.run.state.copy_(self.chunk.states[self.at * batch : (self.at + 1) * batch])
            if self.at == self.length:
                self.finish()
        return total

    def finish(self) -> None:
        """Advance the influence over the steps of the chunk; the next chunk begins."""
        if self.at:
            self.chunk.items, self.chunk.is_fresh = self.at * self.run.batch, self.is_fresh
            self.chunk.advance()
            self.restart(False)

    def state_dict(self) -> dict[str, Any]:
        """What the steps of an open chunk have left."""
        chunk, items = self.chunk, self.at * self.run.batch
        kept = {
            "scratch": chunk.scratch[:items],
            "x": chunk.x[:items],
            "states": chunk.states[: items + self.run.batch],
        }
        return {"at": self.at, "is_fresh": self.is_fresh} | {name: part.clone() for name, part in kept.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at, self.is_fresh = state["at"], state["is_fresh"]
        for name in ("scratch", "x", "states"):
            getattr(self.chunk, name)[: len(state[name])] = state[name]
