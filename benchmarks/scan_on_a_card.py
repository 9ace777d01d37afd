"""minGRU on a card: recurra's scan beside its loop and beside other libraries' scans with gates by torch.

    python -m benchmarks.scan --device cuda [--rounds N] [--seconds N] [--profile]

Wall milliseconds, the card idle before and after each call; medians of interleaved rounds, after four calls that warm
up. All libraries have the same setting of TF32, which is torch's own: off. The peers get x in the order of axes that
their kernels want, and no initial state. Kernels are compiled first, in many processes. Every size is written to
results/scan_gpu.md as soon as it is measured; after `--seconds` no further size begins. `--profile` prints the kernels
of a training step of each size instead.
"""

import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, logsigmoid

import recurra as rc
from benchmarks.ahead import side_by_side
from benchmarks.environment import environment
from recurra.engine.gpu import select

Job = Callable[[], object]
Peer = tuple[Callable[[Tensor, Any], Tensor], tuple[int, int, int]]  # y of x and a cell; the axes of x it wants
RESULTS = Path(__file__).resolve().parent / "results"
SIZES = ((2048, 16, 128, 128), (512, 16, 768, 768), (4096, 4, 512, 512), (16384, 1, 256, 256))
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
ROWS = tuple(itertools.product(DTYPES, SIZES))
WARM = 4
PASSES = ("forward", "training")


# ---------------------------------------------------------------------------------------------------- peers


def accelerated(scan: Callable[[Tensor, Tensor], Tensor], x: Tensor, cell: Any) -> Tensor:
    """x (B, D, T) → (B, H, T)."""
    z = torch.sigmoid(cell.z.U @ x + cell.z.b[:, None])
    return scan(1 - z, z * (cell.c.U @ x + cell.c.b[:, None]))


def hgrn(kernel: Callable[..., tuple[Tensor, Any]], x: Tensor, cell: Any) -> Tensor:
    """x (B, T, D) → (B, T, H)."""
    z = linear(x, cell.z.U, cell.z.b)
    return kernel(torch.sigmoid(z) * linear(x, cell.c.U, cell.c.b), logsigmoid(-z))[0]


def peers() -> dict[str, Peer]:
    """Of those that are installed and work here."""
    found: dict[str, Peer] = {}
    for module in ("warp", "scalar"):
        try:
            scan = __import__(f"accelerated_scan.{module}", fromlist=["scan"]).scan
            ones = torch.ones(1, 32, 64, device="cuda")
            scan(0.5 * ones, ones)
        except Exception as error:
            print(f"accelerated-scan, {module}: {type(error).__name__}: {str(error)[:120]}", flush=True)
        else:
            found["accelerated-scan"] = (lambda x, cell, scan=scan: accelerated(scan, x, cell)), (1, 2, 0)
            break
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from fla.ops.hgrn import chunk_hgrn
    except ImportError as error:
        print(f"fla: {error}", flush=True)
    else:
        found["fla"] = (lambda x, cell: hgrn(chunk_hgrn, x, cell)), (1, 0, 2)
    return found


# ---------------------------------------------------------------------------------------------------- jobs


def jobs_of(run: Callable[[Tensor], Tensor], x: Tensor, weights: list[Tensor]) -> dict[str, Job]:
    """Forward without gradients, and a training step: forward, and gradients of x and of the weights."""
    given = x.detach().clone().requires_grad_()
    cotangent = torch.randn_like(run(given))

    def forward() -> None:
        with torch.no_grad():
            run(x)

    return {"forward": forward, "training": lambda: torch.autograd.grad(run(given), [given, *weights], cotangent)}


def all_jobs(
    size: tuple[int, int, int, int], dtype: torch.dtype, others: dict[str, Peer]
) -> dict[tuple[str, str], Job]:
    """(library, pass) → job."""
    steps, batch, inputs, units = size
    layer = rc.layer("min_gru", inputs, units, device="cuda", dtype=dtype)
    cell: Any = layer.cell_list[0]
    weights: list[Tensor] = list(layer.parameters())
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=dtype)

    def looped(given: Tensor) -> Tensor:
        with select.only(select.LOOP):
            return layer(given)[0]

    runs: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {"recurra": (lambda given: layer(given)[0], x)}
    for name, (run, axes) in others.items():
        runs[name] = (lambda given, run=run: run(given, cell)), x.permute(axes).contiguous()
    runs["recurra's loop"] = looped, x
    found: dict[tuple[str, str], Job] = {}
    for name, (run, given) in runs.items():
        try:
            jobs = jobs_of(run, given, weights)
            for what, job in jobs.items():
                job()
                found[name, what] = job
        except Exception as error:
            print(f"{size} {dtype} {name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return found


def wall(jobs: dict[tuple[str, str], Job], rounds: int) -> dict[tuple[str, str], float]:
    """Median milliseconds of each job, in turn."""
    times: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    for round_ in range(rounds + WARM):
        for key, job in jobs.items():
            with select.only(select.LOOP if key[0] == "recurra's loop" else ""):  # a training step's backward, too
                torch.cuda.synchronize()
                start = time.perf_counter()
                job()
                torch.cuda.synchronize()
            if round_ >= WARM:
                times[key].append(1e3 * (time.perf_counter() - start))
    return {key: median(values) for key, values in times.items()}


def profile(size: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    job = all_jobs(size, dtype, {})["recurra", "training"]
    for _ in range(WARM):
        job()
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as measured:
        job()
        torch.cuda.synchronize()
    print(size, dtype, measured.key_averages().table(sort_by="cuda_time_total", row_limit=14), flush=True)


# ---------------------------------------------------------------------------------------------------- the table


def table(results: dict[str, Any]) -> str:
    of, names = results["environment"], results["libraries"]
    lines = [
        "# Scans over time on a card",
        "",
        f"`{results['command']}` on {of['device']}, torch {of['torch']}, Triton {of['triton']}: minGRU, wall"
        " milliseconds forward / training, medians. The other libraries' gates are torch's.",
        "",
        f"| (T, B, D, H) | dtype | {' | '.join(names)} | recurra's speed, × the fastest other library |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    for row in results["rows"]:
        times = [row["times"].get(name, {}) for name in names]
        cells = [" / ".join(f"{each[what]:.3f}" if what in each else "–" for what in PASSES) for each in times]
        lines.append(f"| {tuple(row['size'])} | {row['dtype']} | {' | '.join(cells)} | {_ratios(row)} |")
    for dtype in DTYPES:
        found = [_ratio(row, what) for row in results["rows"] if row["dtype"] == dtype for what in PASSES]
        known = [ratio for ratio in found if ratio]
        if known:
            lines += ["", f"{dtype}: {geometric_mean(known):.2f} × the fastest other library, in the geometric mean."]
    return "\n".join([*lines, ""])


def _ratio(row: dict[str, Any], what: str) -> float:
    """How many times faster recurra is than the fastest other library; 0 if there is none."""
    times = {name: each[what] for name, each in row["times"].items() if what in each}
    others = [ms for name, ms in times.items() if not name.startswith("recurra")]
    return min(others) / times["recurra"] if others and "recurra" in times else 0.0


def _ratios(row: dict[str, Any]) -> str:
    return " / ".join(f"{_ratio(row, what):.2f}" if _ratio(row, what) else "–" for what in PASSES)


def compile_ahead() -> None:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scan", "--device", "cuda", "--compile"]
    side_by_side([*command, str(number)] for number in range(len(ROWS)))


def compile_row(number: int) -> None:
    """Run what a row of the table runs, once."""
    dtype, size = ROWS[number]
    all_jobs(size, DTYPES[dtype], peers())
    torch.cuda.synchronize()


def measure(rounds: int, seconds: float) -> None:
    """Measure and write size after size: recurra alone, then once more with the other libraries, which compile long."""
    compile_ahead()
    began = time.perf_counter()
    results: dict[str, Any] = {
        "environment": environment("accelerated-scan", "fla-core"),
        "command": f"python -m benchmarks.scan --device cuda --rounds {rounds}",
    }
    rows: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    for find in (dict, peers):
        others: dict[str, Peer] = find()
        results["libraries"] = ["recurra", *others, "recurra's loop"]
        for dtype, size in ROWS:
            if time.perf_counter() - began > seconds:
                break
            torch.manual_seed(0)
            times: dict[str, dict[str, float]] = {}
            for (name, what), ms in wall(all_jobs(size, DTYPES[dtype], others), rounds).items():
                times.setdefault(name, {})[what] = ms
            rows[dtype, size] = {"size": size, "dtype": dtype, "times": times}
            results["rows"] = list(rows.values())
            (RESULTS / "scan_gpu.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            (RESULTS / "scan_gpu.md").write_text(table(results), encoding="utf-8")
            print(f"{time.perf_counter() - began:.0f} s: {size} {dtype} {times}", flush=True)
    print(table(results))
