"""The four cells of `benchmarks.peers` on a CUDA device, beside a loop over a step compiled by `torch.compile`.

    python -m benchmarks.peers --device cuda [--rounds N]    two minutes, most of them for compilation

A forward and backward pass of a batch in bfloat16, by the events of the device; medians of interleaved rounds. Where
JAX is installed with CUDA, its scan is timed, too, by the clock. Writes results/peers_h200.json, from which
`python -m benchmarks.peers --draw` makes the lower half of the picture.
"""

import importlib.util
import json
import statistics
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import peers
from benchmarks.environment import environment

RESULTS = Path(__file__).resolve().parent / "results" / "peers_h200.json"
SIZE = (256, 64, 256, 256)  # (T, B, D, H)
WARM = 3
DEVICE = "cuda"


def main(rounds: int) -> None:
    warnings.simplefilter("ignore")
    found: dict[str, dict[str, float]] = {}
    about = {"command": "python -m benchmarks.peers --device cuda", "rounds": rounds, "size": SIZE, "dtype": "bfloat16"}
    about |= {"when": datetime.now(UTC).isoformat(timespec="seconds"), **environment("jax")}
    for cell in peers.CELLS:
        found[cell] = measure(cell, rounds)
        print(cell, found[cell], flush=True)
        RESULTS.write_text(json.dumps(about | {"milliseconds": found}, indent=1) + "\n", encoding="utf-8")


def measure(cell: str, rounds: int) -> dict[str, float]:
    """Contestant → milliseconds. One that fails is told and left out."""
    steps, batch, inputs, units = SIZE
    x = torch.randn(steps, batch, inputs, device=DEVICE, dtype=torch.bfloat16)
    jobs: dict[str, Callable[[], float]] = {}
    for name, module in peers.modules(cell, inputs, units).items():
        if name in ("recurra", "compiled step in a loop"):  # the others are rows of benchmarks/speed.py
            jobs[name] = on_device(module.to(DEVICE, torch.bfloat16), x)
    if importlib.util.find_spec("jax"):
        jobs["jax.lax.scan"] = by_the_clock(peers.jax_job(cell, x.float().cpu(), units))
    times: dict[str, list[float]] = {}
    for number in range(WARM + rounds):
        for name, job in list(jobs.items()):
            try:
                taken = job()
            except Exception as error:
                print(f"{cell}, {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
                del jobs[name]
                continue
            if number >= WARM:
                times.setdefault(name, []).append(taken)
    return {name: statistics.median(values) for name, values in times.items()}


def on_device(module: nn.Module, x: torch.Tensor) -> Callable[[], float]:
    train = peers.training(module, x)

    def run() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        train()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end)

    return run


def by_the_clock(job: Any) -> Callable[[], float]:
    def run() -> float:
        began = time.perf_counter()
        job()
        return 1000 * (time.perf_counter() - began)

    return run
