"""Evolution: Evolino on superimposed sines and on Mackey-Glass, and cells whose equations are evolved."""

from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks.proofs.common import RESULTS, Clock, Row
from recurra.data import tasks
from recurra.data.batching import generator
from recurra.train import Evolino, EvolinoCell, Evolution, KernelReadout, Predictor, SupportVectors, Trial
from recurra.train.evolve_cells import languages, try_cell, width

#: cells and generations, then what Evolino takes
SETTINGS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "sines": (20, 10, {"ridge": 1e-18, "spread": 1.0, "scale": 1e-3, "population": 12, "mutation": 0.01}),
    "mackey_glass": (200, 2, {"ridge": 1e-9, "spread": 0.2, "scale": 3.0, "population": 4, "mutation": 0.01}),
    # what PyBrain's example by the paper's group sets: weights, mutation, population, and a factor of 0.001 on what is
    # fed back; cells as in the paper's table for two and three sines
    "sines_published": (15, 60, {"spread": 0.01, "scale": 1e-3, "population": 20, "mutation": 1e-3}),
    "sines_no_factor": (15, 60, {"spread": 0.01, "scale": 1.0, "population": 20, "mutation": 1e-3}),
    "evoke": (10, 20, {"spread": 1.0, "scale": 0.1, "population": 12, "mutation": 1e-3}),
}
FREQUENCIES = (0.2, 0.311, 0.42)


def evolino(kind: str, seed: int, minutes: float) -> Row:
    """Sines generated some hundred steps on, or Mackey-Glass 84 steps on from 100 places: the NRMSE.

    A fixed number of generations, judged by the training series alone; what comes after it is looked at after the
    first and after the last.
    """
    clock = Clock(minutes)
    torch.manual_seed(seed)
    cells, generations, settings = SETTINGS[kind]
    series, told, ahead = _series(kind, seed)
    learner = _learner(kind, cells, seed, horizon=100 if ahead == 300 else 200, **settings)
    train, found = series[: told + 1], []
    while learner.steps < generations and not clock.over:
        learner.step(train[:-1], train[1:])
        if learner.steps in (1, generations) or clock.over:
            found.append(
                _sines_ahead(learner, series, told, ahead) if ahead else _mackey_glass_84(learner, series, told)
            )
    row = {"seed": seed, "nrmse": found[-1], "after one generation": found[0], "generations": learner.steps}
    print(kind, row, round(clock.seconds), flush=True)
    return row | {"seconds": round(clock.seconds)}


def _learner(kind: str, cells: int, seed: int, **settings: Any) -> Evolino:
    layer = rc.Recurrent(EvolinoCell, 1, cells, dtype=torch.float64)
    evoke = kind == "evoke"
    model = Predictor(layer, KernelReadout(layer, 1) if evoke else 1)
    readout = SupportVectors(C=1000.0, epsilon=3e-3) if evoke else None
    return Evolino(model, washout=100, trials=1, seed=seed, readout=readout, **settings)


def _series(kind: str, seed: int) -> tuple[Tensor, int, int]:
    """A series (T, 1, 1), the steps that are told, and the steps to generate (0: Mackey-Glass)."""
    if kind in ("sines_published", "sines_no_factor", "evoke"):
        t = torch.arange(801, dtype=torch.float64)
        waves = [torch.sin(w * t) for w in (FREQUENCIES[:2] if kind == "evoke" else FREQUENCIES)]
        return torch.stack(waves).sum(0)[:, None, None], 400, 300
    random = generator(500 + seed)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        if kind == "sines":
            return tasks.sines(components=3, length=1200).draw(1, random).inputs, 700, 400
        series = tasks.mackey_glass().series(3200, 1, random)[..., None]
        return series - series[:2000].mean(), 2000, 0
    finally:
        torch.set_default_dtype(before)


def _sines_ahead(learner: Evolino, series: Tensor, told: int, ahead: int) -> float:
    wanted = series[told + 1 : told + 1 + ahead]
    made = learner.generate(series[:told], ahead + 1)[1:]
    return float(((made - wanted).square().mean() / wanted.var()).sqrt())


def _mackey_glass_84(learner: Evolino, series: Tensor, told: int) -> float:
    starts = torch.arange(told + 200, told + 1100, 9)
    seen = torch.stack([series[int(s) - 200 : int(s), 0] for s in starts], 1)
    wanted = torch.stack([series[int(s) + 83, 0, 0] for s in starts])
    made = learner.generate(seen, 84)[-1, :, 0]
    return float(((made - wanted).square().mean() / series.var()).sqrt())


def evolved(seed: int, minutes: float) -> Row:
    """A cell evolved on aⁿbⁿ and aⁿbⁿcⁿ against the best of its starting population, on seeds neither has seen."""
    clock = Clock(minutes)
    trial = Trial(weights=400, steps=80, batch=32, rate=0.03)
    evolution = Evolution(population=6, trial=trial, seed=seed)
    while clock.seconds < 0.65 * clock.limit:
        evolution.generation()
        best = evolution.best(1)
        print("evolved", evolution.generations, best.genome.digest, best.objectives, round(clock.seconds), flush=True)
    language = languages()[1]
    founder = min(evolution.founders, key=lambda m: m.objectives[1]).genome
    found = evolution.best(1).genome
    found.save(RESULTS / "evolved_cell.json")
    held_out: dict[str, list[tuple[float, float]]] = {"founder": [], "evolved": []}
    for new_seed in range(100, 110):
        if clock.over and new_seed > 104:
            break
        for name, genome in (("founder", founder), ("evolved", found)):
            held_out[name].append(try_cell(genome, language, trial, new_seed))
        print("held out", new_seed, held_out["founder"][-1], held_out["evolved"][-1], flush=True)
    return {
        "seed": seed,
        "generations": evolution.generations,
        "tried": len(evolution.known),
        "held_out": held_out,
        "founder": founder.source(),
        "evolved": found.source(),
        "widths": [width(g, language, trial.weights) for g in (founder, found)],
        "equations": found.equations(),
        "seconds": round(clock.seconds),
    }
