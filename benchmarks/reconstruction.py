"""The Lorenz system, reconstructed from its noisy first coordinate by generalised teacher forcing.

    OMP_NUM_THREADS=1 python -m benchmarks.reconstruction [updates]

1. Local projections take most of the noise from x (`rc.dynamics.reduce_noise`), from x alone.
2. A clipped shallow PLRNN learns the leading principal components of windows of x (the singular-spectrum embedding of
   Broomhead & King 1986). In the second half of training, twenty versions of it run freely; the one whose orbit is
   nearest to the training data is kept. Versions differ much in what is invariant, at nearly equal losses.
3. Its largest Lyapunov exponent is measured, and its state-space divergence and power-spectrum distance from another,
   noiseless orbit in the first three components.

The numbers go to results/reconstruction.json; results/reconstruction.md is their table. Without steps 1 and the choice
of step 2 the divergence was 1.0. It is strict: a shift of the true attractor by 0.02 of its standard deviation
makes 0.47, a factor of 1.01 makes 0.56. The strength of forcing was chosen on orbits of another seed. The exponent of
the model tends to be too large: 1.15 and 1.18 on the orbits of seeds 1 and 2, with divergences of 0.21 and 0.54.
"""

import copy
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks.environment import environment
from recurra.dynamics import lorenz, power_spectrum_distance, reduce_noise, state_space_divergence

RESULTS = Path(__file__).resolve().parent / "results"
SETTINGS: dict[str, Any] = {
    "dt": 0.02,
    "span": 25,  # steps of a window, half a unit of time
    "components": 4,
    "noise": 0.05,  # of the standard deviation of x
    "reduction": {"window": 41, "dimensions": 4, "neighbours": 40, "rounds": 2},
    "length": 20_000,  # to learn from
    "measured": 100_000,  # steps of the orbits that are compared
    "units": 100,
    "window": 100,
    "batch": 32,
    "versions": 20,  # of the model that are compared with the training data
    "strength": (0.3, 0.1),  # falls over the first 70 % of the updates
    "rate": (3e-3, 1e-5),
    "clip": 1.0,
    "seed": 0,
}
GOALS = {"exponent": "0.906 ± 10 %", "D_stsp": "≤ 0.5", "D_H": "none"}


def windows_of(x: Tensor) -> Tensor:
    """(T, span) of a series (T,)."""
    return x.unfold(0, SETTINGS["span"], 1)


def orbits() -> tuple[Tensor, Tensor, Tensor]:
    """Components to learn, (T, components), then noiseless ones of two other orbits in the same units."""
    random = torch.Generator().manual_seed(SETTINGS["seed"])
    starts = torch.randn(3, 3, generator=random, dtype=torch.float64) + torch.tensor([0.0, 0.0, 25.0])
    steps = SETTINGS["measured"] + 500
    orbit = lorenz(dt=SETTINGS["dt"] / 2).simulate(starts, 2 * steps)[1000::2, :, 0]  # (T, 3)
    x = orbit[: SETTINGS["length"], 0]
    noisy = x + SETTINGS["noise"] * x.std() * torch.randn(len(x), generator=random)
    edge = SETTINGS["reduction"]["window"] // 2  # values in fewer windows
    known = windows_of(reduce_noise(noisy, **SETTINGS["reduction"])[edge:-edge])
    mean = known.mean(0)
    axes = torch.linalg.svd(known - mean, full_matrices=False).Vh[: SETTINGS["components"]].mT
    scale = ((known - mean) @ axes).std(0)
    learned, true, other = ((w - mean) @ axes / scale for w in (known, *map(windows_of, orbit.T[1:])))
    return learned, true, other


def geometric(ends: tuple[float, float], share: float) -> float:
    return ends[0] * (ends[1] / ends[0]) ** min(1.0, share)


def train(observed: Tensor, updates: int) -> tuple[rc.Recurrent, float]:
    """The version of the trained layer whose free run is nearest to `observed`, and its divergence from it."""
    torch.manual_seed(SETTINGS["seed"])
    layer = rc.ShallowPLRNN(1, SETTINGS["components"], units=SETTINGS["units"], clipped=True)
    learner = rc.train.TeacherForcing(layer, rate=SETTINGS["rate"][0], clip=SETTINGS["clip"])
    windows = observed.float().unfold(0, SETTINGS["window"], 1)  # (n, p, T)
    x = torch.zeros(SETTINGS["window"], SETTINGS["batch"], 1)
    best, nearest = layer, math.inf
    every = max(1, updates // 2 // SETTINGS["versions"])
    for update in range(1, updates + 1):
        learner.strength = geometric(SETTINGS["strength"], update / updates / 0.7)
        learner.optimizer.param_groups[0]["lr"] = geometric(SETTINGS["rate"], update / updates)
        chosen = windows[torch.randint(len(windows), (SETTINGS["batch"],))]
        loss = learner.step(x, chosen.permute(2, 0, 1).contiguous())
        if update > updates // 2 and update % every == 0:
            version = copy.deepcopy(layer).double()
            distance = divergence(observed, free_run(version, observed[-1], SETTINGS["measured"]))
            print(f"update {update}  loss {loss:.5f}  divergence from the training data {distance:.3f}", flush=True)
            if distance < nearest:
                best, nearest = version, distance
    return best.double(), nearest


def free_run(layer: rc.Recurrent, start: Tensor, steps: int) -> Tensor:
    """The orbit (steps, components) of the model from `start`, without its transient."""
    with torch.no_grad():
        return layer(torch.zeros(steps + 1000, 1, 1, dtype=torch.float64), start.view(1, 1, -1))[0][1000:, 0]


def divergence(true: Tensor, run: Tensor) -> float:
    """D_stsp in the first three components, infinite where a run diverges."""
    finite = bool(torch.isfinite(run).all())
    return state_space_divergence(true[:, :3], run[:, :3]).item() if finite else math.inf


def measures(layer: rc.Recurrent, start: Tensor, true: Tensor, other: Tensor) -> dict[str, float]:
    """Invariants of a free run from `start`; `other` is a second true orbit, for what is left between two of them."""
    run = free_run(layer, start, len(true))
    frozen = rc.DynamicalSystem.of(layer).frozen(torch.zeros(1, dtype=torch.float64))
    system = rc.DynamicalSystem(frozen.step, driven=False, dt=SETTINGS["dt"])
    starts = run[:: len(run) // 50][:50]
    return {
        "exponent": system.lyapunov(starts, 2000, transient=200, count=1, every=5).item(),
        "D_stsp": divergence(true, run),
        "D_H": power_spectrum_distance(true[:, :3], run[:, :3]).item(),
        "D_stsp of two true orbits": divergence(true, other),
        "D_H of two true orbits": power_spectrum_distance(true[:, :3], other[:, :3]).item(),
    }


def main(updates: int = 15_000) -> None:
    torch.set_num_threads(1)
    began = time.perf_counter()
    observed, true, other = orbits()
    layer, nearest = train(observed, updates)
    found = measures(layer, observed[-1], true, other) | {"D_stsp from the training data": nearest}
    seconds = round(time.perf_counter() - began)
    command = f"OMP_NUM_THREADS=1 python -m benchmarks.reconstruction {updates}"
    settings = {**SETTINGS, "updates": updates}
    kept = {"command": command, "found": found, "settings": settings, "seconds": seconds, **environment()}
    (RESULTS / "reconstruction.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    lines = ["# Lorenz-63 from its noisy first coordinate", "", f"`{command}`, {seconds} s on one thread.", ""]
    lines += ["| measure | found | wanted |", "|---|---|---|"]
    lines += [f"| {name} | {value:.3f} | {GOALS.get(name, '')} |" for name, value in found.items()]
    lines += ["", "Settings: " + ", ".join(f"{name} {value}" for name, value in settings.items()) + "."]
    (RESULTS / "reconstruction.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
