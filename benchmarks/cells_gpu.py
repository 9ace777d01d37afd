"""Every registered cell on a CUDA device, beside an LSTM: what `speed.py --device cuda --part cells` does.

Kernels are compiled first, in many processes at once. Then one process times the cells in turn, an LSTM before each. A
cell that it cannot run has its error in the table. Where the process itself dies or is silent for too long, another one
goes on with the next cell. Each row is written to results/cell_speed_h200.json as soon as it is measured; `--seconds`
ends a run early, and a later run with the same version of torch measures what is missing or had an error.
"""

import faulthandler
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from ahead import shares, side_by_side  # pyrefly: ignore
from environment import environment  # pyrefly: ignore
from speed_gpu import DTYPES, jobs_of, milliseconds  # pyrefly: ignore
from torch import nn

import recurra as rc
from recurra.cells import canonical_names

RESULTS = Path(__file__).parent / "results" / "cell_speed_h200.json"
COMMAND = "python benchmarks/speed.py --device cuda --part cells"
SIZE = (256, 64, 256, 256)  # (T, B, D, H)
PATIENCE = 90  # seconds for one cell
COMPILING = 200  # seconds for the processes that compile, whose cells are else compiled when their turn comes
DEVICE = "cuda"
SLOW = 40.0  # milliseconds of a pass from which fewer of them are timed


def main(seconds: float = 540.0, cells: Sequence[str] = ()) -> None:
    """Measure what the table lacks, or `cells` anew, for at most `seconds`."""
    end = time.monotonic() + seconds
    found = earlier()
    wanted = list(cells) or [name for name in canonical_names() if "error" in found.get(name, {"error": ""})]
    compile_ahead(wanted)
    for name, row in rows(wanted, end):
        found[name] = row
        save(found)
        print(f"  {name:28}{show(row)}", flush=True)
    missing = [name for name in canonical_names() if name not in found]
    print(f"{len(found)} cells in {RESULTS.name}; not reached: {', '.join(missing) or 'none'}", flush=True)


def earlier() -> dict[str, Any]:
    """Rows of a run on the same device with the same torch."""
    about = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    here = environment()
    same = all(about.get(key) == here[key] for key in ("device", "torch", "recurra"))
    return about["cells"] if same else {}


def save(found: dict[str, Any]) -> None:
    about = {"command": COMMAND, "when": datetime.now(UTC).isoformat(timespec="seconds"), **environment()}
    about |= {"size": SIZE, "cells": {name: found[name] for name in sorted(found)}}
    RESULTS.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def show(row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"]
    lstm = f"LSTM {row['lstm_forward_ms']:.3f} / {row['lstm_train_ms']:.3f}"
    return f"{row['dtype']:6}{row['forward_ms']:9.3f} /{row['train_ms']:9.3f} ms, {lstm}  {row.get('note', '')}"


# ---------------------------------------------------------------------------------------------------- processes


def compile_ahead(names: list[str]) -> None:
    commands = [[sys.executable, "-W", "ignore", __file__, "--compile", *share] for share in shares(names)]
    side_by_side(commands, seconds=COMPILING)


def rows(names: list[str], end: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and row of each cell, from as many processes as it takes; until `end`, by `time.monotonic`."""
    left = list(names)
    while left and time.monotonic() < end:
        command = [sys.executable, __file__, "--measure", str(end - time.monotonic()), *left]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                if line.startswith("{"):
                    row = json.loads(line)
                    left.remove(name := row.pop("cell"))
                    yield name, row
        if process.returncode and left:
            yield left.pop(0), {"error": f"the process that ran it ended with status {process.returncode}"}


def compile_some(names: list[str]) -> None:
    warnings.simplefilter("ignore")
    for name in names:
        try:
            for job in jobs_of(build(name, "bf16"), example("bf16", steps=2)):
                job()
            torch.cuda.synchronize()
        except Exception as error:  # the process that times cells says what is wrong with this one
            print(name, error, file=sys.stderr)


def measure_some(seconds: float, names: list[str]) -> None:
    """Print a row for each, until `seconds` have passed. A cell that takes too long ends the process."""
    end = time.monotonic() + seconds
    for name in names:
        if time.monotonic() > end:
            return
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        print(json.dumps({"cell": name, **measure(name)}), flush=True)
        faulthandler.cancel_dump_traceback_later()


# ---------------------------------------------------------------------------------------------------- one cell


def measure(name: str, dtypes: tuple[str, ...] = ("bf16", "fp32")) -> dict[str, Any]:
    """The row of a cell, in the first of these dtypes that it takes."""
    errors = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for dtype in dtypes:
            try:
                row = timed(name, dtype)
            except Exception as error:
                errors.append(f"{dtype}: {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}")
                torch.cuda.synchronize()  # after an error of the device itself this raises, which ends the process
            else:
                notes = [str(each.message)[:300] for each in told if issubclass(each.category, rc.EngineWarning)]
                return row | ({"refused": errors[0]} if errors else {}) | ({"note": notes[0]} if notes else {})
    return {"error": "; ".join(errors)}


def timed(name: str, dtype: str) -> dict[str, Any]:
    """Milliseconds of a forward pass and of a training step, and those of an LSTM."""
    x, found = example(dtype), {}
    for whose, kind in (("", name), ("lstm_", "lstm")):
        for what, job in zip(("forward", "train"), jobs_of(build(kind, dtype), x), strict=True):
            found[f"{whose}{what}_ms"] = typical(job)
    return {"dtype": dtype, **found}


def typical(job: Callable[[], object]) -> float:
    """Median milliseconds; of fewer passes where one takes long."""
    once = milliseconds(job, samples=1, calls=1)
    return milliseconds(job, samples=3, calls=1) if once > SLOW else milliseconds(job, samples=5)


def build(name: str, dtype: str) -> nn.Module:
    torch.manual_seed(0)
    with torch.device(DEVICE):  # a GPU draws large orthogonal matrices in no time
        return rc.layer(name, SIZE[2], SIZE[3]).to(DEVICE, DTYPES[dtype])


def example(dtype: str, steps: int = SIZE[0]) -> torch.Tensor:
    return torch.randn(steps, *SIZE[1:3], device=DEVICE, dtype=DTYPES[dtype])


if __name__ == "__main__":
    what, *given = sys.argv[1:]
    compile_some(given) if what == "--compile" else measure_some(float(given[0]), given[1:])
