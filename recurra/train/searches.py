"""Search methods of Evolino: enforced sub-populations (Gomez & Miikkulainen 1997) and CMA-ES."""

import math
import warnings
from typing import Any, Protocol

import torch
from torch import Tensor

from recurra.cell import positive_int
from recurra.optional import require
from recurra.train.learner import positive
from recurra.train.step_function import StepFunction


class Search(Protocol):
    """Proposes networks as flat weights (`ask`), and gets their errors (`tell`)."""

    def ask(self) -> Tensor: ...

    def tell(self, genomes: Tensor, errors: Tensor) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class SubPopulations:
    """Enforced sub-populations: one per memory cell; a chromosome is all weights into that cell.

    A network takes one chromosome from each population. The fitness of a chromosome is that of the best network it was
    in. The best quarter mate, their offspring replace the worse half, with Cauchy mutation. After `burst` generations
    without progress all populations restart around the best network.
    """

    def __init__(
        self,
        step_fn: StepFunction,
        seed: int,
        population: int,
        trials: int,
        mutation: float,
        burst: int,
        spread: float,
    ):
        self.random = torch.Generator().manual_seed(seed)
        self.size, self.trials = max(positive_int("population", population), 4), positive_int("trials", trials)
        self.mutation, self.burst = positive("mutation", mutation), positive_int("burst", burst)
        self.places = chromosomes(step_fn)
        self.count, self.like = step_fn.weight_count, step_fn.like
        self.pools = [self._uniform(self.size, place.numel()) * 2 * spread - spread for place in self.places]
        self.best, self.champion, self.stagnant = math.inf, torch.empty(0), 0
        self.drawn = torch.empty(0)

    def ask(self) -> Tensor:
        """Flat weights (size · trials, P); in each trial every chromosome is in exactly one network."""
        orders = [
            torch.stack([torch.randperm(self.size, generator=self.random) for _ in self.places])
            for _ in range(self.trials)
        ]
        self.drawn = torch.cat(orders, 1)  # (pools, networks)
        genomes = self.like.new_zeros(self.drawn.shape[1], self.count)
        for place, pool, drawn in zip(self.places, self.pools, self.drawn, strict=True):
            genomes[:, place] = pool[drawn].to(genomes)
        return genomes

    def tell(self, genomes: Tensor, errors: Tensor) -> None:
        winner = int(errors.argmin())
        self.stagnant += 1
        if float(errors[winner]) < self.best:
            self.best, self.champion, self.stagnant = float(errors[winner]), genomes[winner].clone(), 0
        if self.stagnant >= self.burst and len(self.champion):
            self.pools = [self._around(self.champion[place].double(), self.size) for place in self.places]
            self.stagnant = 0
            return
        self.pools = [self._next(pool, drawn, errors) for pool, drawn in zip(self.pools, self.drawn, strict=True)]

    def _next(self, pool: Tensor, drawn: Tensor, errors: Tensor) -> Tensor:
        """The next generation: the better half, and as many offspring of the best quarter."""
        worth = torch.full((self.size,), math.inf, dtype=torch.float64)
        worth.scatter_reduce_(0, drawn, errors.double().cpu(), "amin")
        ranked = pool[worth.argsort()]
        parents, offspring = max(self.size // 4, 2), []
        for k in range(self.size // 2):
            mother = ranked[k % parents]
            father = ranked[int(torch.randint(0, k % parents + 1, (), generator=self.random))]
            cut = int(torch.randint(0, len(mother) + 1, (), generator=self.random))
            offspring.append(torch.cat([mother[:cut], father[cut:]]))
        children = torch.stack(offspring)
        return torch.cat([ranked[: self.size - len(children)], children + self._cauchy(children.shape)])

    def _around(self, chromosome: Tensor, size: int) -> Tensor:
        pool = chromosome + self._cauchy((size, len(chromosome)))
        pool[0] = chromosome
        return pool

    def _cauchy(self, shape: tuple[int, ...]) -> Tensor:
        return self.mutation * torch.tan(math.pi * (self._uniform(*shape) - 0.5))

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(shape, generator=self.random, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        kept = {"pools": list(self.pools), "champion": self.champion, "best": self.best, "stagnant": self.stagnant}
        return {**kept, "random": self.random.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.pools, self.champion = list(state["pools"]), state["champion"]
        self.best, self.stagnant = float(state["best"]), int(state["stagnant"])
        self.random.set_state(state["random"])


def chromosomes(step_fn: StepFunction) -> list[Tensor]:
    """Indices into the flat weights: one tensor per memory cell, and last the weights shared by cells."""
    units = step_fn.cells[0].hidden_size
    own: list[list[Tensor]] = [[] for _ in range(units)]
    shared, offset = [], 0
    for parameter in step_fn.recurrent.values():
        place = offset + torch.arange(parameter.numel()).view(len(parameter) if parameter.dim() else 1, -1)
        if len(place) == units:
            for unit in range(units):
                own[unit].append(place[unit])
        else:
            shared.append(place.flatten())
        offset += parameter.numel()
    groups = [torch.cat(parts) for parts in own if parts]
    return [*groups, torch.cat(shared)] if shared else groups


class CMA:
    """CMA-ES over all recurrent weights, by the package `cma`.

    The package saves itself as a pickle. Here the history of errors is saved and replayed instead.
    """

    def __init__(self, step_fn: StepFunction, seed: int, population: int, spread: float, **_: Any):
        self.size, self.spread, self.seed = positive_int("population", population), positive("spread", spread), seed
        self.like, self.start = step_fn.like, step_fn.flat()[0].double().tolist()
        self.strategy, self.candidates, self.errors = self._strategy(), [], []

    def _strategy(self) -> Any:
        import numpy

        with warnings.catch_warnings():  # the package warns when matplotlib is missing
            warnings.simplefilter("ignore")
            cma = require("cma", extra="evo", what="Evolino(search='cma')")
        own = numpy.random.default_rng(self.seed)  # the package would draw from numpy's global generator
        options: dict[str, Any] = {"popsize": self.size, "seed": float("nan"), "verbose": -9}
        options["randn"] = lambda *shape: own.standard_normal(shape)
        return cma.CMAEvolutionStrategy(self.start, self.spread, options)

    def ask(self) -> Tensor:
        self.candidates = self.strategy.ask()
        return torch.tensor([list(genome) for genome in self.candidates], dtype=torch.float64).to(self.like)

    def tell(self, genomes: Tensor, errors: Tensor) -> None:
        worst = float(errors[errors.isfinite()].max()) if bool(errors.isfinite().any()) else 1.0
        self.errors.append(errors.nan_to_num(10 * worst, 10 * worst).tolist())
        self.strategy.tell(self.candidates, self.errors[-1])

    def state_dict(self) -> dict[str, Any]:
        return {"start": list(self.start), "told": [list(errors) for errors in self.errors]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start, self.errors = list(state["start"]), [list(errors) for errors in state["told"]]
        self.strategy = self._strategy()
        for errors in self.errors:
            self.strategy.tell(self.strategy.ask(), errors)
