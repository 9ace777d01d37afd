"""Peak memory of training on a Parquet set that is larger than memory: `python benchmarks/larger_than_memory.py`.

The script writes the set itself, by default 10 GB in a temporary folder: files in folders `site=K`, with row groups of
about 34 MB, sequences of 500 steps of 32 numbers, and a class each. Another process then reads and trains for some
steps, in batches shuffled by windows, saves a checkpoint in the middle of the epoch and is killed; a third resumes.
Their peak resident memory (VmHWM) must stay below `--limit`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from environment import environment  # pyrefly: ignore
from torch import Tensor, nn

import recurra as rc

STEPS, FEATURES, GROUP = 500, 32, 500  # of a sequence; sequences per row group
CODED = ["id", "t", "label"]  # columns of few different values in a row group
RESULTS = Path(__file__).parent / "results" / "larger_than_memory.json"


def write_set(folder: Path, size: float, files: int) -> None:
    """Write about `size` bytes: the class of a sequence is the sign of the mean of its first feature."""
    if shutil.disk_usage(folder).free < 1.2 * size:
        raise SystemExit(f"{folder}: less than {1.2 * size / 1e9:.0f} GB free")
    random = np.random.default_rng(0)
    noise = random.standard_normal((GROUP, STEPS, FEATURES), dtype=np.float32)  # drawn once, reordered in every group
    groups = max(1, round(size / files / (GROUP * STEPS * FEATURES * 4)))
    for number in range(files):
        path = folder / f"site={number % 8}" / f"part-{number:03d}.parquet"
        path.parent.mkdir(exist_ok=True)
        writer = None
        for group in range(groups):
            table = _row_group(random, noise, (number * groups + group) * GROUP)
            writer = writer or pq.ParquetWriter(path, table.schema, compression="none", use_dictionary=CODED)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _row_group(random: np.random.Generator, noise: np.ndarray, first: int) -> pa.Table:
    values = noise[random.permutation(GROUP)]
    high = random.random(GROUP) < 0.5
    values[:, :, 0] += np.where(high, 0.3, -0.3).astype(np.float32)[:, None]
    rows = values.reshape(-1, FEATURES)
    ids = pa.array(np.repeat(np.arange(first, first + GROUP), STEPS))
    labels = pa.array(np.repeat(np.where(high, "high", "low"), STEPS)).dictionary_encode()
    columns = {f"x{k}": pa.array(np.ascontiguousarray(rows[:, k])) for k in range(FEATURES)}
    return pa.table({"id": ids, "t": pa.array(np.tile(np.arange(STEPS), GROUP)), **columns, "label": labels})


class Network(nn.Module):
    """A GRU and the mean of its outputs."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = rc.GRU(FEATURES, 32), nn.Linear(32, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.head(self.layer(x, lengths=lengths)[0].mean(0))


def train(folder: Path, run: Path, steps: int, die: int | None) -> dict[str, Any]:
    """Train until step `steps`, or kill this process after step `die`. Times and memory of this process."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    started = time.monotonic()
    features = tuple(f"x{k}" for k in range(FEATURES))
    data = rc.data.read(folder, id="id", time="t", features=features, label="label", task="classification")
    batches, opened = rc.data.Batches(data, 32), time.monotonic()

    def watch(event: str, state: rc.train.Run) -> None:
        if event == "step" and state.progress.step == die:
            print(json.dumps({"peak": memory("VmHWM")}), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        state.stop = state.progress.step >= steps

    result = rc.train.fit(
        Network(), batches, epochs=1, lr=3e-3, callbacks=[watch], progress=False, log=run / "log.jsonl",
        checkpoints=rc.train.Checkpoints(run, every=max(1, steps // 4)),
    )  # fmt: skip
    seconds = time.monotonic() - opened
    return {
        "sequences": len(data),
        "window": batches.window,
        "seconds_to_open": round(opened - started, 1),
        "seconds_to_train": round(seconds, 1),
        "loss": result.history[-1]["loss"],
        "peak": memory("VmHWM"),
        "anonymous": memory("RssAnon"),
    }


def memory(name: str) -> float:
    """A line of /proc/self/status, in GB."""
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    return round(int(found[1]) * 1024 / 1e9, 3) if found else float("nan")


def measure(options: argparse.Namespace, folder: Path) -> dict:
    """Write, train and kill, resume: each in a process of its own."""
    data, run = options.data or folder / "data", folder / "run"
    run.mkdir()
    if options.data is None:
        data.mkdir()
        write_set(data, options.gigabytes * 1e9, options.files)
    sizes = [path.stat().st_size for path in data.rglob("*.parquet")]
    command = [sys.executable, __file__, "--train", str(data), "--run", str(run), "--steps", str(options.steps)]
    killed = subprocess.run([*command, "--die", str(options.steps // 2 + 1)], stdout=subprocess.PIPE, text=True)
    resumed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    whole = subprocess.run([*command[:-3], str(folder / "whole"), *command[-2:]], stdout=subprocess.PIPE, text=True)
    found = [json.loads(done.stdout.splitlines()[-1]) for done in (killed, resumed, whole)]
    same = all(
        torch.equal(a, b) for a, b in zip(_weights(run).values(), _weights(folder / "whole").values(), strict=True)
    )
    return {
        "gigabytes_on_disk": round(sum(sizes) / 1e9, 2),
        "files": len(sizes),
        "steps": options.steps,
        "killed_after": options.steps // 2 + 1,
        "peak_of_killed_run": found[0]["peak"],
        "resumed": found[1],
        "uninterrupted": found[2],
        "same_bits": same,
    }


def _weights(run: Path) -> dict[str, Tensor]:
    return rc.train.load_weights(Network(), run, "last").state_dict()


def main() -> None:
    """Parse the options, measure, check the limit, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--limit", type=float, default=2.0, help="GB of resident memory")
    parser.add_argument("--folder", type=Path, default=None, help="where to write the set; default: temporary files")
    parser.add_argument("--data", type=Path, default=None, help="a set that this script wrote before")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--die", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        print(json.dumps(train(options.train, options.run, options.steps, options.die)))
        return
    with tempfile.TemporaryDirectory(prefix="recurra-large-", dir=options.folder) as folder:
        measured = measure(options, Path(folder))
    found: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]),
        **measured,
        "environment": environment("pyarrow"),
    }
    print(json.dumps(found, indent=1))
    peaks = [found["peak_of_killed_run"], found["resumed"]["peak"], found["uninterrupted"]["peak"]]
    if max(peaks) > options.limit or not found["same_bits"]:
        raise SystemExit(
            f"{max(peaks)} GB resident, of {options.limit}; same bits after the kill: {found['same_bits']}"
        )
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
