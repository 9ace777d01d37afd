"""A reservoir of thousands of units on a GPU, through the layer engine, beside the sparse loop of the CPU.

    python -m benchmarks.reservoir_gpu                              10,000 units; writes results/reservoir_gpu.json
    python -m benchmarks.reservoir_gpu --device cpu --units 300     the same path where there is no GPU; writes nothing

Both runs have the same matrices, drawn from one seed. Printed: the greatest difference of their states, the time of a
step for one series and for many at once, and the error of both on Mackey-Glass, 84 steps ahead, on steps not learned.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recurra as rc
from benchmarks.environment import environment
from recurra.data.tasks.mackey_glass_solver import mackey_glass_series
from recurra.reservoir.core import EngineReservoir, LeakyReservoir
from recurra.reservoir.matrices import draw

RESULTS = Path(__file__).resolve().parent / "results"
AHEAD, LEARNED, WASHOUT = 84, 6000, 200


def reservoirs(units: int, density: float, device: str) -> tuple[LeakyReservoir, EngineReservoir]:
    """The same neurons twice."""
    recipe = {"radius": 0.9, "density": density, "input_scaling": 1.0, "feedback": 0.0, "bias": 0.2}
    plain = LeakyReservoir(draw(units, 1, 0, random=np.random.default_rng(0), **recipe), 0.5, 0.0)
    return plain, EngineReservoir(plain, device)


def seconds_a_step(reservoir: Any, steps: int, batch: int, repeats: int = 3) -> float:
    """The median over calls, after one to warm up; states come back to the host, as a readout needs them."""
    drive = np.random.default_rng(1).normal(size=(steps, batch, 1))
    taken = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        reservoir.run(drive, reservoir.initial(batch))
        taken.append((time.perf_counter() - began) / steps)
    return float(np.median(taken[1:]))


def difference(plain: LeakyReservoir, engine: EngineReservoir, steps: int = 300) -> float:
    """Of the states under the same input; one is in double precision, the other in single."""
    drive = np.random.default_rng(2).normal(size=(steps, 2, 1))
    one, other = plain.run(drive, plain.initial(2))[0], engine.run(drive, engine.initial(2))[0]
    return float(np.abs(one - other).max())


def mackey_glass(units: int, density: float, device: str | None) -> dict[str, float]:
    """NRMSE, 84 steps ahead, on 1,000 steps that were not learned, and the seconds of fit and prediction."""
    past = torch.tensor([1.2], dtype=torch.float64)
    series = np.tanh(mackey_glass_series(past, LEARNED + 2000 + AHEAD, 17.0).numpy()[1000:] - 1)
    x, y = series[:-AHEAD], series[AHEAD:]
    options = {"density": density, "leak": 0.5, "bias": 0.2, "ridge": 1e-6, "washout": WASHOUT, "random_state": 0}
    began = time.perf_counter()
    network = rc.EchoStateNetwork(units, device=device, **options).fit(x[:LEARNED], y[:LEARNED])
    found = network.predict(x)[LEARNED:]
    error = float(np.sqrt(np.mean((found - y[LEARNED:]) ** 2) / y[LEARNED:].var()))
    return {"nrmse": error, "seconds": round(time.perf_counter() - began, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--density", type=float, default=0.01)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, help="a folder for reservoir_gpu.json; results/ on a GPU")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    plain, engine = reservoirs(options.units, options.density, options.device)
    found: dict[str, Any] = {"units": options.units, "density": options.density, "device": options.device}
    found["greatest_difference"] = difference(plain, engine)
    example = torch.zeros(2, 1, options.units, device=options.device)
    found["engine"] = str(rc.explain(engine.layer, example)).splitlines()[1].strip()
    for batch in (1, 16):
        for name, each in (("device", engine), ("cpu_sparse", plain)):
            found[f"microseconds_a_step_{name}_batch_{batch}"] = round(
                1e6 * seconds_a_step(each, options.steps, batch), 1
            )
            print(name, batch, found[f"microseconds_a_step_{name}_batch_{batch}"], flush=True)
    for name, device in (("device", options.device), ("cpu_sparse", None)):
        found[f"mackey_glass_{name}"] = mackey_glass(options.units, options.density, device)
        print(name, found[f"mackey_glass_{name}"], flush=True)
    content = {"environment": environment(), "results": found}
    print(json.dumps(content, indent=1))
    folder = options.out or (RESULTS if options.device != "cpu" else None)
    if folder is not None:
        (folder / "reservoir_gpu.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
