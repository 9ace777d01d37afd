"""Evolving the structure of memory cells (Bayer, Wierstra, Togelius & Schmidhuber 2009).

Evolution changes the graph of a cell; gradients train its weights. The fitness of a cell is the error of a network of
it on several formal languages after a fixed number of steps, with a fixed number of weights.
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
from recurra.train.genome_of_cell import genome_of
from recurra.train.learner import Predictor
from recurra.train.mutations import mutate
from recurra.train.nsga import fronts, select
from recurra.train.progress import show_progress


@dataclass(frozen=True)
class Language:
    """A task to train on, and one to test on: longer strings of the same language.

    **Example**

        >>> anbn = rc.data.tasks.anbn
        >>> language = rc.train.Language("anbn", anbn(1, 4), anbn(1, 8))
        >>> language.train.input_size == language.test.input_size
        True
    """

    name: str
    train: CanonicalTask
    test: CanonicalTask


def languages() -> list[Language]:
    """aⁿbⁿ and aⁿbⁿcⁿ, trained up to n = 6 and tested up to n = 12."""
    return [
        Language("anbn", AnBn(1, 6), AnBn(1, 12)),
        Language("anbncn", AnBnCn(1, 6), AnBnCn(1, 12)),
    ]


@dataclass(frozen=True)
class Trial:
    """How a cell is evaluated: `weights` bounds the size of the network, the rest configures its training.

    **Example**

        >>> trial = rc.train.Trial(weights=200, steps=50, seeds=(0, 1))
        >>> trial.weights, trial.rate
        (200, 0.02)
    """

    weights: int = 400
    steps: int = 150
    batch: int = 16
    rate: float = 0.02
    clip: float = 1.0
    seeds: tuple[int, ...] = (0,)


def width(genome: Genome, language: Language, weights: int) -> int:
    """The largest hidden size at which cell and readout have at most that many weights."""
    task = language.train

    def total(size: int) -> int:
        return genome.weights(task.input_size, size) + task.output_size * (size + 1)

    size = 1
    while total(size + 1) <= weights:
        size += 1
    return size


def try_cell(genome: Genome, language: Language, trial: Trial, seed: int) -> tuple[float, float]:
    """Cross-entropy on longer strings after training, and the share of strings predicted without an error."""
    with torch.random.fork_rng(devices=[]), set_backend("reference"):  # compiling takes longer than this training
        torch.manual_seed(seed)
        task = language.train
        layer = Recurrent(genome.cell_class(), task.input_size, width(genome, language, trial.weights))
        model = Predictor(layer, task.output_size)
        learner = BPTT(model, "cross_entropy", "adam", trial.rate, clip=trial.clip)
        for batch in task.batches(trial.batch, trial.steps, seed=seed).epoch(0):
            if not math.isfinite(learner.step(batch.inputs, batch.targets, batch.mask)):
                return math.inf, 0.0
        return _test_cell(model, language, seed)


@torch.no_grad()
def _test_cell(model: Predictor, language: Language, seed: int) -> tuple[float, float]:
    batch = next(language.test.batches(64, 1, seed=1_000_000 + seed).epoch(0))
    outputs = model(batch.inputs)[0]
    loss = torch.nn.functional.cross_entropy(outputs[batch.mask], batch.targets[batch.mask])
    return (float(loss) if bool(torch.isfinite(loss)) else math.inf), language.test.score(outputs, batch)


@dataclass
class Individual:
    """A genome with its measured objectives."""

    genome: Genome
    objectives: list[float]  # one per language, minimised
    parent: str = ""
    born: int = 0


@dataclass
class Evolution:
    """NSGA-II over cell graphs.

    `generation()` makes `population` children and keeps the better half of parents and children. The first population
    is `start` (genomes or names of cells; the LSTM, the original LSTM and the plain RNN), filled up with mutants.

    **Example**

        >>> trial = rc.train.Trial(weights=60, steps=2, batch=4)
        >>> search = rc.train.Evolution(population=3, trial=trial, seed=0)
        >>> search.generation()
        >>> len(search.members), len(search.best().objectives)
        (3, 2)
    """

    languages: Sequence[Language] = field(default_factory=languages)
    population: int = 8
    trial: Trial = field(default_factory=Trial)
    seed: int = 0
    start: Sequence[Genome | str] = field(
        default_factory=lambda: [lstm_genome(), lstm_genome(forget=False), rnn_genome()]
    )
    evaluate: Callable[[Genome, Language, Trial, int], tuple[float, float]] = try_cell

    def __post_init__(self):
        positive_int("population", self.population)
        if not self.languages:
            raise InputError("languages", "none", "at least one")
        if not self.start:
            raise InputError("start", "no genome", "at least one to begin with")
        self.founding = [genome_of(entry) if isinstance(entry, str) else entry for entry in self.start]
        self.rng = random.Random(self.seed)
        self.members: list[Individual] = []
        self.founders: list[Individual] = []
        self.known: dict[str, list[float]] = {}
        self.generations = 0

    def begin(self) -> None:
        """Measure the first population."""
        genomes = self.founding[: self.population]
        while len(genomes) < self.population:
            genomes.append(mutate(self.rng.choice(self.founding), self.rng))
        self.founders = [Individual(g, self.measure(g)) for g in genomes]
        self.members = _best_first(self.founders, self.population)

    def generation(self) -> None:
        """Make and measure `population` children, and keep the better half of parents and children."""
        if not self.members:
            self.begin()
            return
        self.generations += 1
        children = []
        for _ in range(self.population):
            parent = self._tournament()
            child = mutate(parent.genome, self.rng)
            children.append(Individual(child, self.measure(child), parent.genome.digest, self.generations))
        distinct = {m.genome.digest: m for m in (*children, *self.members)}
        self.members = _best_first(list(distinct.values()), self.population)

    def _tournament(self) -> Individual:
        """The better of two random members; members are sorted best first."""
        places = [self.rng.randrange(len(self.members)) for _ in range(2)]
        return self.members[min(places)]

    def measure(self, genome: Genome) -> list[float]:
        """Mean error over seeds in each language, cached by genome."""
        if genome.digest not in self.known:
            self.known[genome.digest] = [
                sum(self.evaluate(genome, language, self.trial, seed)[0] for seed in self.trial.seeds)
                / len(self.trial.seeds)
                for language in self.languages
            ]
        return self.known[genome.digest]

    @property
    def front(self) -> list[Individual]:
        """The Pareto front: members that no other beats in all languages."""
        return [self.members[i] for i in fronts([m.objectives for m in self.members])[0]]

    def best(self, language: int = 0) -> Individual:
        """The member with the smallest loss on a language, by its number."""
        return min(self.members, key=lambda m: m.objectives[language])

    def state_dict(self) -> dict[str, Any]:
        """All an exact resume needs, as plain data."""
        version, internal, gauss = self.rng.getstate()
        kept = {name: [_plain(m) for m in getattr(self, name)] for name in ("members", "founders")}
        random_state = [version, list(internal), gauss]
        return {**kept, "known": dict(self.known), "generations": self.generations, "random": random_state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in ("members", "founders"):
            setattr(self, name, [Individual(Genome.from_dict(g), list(o), p, b) for g, o, p, b in state[name]])
        self.known = {digest: list(objectives) for digest, objectives in state["known"].items()}
        self.generations = int(state["generations"])
        version, internal, gauss = state["random"]
        self.rng.setstate((version, tuple(internal), gauss))


def _best_first(members: Sequence[Individual], count: int) -> list[Individual]:
    return [members[i] for i in select([m.objectives for m in members], count)]


def _plain(member: Individual) -> list[Any]:
    return [member.genome.to_dict(), member.objectives, member.parent, member.born]


def evolve_cells(generations: int = 10, **settings: Any) -> Evolution:
    """Evolve the structure of memory cells with NSGA-II (Bayer et al. 2009).

    **Arguments**

    - `generations`: how many, after the first population.
    - `settings`: of `Evolution`: `languages`, `population`, `trial` (a `Trial`: how each cell is trained), `seed`,
      `start` (genomes, or names of registered cells, see `rc.train.genome_of`), `evaluate`.

    **Returns** the `Evolution`: `front` has the best cells; `front[0].genome.cell_class()` works in `rc.Recurrent`.

    **Example**

    >>> trial = rc.train.Trial(weights=60, steps=2, batch=2)
    >>> evolution = rc.train.evolve_cells(1, population=2, trial=trial)
    >>> layer = rc.Recurrent(evolution.front[0].genome.cell_class(), 3, 8)
    """
    evolution = Evolution(**settings)
    for _ in show_progress(range(positive_int("generations", generations) + 1), "evolving cells", generations + 1):
        evolution.generation()
    return evolution
