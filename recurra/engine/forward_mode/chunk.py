"""Many steps of some sequences in one call, while no weight changes: the gradient and the influence of a whole chunk.

The steps run one after another in compiled code and leave their derivatives. From the cotangents of all outputs, one
recursion back through the chunk gives those of all products, and the gradient is a matrix product over its steps, plus
what the influence brings from before the chunk. The influence is advanced once per chunk: with C_k = ∂(last state) /
∂(state after step k), it is C_1 (∂s_1/∂s_0) times the old one plus Σ_k C_k δ_k ⊗ v_k, again products over all steps.

The numbers are those of step-by-step learning but for rounding. Memory does not grow with the sequence. With K steps
in a chunk, exact RTRL costs n² p / K + n p multiply-adds a step instead of n² p (the blocks of Schmidhuber, *A fixed
size storage O(n³) time complexity learning algorithm for fully recurrent continually running networks*, 1992).
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from . import words
from .influence import CompiledInfluence
from .pattern import OWN, Block
from .row_program import INPUT, NEW, POOL, SCRATCH, STATE
from .structure import Root, Use

OFFSET = (1 << words.REGION) - 1
LONGEST = 256


class Chunk:
    """Up to `length` steps of the sequences of `run`, whose state and influence it advances."""

    memory_limit = 8 << 20  # bytes of its derivatives: more steps save nothing, and would leave the caches

    def __init__(self, run: CompiledInfluence):
        self.run, self.batch, self.dtype = run, run.batch, run.dtype
        self.structure, self.programs = run.plan.structure, run.programs
        numbers = self.batch * self.numbers_of_a_step()
        self.length = max(2, min(LONGEST, self.memory_limit // (run.dtype.itemsize * max(1, numbers))))
        s, items = self.structure, self.length * self.batch
        self.scratch, self.x = self._scratch(items), self._zeros(items, s.cells[0].input_size)
        self.states = self._zeros(items + self.batch, s.state_size)
        self.outputs = self._zeros(items, s.output_size)
        self.strides = run.sequence_strides.clone()
        self.items = 0  # steps × batch of the chunk that ran last
        self.is_fresh = False  # whether the influence is zero

    def numbers_of_a_step(self) -> int:
        """Numbers that `forward` and `learn` make for each step of a sequence."""
        return self.run.programs.size

    def _scratch(self, items: int) -> Tensor:
        return self._zeros(items, self.run.programs.size)

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype)

    # ------------------------------------------------------------------------------------------ running

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (K, B, q) of the steps that read x (K, B, D), K ≤ length."""
        run, programs = self.run, self.programs
        self.items = len(x) * self.batch
        self.x[: self.items] = x.detach().reshape(self.items, -1)
        self.states[: self.batch] = run.state
        regions = [self.scratch, self.x, self.states, self.states[self.batch :], run.pool, run.cotangents, self.outputs]
        regions += [run.kept, run.gradient]
        for old, new in zip(run.old_sheets, run.new_sheets, strict=True):
            regions += [old, new]
        regions += [run.plan.weights.tensor(*key) for key in programs.weight_region]
        pointers = (ctypes.c_void_p * len(regions))(*(tensor.data_ptr() for tensor in regions))
        run.library.run(
            ctypes.c_void_p(programs.forward.data_ptr()),
            ctypes.c_int64(len(programs.forward)),
            pointers,
            ctypes.c_void_p(self.strides.data_ptr()),
            ctypes.c_void_p(run.maps.data_ptr()),
            ctypes.c_int64(self.items),
        )
        return self.outputs[: self.items].view(len(x), self.batch, -1)

    def learn(self, cotangents: Tensor, goes_on: bool) -> dict[tuple[int, str], Tensor]:
        """(cell, tensor) → the gradient of Σ cotangents · outputs, summed over steps and sequences.

        `cotangents` (K, B, q). `goes_on`: later steps will need the influence.
        """
        given = cotangents.reshape(self.items, -1).to(self.dtype)
        parts = self._gradients(given)
        if goes_on:
            self.advance()
            self.is_fresh = False
        self.run.state.copy_(self.states[self.items : self.items + self.batch])
        return self._by_tensor(parts)

    def _gradients(self, cotangents: Tensor) -> dict[Block, Tensor]:
        """block → gradient of its weights, (units, deep)."""
        raise NotImplementedError

    def advance(self) -> None:
        """Replace the influence before the chunk by that after it."""
        raise NotImplementedError

    def _by_tensor(self, parts: dict[Block, Tensor]) -> dict[tuple[int, str], Tensor]:
        found: dict[tuple[int, str], Tensor] = {}
        for block, part in parts.items():
            key = block.cell, block.weight
            if key not in found:
                found[key] = torch.zeros(self.run.plan.shapes.get(key, (block.size,)), dtype=self.dtype)
            to = block.of(found[key])
            to.add_((part.mT if block.along_units else part).view(to.shape) if block.deep > 1 else part.view(to.shape))
        return found

    # ------------------------------------------------------------------------------------------ rows of all steps

    def row(self, place: tuple[int, int], width: int) -> Tensor:
        """A row of the program in all steps, (K · B, width)."""
        at, step, item = place[0] & OFFSET, place[1], 0
        memory, item = self.memory(place[0] >> words.REGION)
        return memory.as_strided((self.items, width), (item, step), at + memory.storage_offset())

    def memory(self, region: int) -> tuple[Tensor, int]:
        """The memory of a region, and its stride from item to item."""
        own = {SCRATCH: self.scratch, INPUT: self.x, STATE: self.states, NEW: self.states[self.batch :]}
        if region in own:
            return own[region], own[region].shape[1]
        if region == POOL:
            return self.run.pool, 0
        key = next(key for key, number in self.programs.weight_region.items() if number == region)
        return self.run.plan.weights.tensor(*key).detach(), 0

    def operand(self, block: Block, use: Use) -> Tensor:
        return self.row(self.programs.operand(use), block.deep)

    def kept(self, block: Block, root: Root) -> Tensor:
        """The influence of a block on its own units, a view (B, units, deep)."""
        at = self.programs.kept_at[block, root]
        part = self.run.kept[:, at : at + block.size]
        if block.along_units:
            return part.unflatten(1, (block.deep, block.units)).mT
        return part.unflatten(1, (block.units, block.deep))

    def per_sequence(self, delta: Tensor, operand: Tensor) -> Tensor:
        """Σ over steps of δ ⊗ v for each sequence: (B, units, deep)."""
        delta, operand = (t.unflatten(0, (-1, self.batch)).transpose(0, 1) for t in (delta, operand))
        return torch.bmm(delta.mT, operand)


class MatrixChunk(Chunk):
    """Exact influence where whole layers mix."""

    def numbers_of_a_step(self) -> int:
        s = self.structure
        widest = max((use.cotangent.width for use in s.uses), default=0)
        return super().numbers_of_a_step() + s.state_size * (s.state_size + widest)

    def jacobians(self) -> Tensor:
        """∂(roots)/∂s of all steps, (K · B, rows, n)."""
        n, rows, run = self.structure.state_size, self.structure.row_count, self.run
        at = (self.programs.jacobian & OFFSET) + run.readouts * n
        return self.scratch.as_strided((self.items, rows, n), (self.scratch.shape[1], n, 1), at)

    def _gradients(self, cotangents: Tensor) -> dict[Block, Tensor]:
        s = self.structure
        c, first = self._zeros(self.items, s.row_count), self._zeros(self.batch, s.state_size)
        for column, root in s.readouts:
            c[:, root.at : root.at + root.width] += cotangents[:, column : column + root.width]
        jacobian = self.jacobians()
        sizes = (self.items // self.batch, self.batch, s.row_count, s.state_size)
        self.run.library.adjoint_matrices(
            *map(ctypes.c_int64, sizes), _at(jacobian), ctypes.c_int64(jacobian.stride(0)), _at(c), _at(first)
        )
        found: dict[Block, Tensor] = {}
        for block in self.run.plan.blocks:
            total = self._zeros(block.units, block.deep)
            for use in block.uses:
                total += self.delta(c[:, None], use)[:, 0].mT @ self.operand(block, use)
            for root in block.kept(OWN) if not self.is_fresh else ():
                total += (first[:, root.at : root.at + root.width, None] * self.kept(block, root)).sum(0)
            found[block] = total
        if not self.is_fresh:
            self._add_carried(first, found)
        return found

    def _add_carried(self, first: Tensor, found: dict[Block, Tensor]) -> None:
        """What the influence before the chunk gives: cotangents of the first state times the sheets."""
        for number, sheet in enumerate(self.programs.sheets):
            columns = rows_of(sheet)
            old = self.run.old_sheets[number][:, self.run.readouts :]
            row = torch.einsum("bn,bnp->p", first[:, columns], old)
            for block in sheet.blocks:
                found[block] += self._shaped(block, row[sheet.at[block] : sheet.at[block] + block.size])

    def _shaped(self, block: Block, flat: Tensor) -> Tensor:
        """Weights in the order of the influence, (…, size), as (…, units, deep)."""
        if block.along_units:
            return flat.unflatten(-1, (block.deep, block.units)).mT
        return flat.unflatten(-1, (block.units, block.deep))

    def delta(self, c: Tensor, use: Use) -> Tensor:
        """Cotangents of roots (K · B, Q, rows ≥ those carried) as those of a product, (K · B, Q, width)."""
        u, rows = use.cotangent, c.shape[-1]
        total = self._zeros(*c.shape[:2], u.width)
        for root, node in u.rows.items():
            if root.at < rows:
                row = self.row(self.programs.row(root.cell, node), u.width)
                total.addcmul_(c[..., root.at : root.at + root.width], row[:, None])
        found = self.programs.matrices.get(u)
        if found is not None:
            at, low, high = found
            shape, strides = (self.items, high - low, u.width), (self.scratch.shape[1], u.width, 1)
            matrix = self.scratch.as_strided(shape, strides, at & OFFSET)[:, : max(rows - low, 0)]
            total.baddbmm_(c[..., low : low + matrix.shape[1]], matrix)
        return total

    def advance(self) -> None:
        """The influence on the last state, through ∂(last state)/∂(state after each step)."""
        n, steps, jacobian = self.structure.state_size, self.items // self.batch, self.jacobians()
        jacobian = jacobian[:, :n].unflatten(0, (steps, self.batch))
        c = self._zeros(steps, self.batch, n, n)
        c[-1] = torch.eye(n, dtype=self.dtype)
        for k in range(steps - 1, 0, -1):
            torch.bmm(c[k], jacobian[k], out=c[k - 1])
        self.first, self.c = torch.bmm(c[0], jacobian[0]), c.flatten(0, 1)  # (B, n, n), (K · B, n, n)
        new_own = [(block, root, self._own(block, root)) for block in self.run.plan.blocks for root in block.kept(OWN)]
        for number, sheet in enumerate(self.programs.sheets):
            self._advance_sheet(number, sheet)
        for block, root, part in new_own:
            self.kept(block, root).copy_(part)
        del self.first, self.c

    def _own(self, block: Block, new: Root) -> Tensor:
        """(B, units, deep): the influence of a block on its own units of a root."""
        total = self._zeros(self.batch, block.units, block.deep)
        for use in block.uses:
            delta = self._zeros(self.items, block.units)
            for root, node in use.cotangent.rows.items():
                if root.carried:
                    row = self.row(self.programs.row(root.cell, node), block.units)
                    delta += _diagonal(self.c, new, root) * row
            total += self.per_sequence(delta, self.operand(block, use))
        for old in block.kept(OWN):
            total += _diagonal(self.first, new, old)[:, :, None] * self.kept(block, old)
        return total

    def _advance_sheet(self, number: int, sheet: Any) -> None:
        run, rows = self.run, rows_of(sheet)
        if not len(rows):  # weights that reach outputs alone
            return
        old, new = (sheets[number][:, run.readouts :] for sheets in (run.old_sheets, run.new_sheets))
        if self.is_fresh:
            new.zero_()
        else:
            first = self.first[:, rows[:, None], rows]
            for b in range(self.batch):
                torch.mm(first[b], old[b], out=new[b])
        c = self.c if len(rows) == self.c.shape[1] else self.c[:, rows]
        for block in sheet.blocks:
            to = self._shaped(block, new[:, :, sheet.at[block] : sheet.at[block] + block.size])  # (B, Q, units, deep)
            for use in block.uses:
                delta = self.delta(c, use).flatten(1)  # (K · B, Q · units)
                part = self.per_sequence(delta, self.operand(block, use))
                to.add_(part.unflatten(1, (len(rows), block.units)))
            for before in block.kept(OWN):
                through = self.first[:, rows, before.at : before.at + before.width]
                to.add_(through[..., None] * self.kept(block, before)[:, None])
        run.old_sheets[number], run.new_sheets[number] = run.new_sheets[number], run.old_sheets[number]


def rows_of(sheet: Any) -> Tensor:
    """The places in the state vector of the roots that a sheet carries."""
    places = [place for root in sheet.roots for place in range(root.at, root.at + root.width)]
    return torch.tensor(places, dtype=torch.int64)


def _diagonal(matrices: Tensor, new: Root, old: Root) -> Tensor:
    part = matrices[..., new.at : new.at + new.width, old.at : old.at + old.width]
    return part.diagonal(dim1=-2, dim2=-1)


def _at(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())
