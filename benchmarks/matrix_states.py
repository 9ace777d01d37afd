"""Cells whose states are matrices, forward and training, beside kernels written for each of them.

    python -m benchmarks.matrix_states [--device cuda] [--cells gla,rwkv7] [--rounds N] [--check] [--profile]

On a card: bf16 inputs and weights, the matrices in single precision, beside flash-linear-attention's kernels and
xLSTM's where they are installed; projections and gates are part of both. On the CPU: one thread beside the plain loop,
in milliseconds of the processor, which leave out what other programs take. Medians of interleaved rounds. `--check`
compares values and gradients with the plain loop instead, `--profile` prints the kernels of one training step. On a
card, kernels are compiled first, in many processes. The tables go to results/matrix_states_gpu.md or matrix_states.md.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks.ahead import side_by_side
from benchmarks.environment import environment
from benchmarks.matrix_peers import MOST_CONFIGURATIONS, peers
from benchmarks.timing import interleaved
from recurra.cell import TIME

Job = Callable[[], object]
RESULTS = Path(__file__).resolve().parent / "results"
CELLS = (
    *("linear_transformer", "delta_net", "gated_delta_net", "gla", "retention", "rwkv6", "rwkv7"),
    *("mlstm", "fast_weights"),
)
KERNELS = ("chunk", "recurra", "fused_recurrent")  # those that compile longest first
SIZES = {"cuda": ((2048, 8, 4, 64), (512, 32, 8, 64)), "cpu": ((256, 4, 4, 64),)}  # (T, B, heads, keys = values)


def layer_of(name: str, heads: int, size: int, inputs: int, **options: Any) -> rc.Recurrent:
    if name == "fast_weights":
        return rc.layer(name, inputs, size, **options)
    return rc.layer(name, inputs, heads * size, heads=heads, **options)


def training(run: Callable[[Tensor], Tensor], x: Tensor, weights: list[Tensor]) -> Job:
    """A training step: forward, and gradients of x and of the weights."""
    given = x.detach().clone().requires_grad_()
    cotangent = torch.randn_like(run(given))
    return lambda: torch.autograd.grad(run(given), [given, *weights], cotangent, allow_unused=True)


def jobs_on_a_card(name: str, size: tuple[int, int, int, int], of: str = "") -> dict[str, dict[str, Job]]:
    """Pass → library → job, of the libraries and kernels whose name contains `of`."""
    steps, batch, heads, keys = size
    inputs = heads * keys
    layer = layer_of(name, heads, keys, inputs, device="cuda", dtype=torch.bfloat16)
    cell: Any = layer.cell_list[0]
    weights: list[Tensor] = list(layer.parameters())
    x = torch.randn(steps, batch, inputs, device="cuda", dtype=torch.bfloat16)
    by_batch = x.transpose(0, 1).contiguous()
    found: dict[str, dict[str, Job]] = {"forward": {}, "training": {}}
    for what in found:
        runs = {"recurra": (lambda given: layer(given)[0], x)}
        runs |= {kernel: (run, by_batch) for kernel, run in peers(name, cell, what == "training").items()}
        for label, (run, given) in runs.items():
            if of not in label:
                continue
            try:
                job = training(run, given, weights) if what == "training" else _inference(run, given)
                job()
            except Exception as error:
                print(f"{name} {label} {what}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            else:
                found[what][label] = job
    return found


def _inference(run: Callable[[Tensor], Tensor], x: Tensor) -> Job:
    def job() -> None:
        with torch.no_grad():
            run(x)

    return job


def on_a_card(jobs: dict[str, Job], rounds: int) -> dict[str, float]:
    """Median milliseconds of each job, in turn, by the card's clock; three calls of each warm up."""
    times: dict[str, list[float]] = {label: [] for label in jobs}
    for round_ in range(rounds + 3):
        for label, job in jobs.items():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            job()
            end.record()
            torch.cuda.synchronize()
            if round_ >= 3:
                times[label].append(start.elapsed_time(end))
    return {label: median(values) for label, values in times.items()}


def on_the_cpu(name: str, size: tuple[int, int, int, int], rounds: int) -> dict[str, dict[str, float]]:
    steps, batch, heads, keys = size
    layer = layer_of(name, heads, keys, heads * keys)
    x = torch.randn(steps, batch, heads * keys)
    found = {}
    for what in ("forward", "training"):
        run = lambda given: layer(given)[0]  # noqa: E731
        job = training(run, x, list(layer.parameters())) if what == "training" else _inference(run, x)

        def plainly(job: Job = job) -> None:
            with rc.set_backend("reference"):
                job()

        times = interleaved({"recurra": job, "plain loop": plainly}, rounds, clock=time.process_time)
        found[what] = {label: 1e3 * seconds for label, seconds in times.items()}
    return found


# ---------------------------------------------------------------------------------------------------- the check


def check(name: str, dtype: torch.dtype, device: str, ragged: bool) -> str:
    """The largest difference from the plain loop in double precision, of values and of gradients, in parts of the
    largest number of each; in brackets that of the plain loop in the same dtype."""
    torch.manual_seed(0)
    layer = layer_of(name, 4, 64, 96, device=device)
    x = torch.randn(70, 3, 96, device=device)
    lengths = [70, 33, 5] if ragged else None
    layer, x = layer.to(dtype), x.to(dtype)
    exact = layer_of(name, 4, 64, 96, device=device).double()
    exact.load_state_dict(layer.state_dict())
    chosen = rc.explain(layer, x.requires_grad_()).count("in registers")
    with rc.set_backend("reference"):
        wanted = _results(exact, x.double(), lengths)
        plain = _results(layer, x, lengths)
    made = _results(layer, x, lengths)
    worst = [
        [max(_distance(a, b) for a, b in zip(found[i], wanted[i], strict=True)) for i in range(2)]
        for found in (made, plain)
    ]
    kind = f"{name} {str(dtype).removeprefix('torch.')}{' ragged' if ragged else ''}"
    good = bool(chosen) and all(own <= 4 * other + 1e-5 for own, other in zip(*worst, strict=True))
    (value, gradient), (plain_value, plain_gradient) = worst
    return (
        f"{'ok  ' if good else 'LOOK'} {kind}: values {value:.1e} ({plain_value:.1e}),"
        f" gradients {gradient:.1e} ({plain_gradient:.1e}){'' if chosen else ', not by the kernel'}"
    )


def _results(layer: rc.Recurrent, x: Tensor, lengths: list[int] | None) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    given = x.detach().requires_grad_()
    cell, states = layer.cell_list[0], []
    for state, start in zip(cell.carried, cell.initial_state(x.shape[1], x), strict=True):
        noise = 0.1 * torch.randn(start.shape, dtype=torch.float32, device=x.device)
        if state.name == TIME:  # counts steps, and has no gradient
            states.append(start[None])
        else:
            states.append(state.with_axes(noise.to(x.dtype)[None]).requires_grad_())
    y, finals = layer(given, tuple(states) if len(states) > 1 else states[0], lengths=lengths)
    finals = finals if isinstance(finals, tuple) else (finals,)
    values = [y, *finals]
    torch.manual_seed(2)
    cotangents = [torch.randn(v.shape, dtype=torch.float32, device=x.device).to(v.dtype) for v in values]
    pairs = [(v, c) for v, c in zip(values, cotangents, strict=True) if v.requires_grad]
    wanted = [given, *(s for s in states if s.requires_grad), *layer.parameters()]
    grads = torch.autograd.grad([v for v, _ in pairs], wanted, [c for _, c in pairs], allow_unused=True)
    return [v.detach() for v in values], [torch.zeros(1, device=x.device) if g is None else g for g in grads]


def _distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max().clamp(min=1e-6))


# ---------------------------------------------------------------------------------------------------- tables


def table(results: dict[str, Any]) -> str:
    of = results["environment"]
    where = of["device"] if results["device"] == "cuda" else f"{of['processor']}, one thread"
    clock = "" if results["device"] == "cuda" else " of the processor"
    lines = [
        "# States that are matrices",
        "",
        f"`{results['command']}` on {where}, torch {of['torch']}, triton {of['triton']}. Median milliseconds{clock} of"
        " a whole layer: projections, gates and recurrence; training has all gradients. Where other libraries let"
        f" Triton choose among configurations of a kernel, it chose among {MOST_CONFIGURATIONS}.",
        *(["", results["note"]] if "note" in results else []),
        "",
        "| cell | (T, B, heads, keys = values) | pass | recurra | peer | ratio |",
        "|---|---|---|---|---|---|",
    ]
    for name, sizes in results["times"].items():
        for size, passes in sizes.items():
            for what, times in passes.items():
                own = times.get("recurra", float("nan"))
                others = {label: t for label, t in times.items() if label != "recurra"}
                shown = "<br>".join(f"{label} {t:.2f}" for label, t in others.items())
                ratios = "<br>".join(f"{t / own:.2f} ×" for t in others.values())
                lines.append(f"| {name} | {size} | {what} | {own:.2f} | {shown} | {ratios} |")
    return "\n".join([*lines, ""])


def profile(name: str, size: tuple[int, int, int, int]) -> None:
    job = jobs_on_a_card(name, size, "recurra")["training"]["recurra"]
    for _ in range(3):
        job()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as run:
        job()
        torch.cuda.synchronize()
    print(name, size)
    print(run.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=60))


def compile_ahead(names: list[str]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.matrix_states"]
    side_by_side([*command, "--compile", of, "--cells", name] for of in KERNELS for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--compile", choices=KERNELS, help="on a card: only compile such kernels for the cells")
    given = parser.parse_args()
    torch.manual_seed(0)
    names = given.cells.split(",")
    if given.check:
        for name in names:
            for dtype in (torch.float32, torch.bfloat16):
                for ragged in (False, True):
                    print(check(name, dtype, given.device, ragged), flush=True)
        return
    if given.compile:
        for name in names:
            for size in SIZES["cuda"]:
                jobs_on_a_card(name, size, given.compile)
        return
    if given.profile:
        for name in names:
            profile(name, SIZES["cuda"][0])
        return
    if given.device == "cpu":
        torch.set_num_threads(1)
    if given.device == "cuda":
        compile_ahead(names)
    times: dict[str, Any] = {}
    for name in names:
        for size in SIZES[given.device]:
            if given.device == "cpu":
                found = on_the_cpu(name, size, given.rounds)
            else:
                found = {what: on_a_card(each, given.rounds) for what, each in jobs_on_a_card(name, size).items()}
            times.setdefault(name, {})[str(size)] = found
            print(name, size, {w: {k: round(t, 3) for k, t in f.items()} for w, f in found.items()}, flush=True)
            save(times, given)
    print((RESULTS / f"{stem(given.device)}.md").read_text())


def save(times: dict[str, Any], given: argparse.Namespace) -> None:
    """After every size, so that a run that is stopped has a result."""
    results = {
        "environment": environment("flash-linear-attention", "mlstm_kernels"),
        "command": f"python -m benchmarks.matrix_states --device {given.device} --cells {given.cells}"
        f" --rounds {given.rounds}",
        "device": given.device,
        "times": times,
    }
    path = RESULTS / stem(given.device)
    path.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(table(results), encoding="utf-8")


def stem(device: str) -> str:
    return "matrix_states" if device == "cpu" else "matrix_states_gpu"


if __name__ == "__main__":
    main()
