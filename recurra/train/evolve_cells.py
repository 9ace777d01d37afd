"""Evolving the structure of memory cells (Bayer, Wierstra, Togelius & Schmidhuber 2009).

Evolution changes graphs, gradients train weights: a cell is as good as what a network of it learns of several formal
languages in a fixed number of steps, with a fixed number of weights.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from recurra.cell import positive_int
from recurra.data.tasks.base import CanonicalTask
from recurra.data.tasks.counting import AnBn, AnBnCn
from recurra.engine.backend import set_backend
from recurra.errors import InputError
from recurra.layers import Recurrent
from recurra.train.bptt import BPTT
from recurra.train.genome import Genome, lstm_genome, rnn_genome
from recurra.train.learner import Predictor
from recurra.train.mutations import mutate
from recurra.train.nsga import fronts, select
from recurra.train.progress import show_progress


@dataclass(frozen=True)
class Language:
    """What is learned, and what is asked afterwards: strings longer than those learned from."""

    name: str
    train: CanonicalTask
    test: CanonicalTask


def languages() -> list[Language]:
    """aⁿbⁿ and aⁿbⁿcⁿ, learned up to n = 6 and asked up to n = 12."""
    return [
        Language("anbn", AnBn(1, 6), AnBn(1, 12)),
        Language("anbncn", AnBnCn(1, 6), AnBnCn(1, 12)),
    ]


@dataclass(frozen=True)
class Trial:
    """How a cell is tried: `weights` bounds the network, the rest is its training."""

    weights: int = 400
    steps: int = 150
    batch: int = 16
    rate: float = 0.02
    clip: float = 1.0
    seeds: tuple[int, ...] = (0,)


def width(genome: Genome, language: Language, weights: int) -> int:
    """The widest cell that, with its readout, has at most that many weights."""
    task = language.train

    def total(size: int) -> int:
        return genome.weights(task.input_size, size) + task.output_size * (size + 1)

    size = 1
    while total(size + 1) <= weights:
        size += 1
    return size


def try_cell(genome: Genome, language: Language, trial: Trial, seed: int) -> tuple[float, float]:
    """Cross-entropy on longer strings after training, and the share of them predicted without a fault."""
    with torch.random.fork_rng(devices=[]), set_backend("reference"):  # compiling costs more than so short a training
        torch.manual_seed(seed)
        task = language.train
        layer = Recurrent(genome.cell_class(), task.input_size, width(genome, language, trial.weights))
        model = Predictor(layer, task.output_size)
        learner = BPTT(model, "cross_entropy", "adam", trial.rate, clip=trial.clip)
        for batch in task.batches(trial.batch, trial.steps, seed=seed).epoch(0):
            if not math.isfinite(learner.step(batch.inputs, batch.targets, batch.mask)):
                return math.inf, 0.0
        return _judge(model, language, seed)


@torch.no_grad()
def _judge(model: Predictor, language: Language, seed: int) -> tuple[float, float]:
    batch = next(language.test.batches(64, 1, seed=1_000_000 + seed).epoch(0))
    outputs = model(batch.inputs)[0]
    loss = torch.nn.functional.cross_entropy(outputs[batch.mask], batch.targets[batch.mask])
    return (float(loss) if bool(torch.isfinite(loss)) else math.inf), language.test.score(outputs, batch)


@dataclass
class Individual:
    genome: Genome
    objectives: list[float]  # one a language, to be made small
    parent: str = ""
    born: int = 0


@dataclass
class Evolution:
    """NSGA-II over cells. `generation()` makes as many children as there are parents and keeps the better half of both.

    The start is the LSTM, the original LSTM and the plain RNN, filled up with mutants of them.
    """

    languages: Sequence[Language] = field(default_factory=languages)
    population: int = 8
    trial: Trial = field(default_factory=Trial)
    seed: int = 0
    start: Sequence[Genome] = field(default_factory=lambda: [lstm_genome(), lstm_genome(forget=False), rnn_genome()])
    judge: Callable[[Genome, Language, Trial, int], tuple[float, float]] = try_cell

    def __post_init__(self):
        positive_int("population", self.population)
        if not self.languages:
            raise InputError("languages", "none", "at least one")
        if not self.start:
            raise InputError("start", "no genome", "at least one to begin with")
        self.chance = random.Random(self.seed)
        self.members: list[Individual] = []
        self.founders: list[Individual] = []
        self.known: dict[str, list[float]] = {}
        self.generations = 0

    def begin(self) -> None:
        genomes = list(self.start)[: self.population]
        while len(genomes) < self.population:
            genomes.append(mutate(self.chance.choice(list(self.start)), self.chance))
        self.members = [Individual(g, self.measure(g)) for g in genomes]
        self.founders = list(self.members)

    def generation(self) -> None:
        if not self.members:
            self.begin()
            return
        self.generations += 1
        children = []
        for _ in range(self.population):
            parent = self._tournament()
            child = mutate(parent.genome, self.chance)
            children.append(Individual(child, self.measure(child), parent.genome.digest, self.generations))
        everyone = {m.genome.digest: m for m in (*children, *self.members)}  # twins count once
        pool = list(everyone.values())
        self.members = [pool[i] for i in select([m.objectives for m in pool], self.population)]

    def _tournament(self) -> Individual:
        """The better placed of two: members are kept best first."""
        places = [self.chance.randrange(len(self.members)) for _ in range(2)]
        return self.members[min(places)]

    def measure(self, genome: Genome) -> list[float]:
        """The mean over seeds of the error in each language; a genome is measured once."""
        if genome.digest not in self.known:
            self.known[genome.digest] = [
                sum(self.judge(genome, language, self.trial, seed)[0] for seed in self.trial.seeds)
                / len(self.trial.seeds)
                for language in self.languages
            ]
        return self.known[genome.digest]

    @property
    def front(self) -> list[Individual]:
        """The cells nobody beats in all languages."""
        return [self.members[i] for i in fronts([m.objectives for m in self.members])[0]]

    def best(self, language: int = 0) -> Individual:
        return min(self.members, key=lambda m: m.objectives[language])

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact resume needs, as plain data."""
        version, internal, gauss = self.chance.getstate()
        kept = {name: [_plain(m) for m in getattr(self, name)] for name in ("members", "founders")}
        random_state = [version, list(internal), gauss]
        return {**kept, "known": dict(self.known), "generations": self.generations, "random": random_state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("members", "founders"):
            setattr(self, name, [Individual(Genome.from_dict(g), list(o), p, b) for g, o, p, b in state[name]])
        self.known = {digest: list(objectives) for digest, objectives in state["known"].items()}
        self.generations = int(state["generations"])
        version, internal, gauss = state["random"]
        self.chance.setstate((version, tuple(internal), gauss))


def _plain(member: Individual) -> list[Any]:
    return [member.genome.to_dict(), member.objectives, member.parent, member.born]


def evolve_cells(generations: int = 10, **settings: Any) -> Evolution:
    """Run `Evolution(**settings)` for so many generations, with a bar where someone is watching."""
    evolution = Evolution(**settings)
    for _ in show_progress(range(positive_int("generations", generations) + 1), "evolving cells", generations + 1):
        evolution.generation()
    return evolution
