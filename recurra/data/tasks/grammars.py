"""Reber grammars: predict the next symbol of strings from a finite automaton."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from ..sequences import IGNORE, Batch
from . import scores
from .base import CanonicalTask, check_sizes, one_hot, register, unpadded_batch

SYMBOLS = ("B", "T", "S", "X", "P", "V", "E")
Edges = list[dict[str, int]]

#: per node: allowed symbol → next node (Reber 1967); the last node is the end
REBER: Edges = [
    {"B": 1},
    {"T": 2, "P": 3},
    {"S": 2, "X": 4},
    {"T": 3, "V": 5},
    {"X": 3, "S": 6},
    {"P": 4, "V": 6},
    {"E": 7},
    {},
]


def embedded(inner: Edges) -> Edges:
    """The embedded grammar: B, T or P, a string of the inner grammar, the same T or P, E."""
    size = len(inner)
    upper = [{symbol: node + 2 for symbol, node in edges.items()} for edges in inner]
    lower = [{symbol: node + 2 + size for symbol, node in edges.items()} for edges in inner]
    last = 2 + 2 * size
    upper[-1], lower[-1] = {"T": last}, {"P": last}
    return [{"B": 1}, {"T": 2, "P": 2 + size}, *upper, *lower, {"E": last + 1}, {}]


def continual(inner: Edges) -> Edges:
    """The endless grammar: at the end of a string the next begins."""
    last = len(inner) - 1
    return [{symbol: 0 if node == last else node for symbol, node in edges.items()} for edges in inner[:-1]]


@dataclass(frozen=True)
class Automaton:
    """A grammar as a table: `following[node, symbol]` is the next node, or -1 where the symbol is not allowed."""

    edges: tuple[tuple[tuple[str, int], ...], ...]

    @classmethod
    def of(cls, edges: Edges) -> "Automaton":
        return cls(tuple(tuple(node.items()) for node in edges))

    @cached_property
    def following(self) -> Tensor:
        table = torch.full((len(self.edges), len(SYMBOLS)), -1)
        for node, edges in enumerate(self.edges):
            for symbol, target in edges:
                table[node, SYMBOLS.index(symbol)] = target
        return table

    def walk(self, count: int, random: torch.Generator, steps: int | None = None) -> Tensor:
        """(T, count) random symbols, uniform over the allowed ones, -1 after the end; `steps` is the limit."""
        allowed = (self.following >= 0).double()
        node, symbols = torch.zeros(count, dtype=torch.int64), []
        while steps is None or len(symbols) < steps:
            open_ends = allowed[node].sum(dim=1) > 0
            if not bool(open_ends.any()):
                break
            weights = torch.where(open_ends[:, None], allowed[node], 1.0)
            symbol = torch.multinomial(weights, 1, generator=random)[:, 0]
            symbols.append(torch.where(open_ends, symbol, -1))
            node = torch.where(open_ends, self.following[node, symbol], node)
        return torch.stack(symbols)

    def nodes(self, symbols: Tensor) -> Tensor:
        """(T, B) symbols → the node after each; -1 after a symbol that is not allowed."""
        node, reached = torch.zeros(symbols.shape[1], dtype=torch.int64), []
        for symbol in symbols:
            forward = self.following[node.clamp_min(0), symbol.clamp_min(0)]
            node = torch.where((node >= 0) & (symbol >= 0), forward, -1)
            reached.append(node)
        return torch.stack(reached)

    def visits(self) -> Tensor:
        """The expected visits of each node in a string: the first row of the fundamental matrix of the chain."""
        allowed = (self.following >= 0).double()
        chances = allowed / allowed.sum(dim=1, keepdim=True).clamp_min(1)
        moves = torch.zeros(len(self.edges), len(self.edges), dtype=torch.float64)
        for symbol in range(len(SYMBOLS)):
            rows = torch.nonzero(self.following[:, symbol] >= 0)[:, 0]
            moves[rows, self.following[rows, symbol]] += chances[rows, symbol]
        return torch.linalg.inv(torch.eye(len(moves), dtype=torch.float64) - moves)[0]


class GrammarTask(CanonicalTask):
    """The symbols of a string, one-hot; the target is the next symbol."""

    kind = "tagging"
    symbols = SYMBOLS
    input_size = output_size = len(SYMBOLS)
    automaton: ClassVar[Automaton]

    @property
    def classes(self) -> tuple[str, ...]:
        return SYMBOLS

    def draw(self, count: int, random: torch.Generator) -> Batch:
        return _predict(self.automaton.walk(count, random))

    def legal(self, batch: Batch) -> Tensor:
        """(T, B, 7) bool: the symbols that the grammar allows next; False at padding."""
        nodes = self.automaton.nodes(_symbols(batch))
        return (self.automaton.following[nodes.clamp_min(0)] >= 0) & (nodes >= 0)[..., None]

    def legality(self, outputs: Tensor, batch: Batch) -> float:
        """The share of strings where at every step all legal symbols have larger outputs than all illegal ones."""
        legal, worst = self.legal(batch), outputs.new_tensor(math.inf)
        least = torch.where(legal, outputs, worst).amin(dim=-1)
        most = torch.where(legal, -worst, outputs).amax(dim=-1)
        return float(((least > most) | ~batch.mask).all(dim=0).double().mean())


@register("reber")
@dataclass(frozen=True)
class Reber(GrammarTask):
    """The Reber grammar: predict the next symbol; the score is the cross-entropy.

    The trivial answer is the frequency of each symbol; `optimum` is the score of the true grammar.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.reber()
        >>> next(task.batches(4).epoch(0)).inputs.shape[1:]  # (B, D)
        torch.Size([4, 7])
        >>> task.optimum < task.baseline
        True
    """

    metric, better = "cross_entropy", "lower"
    automaton = Automaton.of(REBER)

    @cached_property
    def frequencies(self) -> Tensor:
        """(7,): the frequency of each symbol as a target, that is, not in first place."""
        allowed = (self.automaton.following >= 0).double()
        visits = self.automaton.visits()
        counts = (visits[:, None] * allowed / allowed.sum(dim=1, keepdim=True).clamp_min(1)).sum(dim=0)
        counts[SYMBOLS.index("B")] = 0
        return counts / counts.sum()

    @property
    def baseline(self) -> float:
        return float(torch.special.entr(self.frequencies).sum())

    @property
    def optimum(self) -> float:
        visits, choices = self.automaton.visits()[1:-1], (self.automaton.following[1:-1] >= 0).sum(dim=1)
        return float((visits * choices.double().log()).sum() / visits.sum())

    def trivial(self, batch: Batch) -> Tensor:
        return self.frequencies.log().expand(*batch.targets.shape, -1)

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.cross_entropy(outputs, batch.targets)


class EmbeddedTask(GrammarTask):
    """The score is the accuracy of the last but one symbol, T or P, which repeats the second."""

    metric, better, baseline = "critical_accuracy", "higher", 1 / 2

    def critical(self, batch: Batch) -> Tensor:
        """(T, B) bool: the steps whose target is the repeated symbol."""
        inner = len(REBER)
        nodes = self.automaton.nodes(_symbols(batch))
        due = (nodes == 1 + inner) | (nodes == 1 + 2 * inner)
        return due & (batch.targets != IGNORE)

    def trivial(self, batch: Batch) -> Tensor:
        return one_hot(torch.full_like(batch.targets, SYMBOLS.index("T")), len(SYMBOLS))

    def score(self, outputs: Tensor, batch: Batch) -> float:
        return scores.accuracy(outputs, batch.targets, self.critical(batch))


@register("embedded_reber")
@dataclass(frozen=True)
class EmbeddedReber(EmbeddedTask):
    """The embedded Reber grammar: a Reber string between two equal symbols, T or P (HS97, task 1).

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.embedded_reber()
        >>> next(task.batches(4).epoch(0)).inputs.shape[1:]  # (B, D)
        torch.Size([4, 7])
    """

    automaton = Automaton.of(embedded(REBER))


@register("continual_reber")
@dataclass(frozen=True)
class ContinualReber(EmbeddedTask):
    """The continual embedded Reber grammar: strings one after another without a boundary (Gers et al. 2000).

    For a stream whose state is never reset, use `Streams` on `sequences(1)` of a long task.

    **Arguments**

    - `length`: steps of a sequence.

    **Example**

        >>> import recurra as rc
        >>> task = rc.data.tasks.continual_reber(length=60)
        >>> next(task.batches(4).epoch(0)).inputs.shape  # (T, B, D)
        torch.Size([60, 4, 7])
    """

    length: int = 300

    automaton = Automaton.of(continual(embedded(REBER)))

    def __post_init__(self):
        check_sizes(length=self.length)

    def draw(self, count: int, random: torch.Generator) -> Batch:
        return _predict(self.automaton.walk(count, random, self.length + 1))


def _predict(symbols: Tensor) -> Batch:
    """Strings padded with -1 → all but the last symbol of each, and all but the first."""
    inputs, targets = symbols[:-1], symbols[1:]
    lengths = (targets >= 0).sum(dim=0)
    batch = unpadded_batch(
        one_hot(torch.where(targets >= 0, inputs, -1), len(SYMBOLS)), targets.masked_fill(targets < 0, IGNORE)
    )
    batch.lengths = lengths
    return batch


def _symbols(batch: Batch) -> Tensor:
    return torch.where(batch.inputs.sum(dim=-1) > 0, batch.inputs.argmax(dim=-1), -1)
