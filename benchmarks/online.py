"""Online learning: the time of a step, its growth, the quality of gradients, and what is learned in one pass.

    python -m benchmarks.online                      everything, about ten minutes on two cores
    python -m benchmarks.online speed memory         some of it
    python -m benchmarks.online tasks --seeds 1

Numbers go to results/online.json, tables to results/online.md, the picture of growth to results/online_growth.svg.
"""

import argparse
import ctypes
import json
import math
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import recurra as rc
from benchmarks.environment import environment
from recurra.data import tasks
from recurra.engine.forward_mode.influence import CompiledInfluence, InfluencePlan
from recurra.engine.forward_mode.row_chunk import chunk_of
from recurra.engine.forward_mode.words import library
from recurra.inspect.figures import PALETTE
from recurra.train import BPTT, DNI, FPTT, KFRTRL, RFLO, RTRL, UORO, EProp, ForwardGradient, Predictor, SnAp
from recurra.train.online.explain import costs
from recurra.train.sensitivity import Dense
from recurra.train.step_function import StepFunction

RESULTS = Path(__file__).resolve().parent / "results"
IN_A_ROW = 5  # calls of a round that are timed, after one that is not: the other process has emptied the caches
INPUTS, UNITS, DRAWS = 8, 16, 60
Numbers = dict[str, Any]


def gru(units: int, inputs: int = INPUTS) -> rc.Recurrent:
    torch.manual_seed(0)
    return rc.layer("gru", inputs, units, reset_after=True)


def step_job(layer: rc.Recurrent, steps: int | None) -> Callable[[], object]:
    """One step of RTRL (None) or SnAp(steps), from x to the gradient of given cotangents of the outputs."""
    run = CompiledInfluence(InfluencePlan(layer.cell_list, layer.depth, steps), 1)
    run.reset(torch.zeros(1, run.plan.structure.state_size))
    x, g = torch.randn(1, layer.input_size), torch.randn(1, 1, layer.output_size)

    def job() -> None:
        run.forward(x)
        run.learn(g)

    return job


def chunk_job(layer: rc.Recurrent, steps: int | None) -> tuple[Callable[[], object], int]:
    """As many steps of a stream as a call with update="call" takes at once; their number."""
    run = CompiledInfluence(InfluencePlan(layer.cell_list, layer.depth, steps), 1)
    run.reset(torch.zeros(1, run.plan.structure.state_size))
    chunk = chunk_of(run)
    assert chunk is not None
    x, g = torch.randn(chunk.length, 1, layer.input_size), torch.randn(chunk.length, 1, layer.output_size)

    def job() -> None:
        chunk.forward(x)
        chunk.learn(g, True)

    return job, chunk.length


def forward_job(layer: rc.Recurrent) -> Callable[[], object]:
    x = torch.randn(1, 1, layer.input_size)
    with torch.no_grad():
        state = layer(x)[1]

    @torch.no_grad()
    def job() -> None:
        layer(x, state)

    return job


def functional_job(layer: rc.Recurrent) -> Callable[[], object]:
    """The same step of RTRL through torch.func."""
    sensitivity = Dense(StepFunction(layer))
    sensitivity.reset(1)
    x, g = torch.randn(1, layer.input_size), torch.randn(1, layer.output_size)
    for _ in range(15):  # after which it is traced
        sensitivity.advance(x)
    return lambda: torch.einsum("bq,bqp->p", g, sensitivity.advance(x)[1])


def fastest(jobs: dict[Any, Callable[[], object]], rounds: int = 40) -> dict[str, float]:
    """Processor time in the fastest of some interleaved rounds, microseconds: other work disturbs it least."""
    best = dict.fromkeys(jobs, math.inf)
    for _ in range(rounds):
        for name, job in jobs.items():
            repeats = max(1, min(20, int(2e-3 / best[name]))) if math.isfinite(best[name]) else 1
            job()
            started = time.process_time()
            for _ in range(repeats):
                job()
            best[name] = min(best[name], (time.process_time() - started) / repeats)
    return {str(name): 1e6 * seconds for name, seconds in best.items()}


def product_job(units: int, weights: int) -> Callable[[], object]:
    a, b, to = torch.randn(units, units), torch.randn(units, weights), torch.empty(units, weights)
    return lambda: torch.mm(a, b, out=to)


# ---------------------------------------------------------------------------------------------------- parts


def speed(_: argparse.Namespace) -> Numbers:
    """Processor time of a step in microseconds, batch 1, float32."""
    torch.manual_seed(0)
    plain = rc.layer("gru", INPUTS, 64)
    weights = sum(p.numel() for p in plain.parameters())
    jobs: dict[Any, Callable[[], object]] = {
        "GRU-64: its matrix product": product_job(64, weights),
        "GRU-64: exact RTRL": step_job(plain, None),
        "GRU-64: RTRL through torch.func": functional_job(plain),
        "GRU-256: forward": forward_job(gru(256)),
        "GRU-256: SnAp(1)": step_job(gru(256), 1),
    }
    for name in ("indrnn", "min_gru", "min_lstm"):
        for units in (64, 256):
            layer = rc.layer(name, INPUTS, units)
            jobs[f"{name}-{units}: forward"] = forward_job(layer)
            jobs[f"{name}-{units}: exact RTRL"] = step_job(layer, None)
    chunks = {
        "GRU-64: exact RTRL": chunk_job(plain, None),
        "GRU-64 with reset_after: SnAp(1)": chunk_job(gru(64), 1),
        "GRU-256: SnAp(1)": chunk_job(gru(256), 1),
        "min_gru-64: exact RTRL": chunk_job(rc.layer("min_gru", INPUTS, 64), None),
        "indrnn-64: exact RTRL": chunk_job(rc.layer("indrnn", INPUTS, 64), None),
    }
    calls = {f"{name}, in chunks": found for name, found in chunks.items()}
    learned = "GRU-64: exact RTRL, learner with an update after every step"
    calls[learned] = call_job(RTRL, rc.layer("gru", INPUTS, 64), "step", 256)
    times = fastest(jobs | {name: found[0] for name, found in calls.items()})
    for name, found in calls.items():
        times[name] /= found[1]
    ratios = {
        "RTRL in chunks / matrix product, GRU-64": times["GRU-64: exact RTRL, in chunks"]
        / times["GRU-64: its matrix product"],
        "torch.func / RTRL in chunks, GRU-64": times["GRU-64: RTRL through torch.func"]
        / times["GRU-64: exact RTRL, in chunks"],
        "torch.func / RTRL with an update after every step, GRU-64": times["GRU-64: RTRL through torch.func"]
        / times[learned],
        "RTRL / matrix product, GRU-64": times["GRU-64: exact RTRL"] / times["GRU-64: its matrix product"],
        "torch.func / compiled, GRU-64": times["GRU-64: RTRL through torch.func"] / times["GRU-64: exact RTRL"],
        "SnAp(1) / forward, GRU-256": times["GRU-256: SnAp(1)"] / times["GRU-256: forward"],
    }
    for name in ("indrnn", "min_gru", "min_lstm"):
        for units in (64, 256):
            at = f"{name}-{units}"
            ratios[f"RTRL / forward, {at}"] = times[f"{at}: exact RTRL"] / times[f"{at}: forward"]
    return {"microseconds": times, "ratios": ratios}


def call_job(
    kind: Callable[..., Any], layer: rc.Recurrent, update: str, steps: int
) -> tuple[Callable[[], object], int]:
    """A call of a learner with so many steps of a stream: from x and targets to updated weights, by Adam."""
    learner = kind(Predictor(layer, 1), "mse", update=update, carry=True)
    x, target = torch.randn(steps, 1, layer.input_size), torch.randn(steps, 1, 1)
    return lambda: learner.step(x, target), steps


def peers(args: argparse.Namespace) -> Numbers:
    """Processor time of a step beside braintrace (JAX): whole calls of learners, interleaved rounds, one thread.

    braintrace leaves Adam out where a whole call has one gradient; recurra does not.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    plain, after, elementwise = (lambda: rc.layer("gru", INPUTS, 64)), (lambda: gru(64)), "min_gru"
    pairs: dict[str, tuple[str, Any, Callable[[], rc.Recurrent]]] = {
        "GRU-64, D-RTRL": ("e-prop", EProp, plain),
        "GRU-64, e-prop": ("e-prop", EProp, plain),
        "GRU-64, SnAp(1)": ("SnAp(1), reset after the product", SnAp, after),
        "GRU-64, SnAp(2)": ("exact RTRL", RTRL, plain),
        "GRU-64, UORO": ("UORO", UORO, plain),
        "minGRU-64, D-RTRL": ("exact RTRL", RTRL, lambda: rc.layer(elementwise, INPUTS, 64)),
    }
    script = Path(__file__).with_name("online_braintrace.py")
    command = [args.braintrace, "-W", "ignore", str(script)]
    found: dict[str, list[float]] = {}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for theirs, (ours, kind, make) in pairs.items():
            for when, update in (("a call", "call"), ("every step", "step")):
                if (ours, update) == ("UORO", "step"):  # theirs sees windows of two steps or more
                    continue
                run, steps = call_job(kind, make(), update, 256)
                run()
                times: tuple[list[float], list[float]] = ([], [])
                for number in range(5 if "SnAp(2)" in theirs or "UORO" in theirs else 12):
                    peer.stdin.write(f"{theirs}, {when}\n")
                    peer.stdin.flush()
                    other = float(peer.stdout.readline())
                    run()
                    started = time.process_time()
                    for _ in range(IN_A_ROW):
                        run()
                    own = 1e6 * (time.process_time() - started) / steps / IN_A_ROW
                    if number:  # the first round of a stream comes before its caches are warm
                        times[0].append(own), times[1].append(other)
                name = f"{theirs} ({when}): recurra's {ours}"
                found[name] = [f(t) for f in (statistics.median, min) for t in times]
                print(name, found[name], flush=True)
        peer.stdin.close()
    columns = "recurra", "braintrace", "recurra, fastest", "braintrace, fastest"
    rows = {name: dict(zip(columns, times, strict=True)) for name, times in found.items()}
    for row in rows.values():
        row["ratio"] = row["braintrace"] / row["recurra"]
        row["ratio of the fastest"] = row["braintrace, fastest"] / row["recurra, fastest"]
    return rows


def limits(_: argparse.Namespace) -> Numbers:
    """What the products of a step of e-prop take at the rate of whole products of matrices, on one thread."""
    torch.set_num_threads(1)
    side = 128  # three matrices of 64 KiB
    a, b, to = (torch.randn(side, side) for _ in range(3))
    places = [n for t in (to, a, b) for n in (ctypes.c_void_p(t.data_ptr()), ctypes.c_int64(side))]
    sizes, own = [ctypes.c_int64(n) for n in (side, side, side, 0)], library("float")
    jobs = {"ours": lambda: own.sheet_product(*places, *sizes), "torch": lambda: torch.mm(a, b, out=to)}
    times, depth = fastest(jobs, 300), 64 + INPUTS
    forward, traced = 3 * 64 * depth, 2 * 64 * depth  # the reset gate has no trace on its own unit
    counts = {"a call": forward + 2 * traced, "every step, without the optimiser": forward + traced}
    names = {"ours": "the loop of recurra", "torch": "torch.mm"}
    return {
        f"{when}: {count:,} multiply-adds at the rate of {names[which]}": count * times[which] / side**3
        for when, count in counts.items()
        for which in times
    }


def growth(_: argparse.Namespace) -> Numbers:
    """Microseconds of a step over the number of units."""
    sizes, curves = (16, 32, 64, 128, 256), {}
    for units in sizes:
        layers: dict[Any, Any] = {"GRU, forward": forward_job(gru(units)), "GRU, SnAp(1)": step_job(gru(units), 1)}
        layers["minGRU, exact RTRL"] = step_job(rc.layer("min_gru", INPUTS, units), None)
        if units <= 128:
            layers["GRU, exact RTRL"] = step_job(gru(units), None)
        for name, microseconds in fastest(layers, 20).items():
            curves.setdefault(name, []).append(microseconds)
    draw_growth(sizes, curves)
    return {"units": sizes, "microseconds": curves}


def memory(_: argparse.Namespace) -> Numbers:
    """Resident memory, MiB, while one stream is learned for a million steps."""
    job, found = step_job(rc.layer("min_gru", INPUTS, 32), None), {}
    done = 0
    for steps in (1_000, 10_000, 100_000, 1_000_000):
        while done < steps:
            job()
            done += 1
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        found[f"{steps:,} steps"] = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return found


def gradients(_: argparse.Namespace) -> Numbers:
    """Bias and spread of gradients against the exact one, relative to its norm: copying, growing lags, GRU-16."""
    found: dict[str, dict[str, str]] = {}
    for lag in (2, 10, 40):
        task = tasks.make("copy_memory", lag=lag, items=3, alphabet=4)
        batch = task.draw(1, torch.Generator().manual_seed(0))
        model = Predictor(gru(UNITS, task.input_size).double(), task.output_size)
        x, target = batch.inputs.double(), batch.targets
        exact = flat(RTRL(model, "cross_entropy").gradients(x, target))
        for name, make in ALGORITHMS.items():
            draws = DRAWS if name in ("UORO", "KFRTRL", "ForwardGradient") else 1
            if not hasattr(make(model, "cross_entropy"), "gradients"):
                continue
            estimates = torch.stack(
                [flat(make(model, "cross_entropy", **seeded(name, k)).gradients(x, target)) for k in range(draws)]
            )
            bias = float((estimates.mean(0) - exact).norm() / exact.norm())
            spread = float((estimates - estimates.mean(0)).square().sum(1).mean().sqrt() / exact.norm())
            found.setdefault(name, {})[f"lag {lag}"] = f"{bias:.2f} ± {spread:.2f}"
    return found


def seeded(name: str, seed: int) -> dict[str, int]:
    return {"seed": seed} if name in ("UORO", "KFRTRL", "ForwardGradient", "RFLO") else {}


def flat(named: dict[str, Tensor]) -> Tensor:
    return torch.cat([g.flatten() for n, g in named.items() if n.startswith("layer")])


def windows_of_one(model: nn.Module, loss: str, *given: Any, update: str = "call", **options: Any) -> FPTT:
    """FPTT, which always updates after a window."""
    return FPTT(model, loss, *given, **options)


def truncated(model: nn.Module, loss: str, *given: Any, update: str = "call", **options: Any) -> BPTT:
    """Full BPTT for calls, windows of five steps for streams."""
    return BPTT(model, loss, *given, k1=5 if update == "step" else None, **options)


ALGORITHMS: dict[str, Callable[..., Any]] = {
    "RTRL": RTRL,
    "SnAp(1)": SnAp,
    "KFRTRL": KFRTRL,
    "UORO": UORO,
    "ForwardGradient": ForwardGradient,
    "EProp": EProp,
    "RFLO": RFLO,
    "DNI": DNI,
    "FPTT": windows_of_one,
    "BPTT": truncated,
}


def in_one_pass(args: argparse.Namespace) -> Numbers:
    """Mean and deviation over seeds of what is learned in one pass, GRU-16 and Adam."""
    found: dict[str, dict[str, str]] = {}
    for name, make in ALGORITHMS.items():
        row: dict[str, list[float]] = {}
        for seed in range(args.seeds):
            for task, run in {"copy": copying, "adding": adding, "drift": drifting, "reber": reber}.items():
                row.setdefault(task, []).append(run(make, seed, args.steps))
        found[name] = {
            task: f"{sum(v) / len(v):.3f}" + (f" ± {torch.tensor(v).std():.3f}" if len(v) > 1 else "")
            for task, v in row.items()
        }
        print(name, found[name], flush=True)
    return found


def predictor(seed: int, inputs: int, outputs: int) -> Predictor:
    torch.manual_seed(seed)
    return Predictor(rc.layer("gru", inputs, UNITS, reset_after=True), outputs)


def calls(make: Callable[..., Any], task: Any, seed: int, loss: str, count: int) -> float:
    """Mean loss of the last tenth of so many calls with eight new sequences each."""
    learner = make(predictor(seed, task.input_size, task.output_size), loss, "adam", 1e-2, update="call")
    random, losses = torch.Generator().manual_seed(seed), []
    for _ in range(count):
        batch = task.draw(8, random)
        losses.append(learner.step(batch.inputs, batch.targets))
    last = max(count // 10, 1)
    return sum(losses[-last:]) / last


def copying(make: Callable[..., Any], seed: int, steps: int) -> float:
    task = tasks.make("copy_memory", lag=4, items=2, alphabet=4)
    return calls(make, task, seed, "cross_entropy", steps // 8)


def adding(make: Callable[..., Any], seed: int, steps: int) -> float:
    return calls(make, tasks.make("adding", length=8), seed, "mse", steps // 8)


def drifting(make: Callable[..., Any], seed: int, steps: int) -> float:
    """Mean squared error of all predictions of a wave whose frequency and offset change in the middle."""
    random = torch.Generator().manual_seed(seed)
    t = torch.arange(steps + 1)
    phase = torch.cumsum(torch.where(t < steps // 2, 0.3, 0.7), 0)
    series = torch.sin(phase) + torch.where(t < steps // 2, 0.0, 0.5) + 0.05 * torch.randn(steps + 1, generator=random)
    x, target = series[:-1].view(-1, 1, 1), series[1:].view(-1, 1, 1)
    return stream(make, predictor(seed, 1, 1), x, target, "mse", slice(None))


def reber(make: Callable[..., Any], seed: int, steps: int) -> float:
    """Mean cross-entropy of the last half of an endless Reber string."""
    task = tasks.make("continual_reber", length=steps)
    batch = task.draw(1, torch.Generator().manual_seed(seed))
    model = predictor(seed, task.input_size, task.output_size)
    return stream(make, model, batch.inputs, batch.targets, "cross_entropy", slice(len(batch.inputs) // 2, None))


def stream(make: Callable[..., Any], model: nn.Module, x: Tensor, target: Tensor, loss: str, scored: slice) -> float:
    """Every loss before its update, in pieces of ten steps."""
    learner = make(model, loss, "adam", 3e-3, update="step", carry=True)
    losses = [learner.step(x[i : i + 10], target[i : i + 10]) for i in range(0, len(x), 10)]
    low = (scored.start or 0) // 10
    kept = losses[low:]
    return sum(kept) / len(kept)


def carried(_: argparse.Namespace) -> list[str]:
    """What each algorithm carries beside the state: GRU-64, float32."""
    return costs(Predictor(gru(64), 1))


PARTS: dict[str, Callable[[argparse.Namespace], Any]] = {
    "speed": speed,
    "peers": peers,
    "limits": limits,
    "growth": growth,
    "memory": memory,
    "carried": carried,
    "gradients": gradients,
    "tasks": in_one_pass,
}


# ---------------------------------------------------------------------------------------------------- results


def draw_growth(sizes: tuple[int, ...], curves: dict[str, list[float]]) -> None:
    """Both axes logarithmic; the name of a curve stands at its end."""
    width, height, left, right, top, bottom = 720, 420, 86, 174, 50, 50
    font = 'font-family="sans-serif" font-size="12"'
    low, high = 0, math.ceil(math.log10(max(v for c in curves.values() for v in c)))

    def place(units: float, value: float) -> tuple[float, float]:
        x = left + math.log2(units / sizes[0]) / math.log2(sizes[-1] / sizes[0]) * (width - left - right)
        return x, height - bottom - (math.log10(value) - low) / (high - low) * (height - top - bottom)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {font}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="26" font-size="16">Time of one step of online learning, batch 1, float32</text>',
        f'<text x="{(left + width - right) / 2}" y="{height - 10}" text-anchor="middle">units</text>',
    ]
    for power in range(low, high + 1):
        y = place(sizes[0], 10.0**power)[1]
        lines.append(f'<path d="M {left} {y:.1f} H {width - right}" stroke="#ddd"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10**power:,} µs</text>')
    lines += [
        f'<text x="{place(units, 1)[0]:.1f}" y="{height - 28}" text-anchor="middle">{units}</text>' for units in sizes
    ]
    for number, (name, curve) in enumerate(curves.items()):
        points = [place(units, value) for units, value in zip(sizes, curve, strict=False)]
        text, colour = " ".join(f"{x:.1f},{y:.1f}" for x, y in points), PALETTE[number]
        lines.append(f'<polyline points="{text}" stroke="{colour}" stroke-width="2.2" fill="none"/>')
        x, y = points[-1]
        lines.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    (RESULTS / "online_growth.svg").write_text("\n".join([*lines, "</svg>\n"]), encoding="utf-8")


def table(rows: dict[str, Any], first: str, digits: str = ".3g") -> list[str]:
    """Rows of numbers, or of numbers by column, as a Markdown table."""
    if not isinstance(next(iter(rows.values())), dict):
        rows = {name: {"": value} for name, value in rows.items()}
    columns = list(next(iter(rows.values())))
    shown = lambda v: v if isinstance(v, str) else format(v, digits)  # noqa: E731
    body = [f"| {name} | {' | '.join(shown(row[c]) for c in columns)} |" for name, row in rows.items()]
    return [f"| {first} | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *body, ""]


def write(found: dict[str, Any]) -> None:
    env = found["environment"]
    lines = [
        "# Online learning",
        "",
        f"torch {env['torch']}, {env['cores']} cores, {env['processor']}. The parts were run by",
        "",
        *(f"- `{command}`" for command in found["commands"].values()),
        "",
    ]
    if "speed" in found:
        lines += [
            "## Time of a step",
            "",
            "Processor time from x to the gradient, given the cotangents of the outputs; the fastest of interleaved "
            "rounds. In chunks: a step of a carried stream whose weights change once per call.",
            "",
        ]
        lines += table(found["speed"]["ratios"], "ratio") + table(found["speed"]["microseconds"], "microseconds")
    if "peers" in found:
        lines += [
            "## Beside braintrace 0.2.6 (JAX)",
            "",
            "Processor time of a step in microseconds, batch 1, float32, one thread; whole calls of 256 steps (32 for",
            "its SnAp(2)), five in a row, with linear head and squared error; medians of interleaved rounds, and the",
            "fastest: other work ran on the machine. `every step`: Adam updates all weights after each step.",
            "`a call`: one gradient for the call; recurra's time has one update in it, braintrace's none.",
            "Equations of the cells differ in detail; D-RTRL and e-prop leave out what units do to each other.",
            "",
        ]
        lines += table(found["peers"], "braintrace, beside recurra")
    if "limits" in found:
        lines += [
            "The products of a step of e-prop of GRU-64 alone, at the rate of products of matrices (128 × 128).",
            "A call multiplies forward, for the gradient and for the traces that it leaves. With an update after every",
            "step, traces, weights and two moments, 147 KB, are read and written besides.",
            "",
            *table(found["limits"], "microseconds of one thread"),
        ]
    if "growth" in found:
        lines += ["## Growth", "", "![time over units](online_growth.svg)", ""]
    if "memory" in found:
        lines += ["## Resident memory of one stream, MiB", "", *table(found["memory"], "minGRU-32, exact RTRL", ".1f")]
    if "carried" in found:
        lines += ["## Carried beside the state, GRU-64 with reset_after: memory, multiply-adds a step", "", "```"]
        lines += [*found["carried"], "```", ""]
    if "gradients" in found:
        lines += ["## Gradients against the exact one", "", "Relative bias ± spread over draws (60 where random); "]
        lines += ["copying 3 items over a growing lag, GRU-16 at its first weights.", ""]
        lines += table(found["gradients"], "algorithm")
    if "tasks" in found:
        lines += ["## One pass", "", "Copy: cross-entropy, and adding: squared error, of the last tenth of the calls. "]
        lines += ["Drift: squared error of all predictions of a wave that changes in the middle. Reber: cross-entropy "]
        lines += ["of the last half of an endless string. GRU-16, Adam. BPTT on streams is truncated to 5 steps.", ""]
        lines += table(found["tasks"], "algorithm")
    (RESULTS / "online.md").write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--braintrace", metavar="PYTHON", help="Interpreter with braintrace, for the part `peers`.")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    file = RESULTS / "online.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    options = f"--seeds {args.seeds} --steps {args.steps} --threads {args.threads}"
    for name in args.parts or PARTS:
        if name == "peers" and args.braintrace is None:
            print("peers: left out; they need --braintrace", flush=True)
            continue
        started = time.perf_counter()
        found[name] = PARTS[name](args)
        peer = " --braintrace PYTHON" if name == "peers" else ""
        found.setdefault("commands", {})[name] = f"python -m benchmarks.online {name} {options}{peer}"
        print(f"{name}: {time.perf_counter() - started:.0f} s", flush=True)
    found["environment"] = environment()
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    write(found)


if __name__ == "__main__":
    main()
