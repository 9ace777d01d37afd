"""Training time of every registered cell on this CPU, beside an LSTM that is timed in the same rounds.

    python -m benchmarks.cell_speed [--rounds N]          some minutes on one core, most of them for compilation

Processor time of one thread, float32, (T, B, D, H) = `SIZE`. Writes results/cell_speed.json: for each cell the
milliseconds of a forward and backward pass, those of the LSTM, the engine that ran, and the products of a step. The
pages of the cells read it.
"""

import argparse
import json
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from benchmarks.timing import Job, interleaved
from recurra.cells import canonical_names
from recurra.engine.dispatch import Sequences, choose
from recurra.errors import RecurraError

RESULTS = Path(__file__).resolve().parent / "results"
SIZE = (60, 16, 32, 64)  # (T, B, D, H)


def training(layer: nn.Module, x: Tensor) -> Job:
    def run() -> None:
        layer.zero_grad(set_to_none=True)
        layer(x)[0].sum().backward()

    return run


def measure(name: str, x: Tensor, lstm: Job, rounds: int) -> dict[str, Any]:
    layer = rc.layer(name, SIZE[2], SIZE[3])
    medians = interleaved({"cell": training(layer, x), "lstm": lstm}, rounds, time.process_time)
    cell = layer.cell_list[0]
    chosen = choose(cell, Sequences(x, cell.initial_state(SIZE[1], x), cell.draw_masks(SIZE[0], SIZE[1], x)))
    products = len(chosen.executor.plan.products) if chosen.executor else None
    found = {"milliseconds": 1000 * medians["cell"], "lstm": 1000 * medians["lstm"]}
    return found | {"compiled": chosen.executor is not None, "products": products}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", rc.EngineWarning)
    x = torch.randn(SIZE[:3])
    lstm, found = training(rc.LSTM(SIZE[2], SIZE[3]), x), {}
    for name in canonical_names():
        try:
            found[name] = measure(name, x, lstm, rounds)
        except RecurraError as error:  # a cell that takes no such sizes
            found[name] = {"error": str(error)}
        print(name, found[name], flush=True)
    about = {"command": "python -m benchmarks.cell_speed", "when": datetime.now(UTC).isoformat(timespec="seconds")}
    about |= environment() | {"threads": 1, "size": SIZE, "rounds": rounds}
    (RESULTS / "cell_speed.json").write_text(json.dumps(about | {"cells": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
