"""The loop of KF-RTRL: many steps whose influence is kept as Kronecker products (kronecker.h)."""

import ctypes
from typing import Any

import torch

from .estimate_loop import EstimateLoop
from .online_loop import structure
from .pattern import Block
from .structure import Use
from .words import NOWHERE

FactorRow = structure("FactorRow", "root address step")
FactorUse = structure("FactorUse", "units along_units gradient column matrix low high first_row row_count")
FactorGroup = structure("FactorGroup", "operand operand_step deep width operand_at factor_at first_use use_count")
Kronecker = structure(
    "Kronecker",
    "states roots weights jacobian operand_size factor_size group_count *groups *uses *rows",
    "readout_count *readout_column *readout_root *readout_width *work widest *signs *state_part *weight_part *gradient",
)


class KroneckerLoop(EstimateLoop):
    """Of a run that writes ∂s'/∂s. Groups of uses are those that `KroneckerTracker` makes, in its order."""

    def _describe(self, size: int) -> None:
        run, s, table = self.run, self.run.plan.structure, Kronecker()
        groups, uses, rows, widest = [], [], [], 0
        operand_at = factor_at = 0
        for place, members in self._groups().items():
            first, width = len(uses), 0
            for block, use in members:
                uses.append(self._use(block, use, width, rows))
                width += block.units
            deep = members[0][0].deep
            groups.append(FactorGroup(*place[:2], deep, width, operand_at, factor_at, first, len(members)))
            operand_at, factor_at, widest = operand_at + deep, factor_at + s.state_size * width, max(widest, width)
        kinds = (FactorGroup, groups), (FactorUse, uses), (FactorRow, rows)
        self.tables = [(kind * max(len(found), 1))(*found) for kind, found in kinds]
        table.groups, table.uses, table.rows = map(ctypes.addressof, self.tables)
        table.states, table.roots, table.weights = s.state_size, s.row_count, size
        table.jacobian, table.group_count = run.programs.jacobian_row(0), len(groups)
        table.operand_size, table.factor_size, table.widest = operand_at, factor_at, widest
        self.work = torch.zeros(s.row_count + s.state_size + widest + s.state_size * widest, dtype=run.dtype)
        table.work, table.gradient = self.work.data_ptr(), self.block_gradient.data_ptr()
        self._describe_readouts(table)
        self.estimate, self.loop.kronecker = table, ctypes.addressof(table)

    def _groups(self) -> dict[tuple[int, int, int], list[tuple[Block, Use]]]:
        """Uses by the row that they are multiplied by: its address, stride and width."""
        found: dict[tuple[int, int, int], list[tuple[Block, Use]]] = {}
        for block in self.run.plan.blocks:
            for use in block.uses:
                address, step = self.run.programs.operand(use)
                found.setdefault((address, step, block.deep), []).append((block, use))
        return found

    def _use(self, block: Block, use: Use, column: int, rows: list[Any]) -> Any:
        programs, first = self.run.programs, len(rows)
        for root, node in use.cotangent.rows.items():
            rows.append(FactorRow(root.at, *programs.row(root.cell, node)))
        matrix = programs.matrices.get(use.cotangent, (NOWHERE, 0, 0))
        place = block.units, block.along_units, self.places[block], column
        return FactorUse(*place, *matrix, first, len(rows) - first)
