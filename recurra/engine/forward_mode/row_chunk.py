"""The chunk of an influence of rows: elementwise cells, SnAp(1), eligibility traces. All of it is compiled.

Tables tell row_chunk.h where the rows of the program lie; memory is taken once.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from .chunk import Chunk, MatrixChunk
from .influence import CompiledInfluence
from .pattern import OWN, Block, keeps_all
from .row_places import RowPlaces
from .row_program import POOL, SCRATCH
from .structure import Root
from .tables import array, structure
from .words import CODE, NOWHERE, address

PLACE = "address step"
Phase = structure("Phase", "*words *ends count")
Link = structure("Link", "to from_", PLACE)
Factor = structure("Factor", "root", PLACE)
Use = structure("Use", "first_factor factors", PLACE)
Readout = structure("Readout", "root column")
BlockRow = structure("BlockRow", "units deep along_units gradient first_use uses first_kept")
Turned = structure("Turned", "from_ ld wide deep to")
Group = structure("Group", "width roots carried first_link links first_block blocks first_readout readouts")
KINDS = {"groups": Group, "links": Link, "factors": Factor, "uses": Use, "readouts": Readout, "blocks": BlockRow}
SOME = 32 << 10  # bytes of the rows of some steps and sequences, which share the first cache
PHASES = "before", "during", "after"
Table = structure(
    "Table",
    *(f"*{phase}_words *{phase}_ends {phase}_count" for phase in PHASES),
    "*regions *strides *maps batch some group_count outputs states kept_size",
    *(f"*{name}" for name in KINDS),
    "*turns turn_count *kept *c *first *delta *operand *turned *next",
)


def chunk_of(run: CompiledInfluence) -> Chunk | None:
    """The chunk of an influence; None for an approximation that leaves out parts of matrices: it goes step by step."""
    if not run.programs.sheets:
        return RowChunk(run)
    return MatrixChunk(run) if keeps_all(run.plan.blocks, run.plan.links) else None


class RowChunk(Chunk):
    """Every weight reaches its own unit alone."""

    memory_limit = 2 << 20  # bytes of its steps: they should stay in a cache between the passes

    def __init__(self, run: CompiledInfluence):
        self.structure, self.programs = run.plan.structure, run.programs
        groups: dict[tuple[Root, ...], list[Block]] = {}
        for block in run.plan.blocks:
            groups.setdefault(tuple(block.roots(OWN)), []).append(block)
        self.widest = max((sum(root.width for root in roots) for roots in groups), default=1)
        self.rows: dict[str, list[Any]] = {name: [] for name in KINDS}
        self.kept_places: list[int] = []
        for roots, blocks in groups.items():
            if roots:
                self._describe(list(roots), blocks)
        programs, region = run.programs, len(run.sequence_strides)  # one after those that a step has
        read = [row for name in ("links", "factors", "uses") for row in self.rows[name]]
        addresses = [row.address for row in read]
        fixed = {POOL, *programs.weight_region.values()}
        self.places = RowPlaces(programs.phases, programs.rooms, programs.size, addresses, region, fixed)
        for row in read:
            row.address = self.places(row.address)
        super().__init__(run)
        self.strides[SCRATCH] = self.places.size
        self.strides = torch.cat([self.strides, torch.tensor([self.places.kept_size])])
        self.kept_rows = self._zeros(self.length * self.batch, self.places.kept_size)
        self.cotangents = self._zeros(self.length * self.batch, self.structure.output_size)
        self._fill()

    def numbers_of_a_step(self) -> int:
        rows = self.places.kept_size if self.places.is_known else self.places.size
        return rows + self.structure.state_size + 2 * (self.structure.output_size + self.widest)

    def _scratch(self, items: int) -> Tensor:
        few = SOME // (self.places.size * self.dtype.itemsize + 1)
        self.some = max(8, min(few, 64)) if self.places.is_known else items
        return self._zeros(min(items, self.some), self.places.size)

    def _describe(self, roots: list[Root], blocks: list[Block]) -> None:
        """The tables of one group."""
        rows, programs, carried = self.rows, self.programs, [root for root in roots if root.carried]
        first = {name: len(found) for name, found in rows.items()}
        for old, new in ((old, new) for old in carried for new in roots):
            place = programs.link_row(new, old)
            if place[0] != NOWHERE:
                rows["links"].append(Link(roots.index(new), roots.index(old), *place))
        for column, root in self.structure.readouts:
            if root in roots:
                rows["readouts"].append(Readout(roots.index(root), column))
        places: dict[Any, int] = {}

        def factors_of(use: Any) -> tuple[Any, ...]:
            """What makes the cotangent of a product; products whose sum is read have the same."""
            found = ((r, node) for r, node in use.cotangent.rows.items() if r in roots)
            return tuple((roots.index(r), *programs.row(r.cell, node)) for r, node in found)

        order = {factors_of(use): n for n, use in reversed([*enumerate(use for block in blocks for use in block.uses)])}
        for block in sorted(
            blocks, key=lambda block: [order[factors_of(use)] for use in block.uses]
        ):  # shared ones together
            first_use, first_kept = len(rows["uses"]), len(self.kept_places)
            for use in block.uses:
                factors = factors_of(use)
                place = places.setdefault(factors, len(rows["factors"]))
                if place == len(rows["factors"]):
                    rows["factors"] += [Factor(*factor) for factor in factors]
                rows["uses"].append(Use(place, len(factors), *programs.operand(use)))
            self.kept_places += [programs.kept_at[block, root] for root in carried]
            sizes = block.units, block.deep, block.along_units, programs.gradient_at[block]
            rows["blocks"].append(BlockRow(*sizes, first_use, len(block.uses), first_kept))
        counts = [n for name in ("links", "blocks", "readouts") for n in (first[name], len(rows[name]) - first[name])]
        rows["groups"].append(Group(roots[0].width, len(roots), len(carried), *counts))

    def _fill(self) -> None:
        run, items, widest = self.run, self.length * self.batch, self.widest
        deepest = max((block.deep for block in run.plan.blocks), default=1)
        self.work = [self._zeros(items, widest), self._zeros(self.batch, widest), self._zeros(items, widest)]
        self.work += [self._zeros(items, deepest), self._zeros(widest, 16), torch.zeros_like(run.kept)]  # W ≤ 16
        table = self.table = Table()
        before, during, after = self.places.phases
        parts, self.phases = self._turn(before, during, after), []
        for name, part in zip(PHASES, parts, strict=True):
            words = torch.tensor([word for found in part for word in found], dtype=torch.int64)
            ends = torch.tensor([len(found) for found in part], dtype=torch.int64).cumsum(0)
            self.phases.append((words, ends))
            setattr(table, f"{name}_words", words.data_ptr())
            setattr(table, f"{name}_ends", ends.data_ptr())
            setattr(table, f"{name}_count", len(part))
        self.arrays = {name: array(kind, self.rows[name]) for name, kind in KINDS.items()}
        for name, found in self.arrays.items():
            setattr(table, name, ctypes.addressof(found))
        self.regions = (ctypes.c_void_p * len(self.strides))()  # one more than a step has: turned matrices
        self.kept_array = torch.tensor(self.kept_places, dtype=torch.int64)
        table.regions, table.strides, table.maps = ctypes.addressof(self.regions), *map(_at, (self.strides, run.maps))
        table.batch, table.some, table.group_count = self.batch, self.some, len(self.rows["groups"])
        table.outputs, table.states = self.structure.output_size, self.structure.state_size
        table.kept_size, table.kept = run.kept.shape[1], _at(self.kept_array)
        table.c, table.first, table.delta, table.operand, table.turned, table.next = map(_at, self.work)

    def _turn(self, *phases: list[list[int]]) -> list[list[list[int]]]:
        """The words with products by turned matrices: no weight changes in the loop."""
        region, size, turned, found = len(self.strides), 0, [], []
        for phase in phases:
            found.append([])
            for word in phase:
                if word[0] == CODE["PRODUCT"] and not word[7]:
                    _, y, v, matrix, ld, wide, deep, _ = word
                    turned.append(Turned(matrix, ld, wide, deep, address(region, size)))
                    word = [CODE["PRODUCT"], y, v, address(region, size), wide, wide, deep, 1]
                    size += -(-wide * deep // 16) * 16
                found[-1].append(word)
        self.turned, self.turns = self._zeros(size), array(Turned, turned)
        self.strides = torch.cat([self.strides, torch.zeros(1, dtype=torch.int64)])
        self.table.turns, self.table.turn_count = ctypes.addressof(self.turns), len(turned)
        return found

    def point(self) -> None:
        """Tell the table where memory lies that may have moved, and begin at the state of the run."""
        run, weights = self.run, self.run.plan.weights
        self.states[: self.batch] = run.state
        memory = [self.scratch, self.x, self.states, self.states[self.batch :], run.pool, self.cotangents, self.outputs]
        memory += [
            run.kept,
            run.gradient,
            *(weights.tensor(*key) for key in self.programs.weight_region),
            self.kept_rows,
            self.turned,
        ]
        self.regions[:] = list(map(Tensor.data_ptr, memory))

    def forward(self, x: Tensor) -> Tensor:
        self.point()
        self.items = len(x) * self.batch
        given = x.detach().to(self.dtype).contiguous()
        self.x[: self.items] = given.view(self.items, -1)
        self.run.library.row_chunk_turn(ctypes.byref(self.table))
        self.run.library.row_chunk_forward(ctypes.byref(self.table), ctypes.c_int64(self.items))
        return self.outputs[: self.items].view(len(x), self.batch, -1)

    def learn(self, cotangents: Tensor, goes_on: bool) -> dict[tuple[int, str], Tensor]:
        given = cotangents.reshape(self.items, -1).to(self.dtype).contiguous()
        self.run.gradient.zero_()
        flags = ctypes.c_int64(self.is_fresh), ctypes.c_int64(goes_on)
        self.run.library.row_chunk_backward(
            ctypes.byref(self.table), ctypes.c_int64(self.items), ctypes.c_void_p(given.data_ptr()), *flags
        )
        if goes_on:
            self.is_fresh = False
        self.run.state.copy_(self.states[: self.batch])
        memory, found = self.run.gradient[0, 0], {}
        for block in self.run.plan.blocks:
            at = self.programs.gradient_at[block]
            found[block] = memory[at : at + block.size].view(
                (block.deep, block.units) if block.along_units else (block.units, block.deep)
            )
            found[block] = found[block].mT if block.along_units else found[block]
        return self._by_tensor(found)


def _at(tensor: Tensor) -> int:
    return tensor.data_ptr()
