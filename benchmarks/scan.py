"""Cells whose states are affine in themselves: the scan alone against a copy, and whole calls with and without it.

    python -m benchmarks.scan [--threads N] [--rounds N]
    python -m benchmarks.scan --device cuda [--rounds N] [--seconds N] [--profile]

The scan alone is the loop that remains when all that reads no state is computed ahead: of a minGRU it reads z and g
and writes h. Its bytes are compared with a copy timed in the same rounds. For one sequence it is compared with the loop
that also computes the gates, on one thread. Whole calls run with `parallel="auto"` and with `parallel="scan"`. Rounds
are interleaved. The least time of a job counts, since others may use the machine; seconds of the processor, of all
threads together, stand beside those of the clock. The tables go to results/scan.md. On a card, `scan_on_a_card.py`
measures minGRU beside other libraries' scans.
"""

import argparse
import functools
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks import scan_on_a_card
from benchmarks.environment import environment
from benchmarks.timing import copy_job
from recurra.engine.cpu.call import ForwardCall, run_loop
from recurra.engine.cpu.executor import CpuExecutor
from recurra.engine.cpu.layout import dense
from recurra.engine.dispatch import Sequences, choose
from recurra.engine.plan.input_projection import split_input_projection

Job = Callable[[], object]
Times = dict[str, tuple[float, float]]  # job → least milliseconds of the clock and of the processor
RESULTS = Path(__file__).resolve().parent / "results"
WIDE, SINGLE = (4096, 8, 256, 256), ((2048, 1, 256, 256), (4096, 1, 256, 256), (16384, 1, 64, 64))
CELLS = ("min_gru", "sru", "lru")
CALLS = ((4096, 1, 256, 256), (2048, 16, 128, 128))


def least(jobs: Mapping[str, Job], rounds: int) -> Times:
    """The least times of each job, over interleaved rounds after two that are not counted."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in jobs}
    for round_ in range(rounds + 2):
        for name, job in jobs.items():
            wall, processor = time.perf_counter(), time.process_time()
            job()
            took = 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor)
            if round_ > 1:
                found[name].append(took)
    return {name: (min(w for w, _ in times), min(p for _, p in times)) for name, times in found.items()}


# ---------------------------------------------------------------------------------------------------- the scan alone


class GatesInLoop(CpuExecutor):
    """Only the products with x run ahead; the loop computes the gates."""

    @functools.cached_property
    def hoisted(self):
        return split_input_projection(self.plan.forward)


def loop_job(kind: type[CpuExecutor], size: tuple[int, int, int, int]) -> Job:
    """The loop of a minGRU that has run what comes before it."""
    steps, batch, inputs, units = size
    cell = rc.registry()["min_gru"](inputs, units)
    x = torch.randn(steps, batch, inputs)
    with torch.no_grad():
        states = cell.initial_state(batch, x)
        choice = choose(cell, Sequences(x, states))
        assert choice.executor is not None
        executor = kind(choice.executor.plan, torch.float32, scan=True)
        weights = dict(zip(executor.weight_names, executor.prologue(cell.weights()), strict=True))
        call: ForwardCall = executor.forward_call(dense(steps, batch), weights)
        packed = call.pack(weights)
        outputs, finals = call.run((x, *states), states, packed)
        tensors: tuple[Tensor, ...] = (x, *states, *outputs, *finals)
    return lambda: run_loop(call.loop, packed[0], tensors)


def scan_alone(threads: int, rounds: int) -> dict[str, Any]:
    copy, copied = copy_job()
    times = least({"copy": copy, "scan": loop_job(CpuExecutor, WIDE)}, rounds)
    steps, batch, _, units = WIDE
    moved = {"copy": copied, "scan": 12.0 * steps * batch * units}
    rates = {name: moved[name] / times[name][1] / 1e6 for name in moved}
    single = {}
    for size in SINGLE:
        jobs: dict[str, Job] = {}
        for name, kind, count in (("gates in the loop", GatesInLoop, 1), ("scan", CpuExecutor, threads)):
            torch.set_num_threads(count)
            jobs[name] = _with_threads(loop_job(kind, size), count)
        single[str(size)] = least(jobs, 3 * rounds)
    return {"size": WIDE, "milliseconds": times, "gigabytes per processor second": rates, "one sequence": single}


def _with_threads(job: Job, count: int) -> Job:
    def run() -> None:
        torch.set_num_threads(count)
        job()

    return run


# ---------------------------------------------------------------------------------------------------- whole calls


def call_jobs(name: str, size: tuple[int, int, int, int]) -> dict[str, Job]:
    steps, batch, inputs, units = size
    x = torch.randn(steps, batch, inputs)
    jobs: dict[str, Job] = {}
    for way in ("auto", "scan"):
        layer = rc.layer(name, inputs, units, parallel=way)
        trained = x.clone().requires_grad_()
        cotangent = torch.randn_like(layer(x)[0])

        def infer(layer: rc.Recurrent = layer) -> None:
            with torch.no_grad():
                layer(x)

        def train(layer: rc.Recurrent = layer, trained: Tensor = trained, cotangent: Tensor = cotangent) -> None:
            layer(trained)[0].backward(cotangent)

        jobs |= {f"{way}, forward": infer, f"{way}, training": train}
    return jobs


# ---------------------------------------------------------------------------------------------------- tables


def table(results: dict[str, Any]) -> str:
    of = results["environment"]
    lines = [
        "# Scans over time",
        "",
        f"`{results['command']}` on {of['processor']} ({of['cores']} cores, {results['threads']} threads; other"
        f" processes kept {results['load']:.1f} busy), torch {of['torch']}. Least milliseconds of the clock / of the"
        " processor, all threads together.",
        "",
    ]
    if "alone" in results:
        lines += _alone(results["alone"])
    lines += ["## Whole calls", "", "| cell | (T, B, D, H) | forward, auto | scan | training, auto | scan |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, sizes in results["calls"].items():
        for size, times in sizes.items():
            row = (times[f"{way}, {what}"] for what in ("forward", "training") for way in ("auto", "scan"))
            lines.append(f"| {name} | {size} | " + " | ".join(f"{w:.2f} / {p:.2f}" for w, p in row) + " |")
    return "\n".join([*lines, ""])


def _alone(found: dict[str, Any]) -> list[str]:
    rates, times = found["gigabytes per processor second"], found["milliseconds"]
    lines = [
        "## The scan alone",
        "",
        f"minGRU {tuple(found['size'])}, gates given: {rates['scan']:.1f} GB in a second of the processor,"
        f" {rates['scan'] / rates['copy']:.0%} of a copy's {rates['copy']:.1f}. By the clock, with the other processes:"
        f" {times['scan'][0]:.2f} ms and {times['copy'][0]:.2f} ms.",
        "",
        "| (T, B, D, H) | loop that computes the gates, one thread | scan | ratio of the clock |",
        "|---|---|---|---|",
    ]
    for size, times in found["one sequence"].items():
        before, scan = times["gates in the loop"], times["scan"]
        shown = " | ".join(f"{w:.3f} / {p:.3f}" for w, p in (before, scan))
        lines.append(f"| {size} | {shown} | {before[0] / scan[0]:.2f} |")
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=80, help="on a card: when no further size begins")
    parser.add_argument("--profile", action="store_true", help="on a card: print the kernels of a training step")
    parser.add_argument("--compile", type=int, help="on a card: only compile what the row of this number needs")
    given = parser.parse_args()
    if given.device == "cuda":
        _on_a_card(given)
        return
    torch.manual_seed(0)
    torch.set_num_threads(given.threads)
    results: dict[str, Any] = {"environment": environment(), "threads": given.threads}
    results["command"] = f"python -m benchmarks.scan --threads {given.threads} --rounds {given.rounds}"
    results["load"] = os.getloadavg()[0]
    results["alone"] = scan_alone(given.threads, given.rounds)
    torch.set_num_threads(given.threads)
    results["calls"] = {n: {str(s): least(call_jobs(n, s), given.rounds) for s in CALLS} for n in CELLS}
    (RESULTS / "scan.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "scan.md").write_text(table(results), encoding="utf-8")
    print(table(results))


def _on_a_card(given: argparse.Namespace) -> None:
    if given.compile is not None:
        scan_on_a_card.compile_row(given.compile)
        return
    if not given.profile:
        scan_on_a_card.measure(given.rounds, given.seconds)
        return
    for dtype in scan_on_a_card.DTYPES.values():
        for size in scan_on_a_card.SIZES:
            scan_on_a_card.profile(size, dtype)


if __name__ == "__main__":
    main()
