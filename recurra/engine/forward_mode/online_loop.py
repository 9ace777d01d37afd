"""A stream whose weights change after every step, in one compiled loop: forward, head, loss, influence and update.

The loop writes into the parameters and into the moments of their optimiser; after a call both are those that a loop in
Python would leave, but for rounding. Influences of rows (elementwise cells, SnAp(1), eligibility traces) are advanced
at every step, others once per chunk (online_chunk.py).
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .influence import CompiledInfluence
from .pattern import Block
from .program import Programs
from .row_chunk import RowChunk
from .row_program import INPUT
from .tables import structure

KINDS = ("sgd", "adam", "rmsprop")
LOSSES = ("squared error", "cross-entropy")


@dataclass
class LinearHead:
    """Outputs `V h + b`, or h itself without `weight`; errors come back to the units through `feedback`.

    With `decay`, the feedback takes the updates of the weight, and loses this part of itself after each.
    """

    width: int
    outputs: int
    weight: Tensor | None = None
    bias: Tensor | None = None
    feedback: Tensor | None = None
    decay: float | None = None


@dataclass
class UpdateRule:
    """What an optimiser does with a gradient. `factors` (steps that count, 2): of the step, and of the root moment."""

    kind: str
    clip: float
    factors: np.ndarray
    decay: float
    second_decay: float
    epsilon: float
    moments: list[tuple[int | None, int | None]]  # of each parameter: their addresses


HEAD = "head_width head_outputs *weight *bias *feedback *weight_gradient *bias_gradient"
RULE = "kind =clip *factors =decay =second_decay =epsilon"
Parameter = structure("Parameter", "size *value *gradient *first *second source skips")
READ, FUSED, IDLE = range(3)  # sources of a gradient: memory, a word of `advance`, none
Part = structure("Part", "from_ sequence_stride *to outer inner outer_stride inner_stride")
Loop = structure(
    "Loop",
    "*forward forward_length *back back_length *advance advance_length *regions *strides *maps",
    "steps batch inputs loss *x *targets *counts *scores",
    HEAD,
    RULE,
    "parameter_count part_count *parameters *parts *collected collected_size *gradient gradient_batch",
    "*chunk at fresh *estimate *kronecker adds_up",
    "*weight_before *adapts =adapt_keep *fused",
)


class OnlineLoop:
    """The loop of an influence. `parameters`: (cell, weight of its blocks) → the parameter, without the head."""

    def __init__(self, run: CompiledInfluence, parameters: Mapping[tuple[int, str], Tensor], head: LinearHead):
        self.run, self.head = run, head
        heads = [p for p in (head.weight, head.bias) if p is not None and p.requires_grad]
        self.parameters, self.keys = [*parameters.values(), *heads], list(parameters)
        self.gradients = self._gradients({id(p): key for key, p in parameters.items()})
        self.table = (Parameter * len(self.parameters))()
        self.loop, self.regions = Loop(), (ctypes.c_void_p * len(run.sequence_strides))()
        self.scores = torch.empty(run.batch, head.outputs, dtype=run.dtype)
        for name in ("learn_steps", "learn_heads", "learn_call"):
            getattr(run.library, name).restype = ctypes.c_double
        self._fill()

    def gradient_places(self) -> tuple[Tensor, dict[Block, int]]:
        """The memory (sequences, numbers) in which a step leaves its gradient, and where that of each block begins."""
        return self.run.gradient[:, 0], self.run.programs.gradient_at

    def _gradients(self, keys: Mapping[int, tuple[int, str]]) -> list[Tensor]:
        """The memory of the gradients of all parameters: that of a block, where it is in the order of the parameter."""
        (memory, places), parts = self.gradient_places(), []
        direct = self.run.whole if len(memory) == 1 else set()
        collected = [p for p in self.parameters if id(p) in keys and keys[id(p)] not in direct]
        self.collected = torch.zeros(sum(p.numel() for p in collected), dtype=self.run.dtype)
        pieces = self.collected.split([p.numel() for p in collected])
        found = {keys[id(p)]: piece for p, piece in zip(collected, pieces, strict=True)}
        for block in self.run.plan.blocks:
            key, at = (block.cell, block.weight), places[block]
            if key in direct:
                found[key] = memory[0, at : at + block.size]
            else:
                units, deep = (block.units, block.unit_stride), (block.deep, block.deep_stride)
                (outer, far), (inner, near) = (deep, units) if block.along_units else (units, deep)
                to = found[key].data_ptr() + block.start * self.run.dtype.itemsize
                parts.append(Part(at, memory.shape[1], to, outer, inner, far, near))
        self.parts, self.memory = (Part * len(parts))(*parts), memory
        return [found[keys[id(p)]] if id(p) in keys else torch.zeros_like(p) for p in self.parameters]

    def _fill(self) -> None:
        """What stays from call to call."""
        run, loop, head = self.run, self.loop, self.head
        for name in ("forward", "back", "advance"):
            words = getattr(run.programs, name)
            setattr(loop, name, words.data_ptr())
            setattr(loop, f"{name}_length", len(words))
        loop.regions, loop.strides = ctypes.addressof(self.regions), run.sequence_strides.data_ptr()
        loop.maps, loop.batch, loop.inputs = run.maps.data_ptr(), run.batch, int(run.sequence_strides[INPUT])
        loop.scores, loop.head_width, loop.head_outputs = self.scores.data_ptr(), head.width, head.outputs
        gradient_of = {id(p): g.data_ptr() for p, g in zip(self.parameters, self.gradients, strict=True)}
        loop.weight_gradient, loop.bias_gradient = (gradient_of.get(id(p)) for p in (head.weight, head.bias))
        if head.decay is not None:
            assert head.weight is not None
            self.weight_before = torch.empty_like(head.weight)
            loop.weight_before, loop.adapt_keep = self.weight_before.data_ptr(), 1 - head.decay
        loop.parameter_count, loop.part_count = len(self.table), len(self.parts)
        loop.parameters, loop.parts = ctypes.addressof(self.table), ctypes.addressof(self.parts)
        loop.collected, loop.collected_size = self.collected.data_ptr(), self.collected.numel()
        loop.gradient, loop.gradient_batch = self.memory.data_ptr(), len(self.memory)
        for row, gradient in zip(self.table, self.gradients, strict=True):
            row.size, row.gradient = gradient.numel(), gradient.data_ptr()
        places = self._fused()
        if places is not None:
            self.fused = (ctypes.c_int64 * len(places))(*places)
            loop.fused = ctypes.addressof(self.fused)

    def _fused(self) -> list[int] | None:
        """(parameter, offset) of each word of `advance`, if these give gradients in the order of the parameters."""
        programs, blocks = self.run.programs, self.run.plan.blocks
        if type(programs) is not Programs or programs.sheets or self.run.batch > 1:
            return None
        for key, parameter, row in zip(self.keys, self.parameters, self.table, strict=False):
            own = sorted((b for b in blocks if (b.cell, b.weight) == key), key=lambda block: block.start)
            ends = [0, *(block.start + block.size for block in own)]
            row.source = FUSED if own else IDLE
            if own and (ends != [*(b.start for b in own), parameter.numel()] or not all(b.is_contiguous for b in own)):
                return None
        numbers = {key: number for number, key in enumerate(self.keys)}
        return [n for block in blocks for n in (numbers[block.cell, block.weight], block.start)]

    def learn(self, x: Tensor, targets: Tensor, counts: Tensor, loss: str, rule: UpdateRule) -> float:
        """Learn from x (T, B, D), all contiguous; the sum of the losses. `counts` (T, B): whether a target counts."""
        self._point_at_head(loss)
        self.loop.adapts = None if self.head.decay is None else self.loop.feedback
        apply_rule(self.loop, rule, self.table, self.parameters)
        total = self.take(x, targets, counts)
        torch.autograd.graph.increment_version(self.parameters)
        return total

    def _point_at_head(self, loss: str) -> None:
        loop, head = self.loop, self.head
        loop.loss = LOSSES.index(loss)
        loop.weight, loop.bias, loop.feedback = map(_address, (head.weight, head.bias, head.feedback))

    def read_outputs(self, outputs: Tensor, targets: Tensor, counts: Tensor, loss: str) -> tuple[float, Tensor]:
        """The sum of the losses of outputs (K, B, H), and what they send back; the gradient of the head adds up."""
        self._point_at_head(loss)
        loop, cotangents = self.loop, torch.empty_like(outputs)
        loop.steps, loop.targets, loop.counts = len(outputs), targets.data_ptr(), counts.data_ptr()
        loop.adds_up = 1
        total = self.run.library.learn_heads(
            ctypes.byref(loop), *(ctypes.c_void_p(t.data_ptr()) for t in (outputs, cotangents))
        )
        loop.adds_up = 0
        return total, cotangents

    def learn_call(
        self,
        chunk: RowChunk,
        x: Tensor,
        targets: Tensor,
        counts: Tensor,
        loss: str,
        scale: float,
        goes_on: bool,
        rule: UpdateRule | None,
    ) -> float:
        """Sum of the losses of x (T, B, D); leaves `scale` times its gradient, and updates the weights by the rule."""
        self._point_at_head(loss)
        chunk.point()
        loop = self.loop
        loop.steps, loop.x, loop.targets, loop.counts = len(x), x.data_ptr(), targets.data_ptr(), counts.data_ptr()
        loop.adds_up = 1
        if rule is not None:
            apply_rule(loop, rule, self.table, self.parameters)
        flags = (ctypes.c_int64(n) for n in (chunk.length, chunk.is_fresh, goes_on))
        total = self.run.library.learn_call(
            ctypes.byref(loop),
            ctypes.byref(chunk.table),
            *flags,
            ctypes.c_double(scale),
            ctypes.c_int64(rule is not None),
        )
        loop.adds_up, chunk.is_fresh = 0, False
        self.run.state.copy_(chunk.states[: self.run.batch])
        if rule is not None:
            torch.autograd.graph.increment_version(self.parameters)
        return total

    def gradient_of(self, parameter: Tensor) -> Tensor:
        """The memory of a gradient, in the shape of its parameter."""
        found = next(g for g, p in zip(self.gradients, self.parameters, strict=True) if p is parameter)
        return found.view(parameter.shape)

    def take(self, x: Tensor, targets: Tensor, counts: Tensor) -> float:
        """Run all steps."""
        total = self.run_steps(x, targets, counts)
        if len(x) % 2:
            self.run.state, self.run.new = self.run.new, self.run.state
        return total

    def run_steps(self, x: Tensor, targets: Tensor, counts: Tensor) -> float:
        run, loop = self.run, self.loop
        memory = [run.scratch, x, run.state, run.new, run.pool, run.cotangents, run.outputs, run.kept, run.gradient]
        memory += [sheet for pair in zip(run.old_sheets, run.new_sheets, strict=True) for sheet in pair]
        memory += [run.plan.weights.tensor(*key) for key in run.programs.weight_region]
        for i, tensor in enumerate(memory):
            self.regions[i] = tensor.data_ptr()
        loop.steps, loop.x, loop.targets, loop.counts = len(x), x.data_ptr(), targets.data_ptr(), counts.data_ptr()
        return run.library.learn_steps(ctypes.byref(loop))


def apply_rule(loop: Any, rule: UpdateRule, table: Any, parameters: list[Tensor]) -> None:
    """Tell a loop its rule, and its table of parameters where values and moments lie."""
    loop.kind, loop.clip, loop.factors = KINDS.index(rule.kind), rule.clip, rule.factors.ctypes.data
    loop.decay, loop.second_decay, loop.epsilon = rule.decay, rule.second_decay, rule.epsilon
    for row, value, (first, second) in zip(table, map(Tensor.data_ptr, parameters), rule.moments, strict=True):
        row.value, row.first, row.second = value, first, second


def update_once(library: ctypes.CDLL, rule: UpdateRule, parameters: list[Tensor]) -> None:
    """One update of parameters from their `grad`, all contiguous and of one dtype."""
    loop, table = Loop(), (Parameter * len(parameters))()
    apply_rule(loop, rule, table, parameters)
    for row, parameter in zip(table, parameters, strict=True):
        assert parameter.grad is not None
        row.size, row.gradient = parameter.numel(), parameter.grad.data_ptr()
    loop.parameters, loop.parameter_count = ctypes.addressof(table), len(table)
    library.update_once(ctypes.byref(loop))
    torch.autograd.graph.increment_version(parameters)


def _address(tensor: Tensor | None) -> Any:
    return None if tensor is None else tensor.data_ptr()
