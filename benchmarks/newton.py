"""Nonlinear cells for all steps at once by Newton iterations, beside recurra's own loop.

    python -m benchmarks.newton [--rounds N] [--seconds N]                  on a GPU; writes results/newton.{json,md}
    python -m benchmarks.newton --device cpu --longest 1024 --out FOLDER    to try it

Two cells whose Jacobian is diagonal: a unit reads its own state alone. One sequence, float32. Wall milliseconds of a
whole call, the device idle before and after: medians of interleaved rounds, after calls that warm up. Results are
written after every row; after `--seconds` no further row begins.
"""

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor

import recurra as rc
from benchmarks.environment import environment

RESULTS = Path(__file__).resolve().parent / "results"
CELLS = ("indrnn", "brc")
INPUTS, UNITS = 64, 64
SHORTEST, LONGEST = 256, 65_536
WARM = 4
PASSES = ("forward", "training")


def layers_of(cell: str, device: str) -> dict[str, Any]:
    """The same weights twice."""
    torch.manual_seed(0)
    loop = rc.layer(cell, INPUTS, UNITS, device=device)
    newton = rc.layer(cell, INPUTS, UNITS, device=device, parallel="newton")
    newton.load_state_dict(loop.state_dict())
    return {"loop": loop, "newton": newton}


def jobs_of(layer: Any, x: Tensor, cotangent: Tensor) -> dict[str, Callable[[], Any]]:
    given, weights = x.clone().requires_grad_(), list(layer.parameters())

    def forward() -> Tensor:
        with torch.no_grad():
            return layer(x)[0]

    return {
        "forward": forward,
        "training": lambda: torch.autograd.grad(layer(given)[0], [given, *weights], cotangent, allow_unused=True),
    }


def synchronise(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def difference(found: dict[str, dict[str, Callable[[], Any]]]) -> dict[str, float]:
    """The greatest one of outputs, and of gradients relative to the largest number of the same gradient."""
    y, expected = (found[way]["forward"]() for way in ("newton", "loop"))
    pairs = zip(*(found[way]["training"]() for way in ("newton", "loop")), strict=True)
    relative = [float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b is not None and b.any()]
    return {"outputs": float((y - expected).abs().max()), "gradients": max(relative)}


def row(cell: str, steps: int, device: str, rounds: int) -> dict[str, Any]:
    """Times of both ways at a length; None for Newton's where the iterations failed."""
    x = torch.randn(steps, 1, INPUTS, device=device, generator=torch.Generator(device).manual_seed(1))
    cotangent = torch.randn(steps, 1, UNITS, device=device, generator=torch.Generator(device).manual_seed(2))
    layers = layers_of(cell, device)
    found = {way: jobs_of(layer, x, cotangent) for way, layer in layers.items()}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        apart = difference(found)
    iterations = layers["newton"].newton_iterations[0]
    times: dict[tuple[str, str], list[float]] = {(way, what): [] for way in found for what in PASSES}
    for turn in range(rounds + WARM):
        for (way, what), taken in times.items():
            synchronise(device)
            began = time.perf_counter()
            found[way][what]()
            synchronise(device)
            if turn >= WARM:
                taken.append(1e3 * (time.perf_counter() - began))
    return {
        "cell": cell,
        "steps": steps,
        "iterations": iterations,
        "difference": apart,
        "warnings": [str(each.message) for each in told],
        "milliseconds": {way: {what: median(times[way, what]) for what in PASSES} for way in found},
    }


def break_even(rows: list[dict[str, Any]], what: str) -> int | None:
    """The length from which Newton's iterations are the faster way, between the lengths measured; None if at none."""
    ratios = [math.log(r["milliseconds"]["newton"][what] / r["milliseconds"]["loop"][what]) for r in rows]
    if not ratios or ratios[-1] > 0:
        return None
    last = max((i for i, ratio in enumerate(ratios) if ratio > 0), default=None)
    if last is None:
        return rows[0]["steps"]
    share = ratios[last] / (ratios[last] - ratios[last + 1])
    return round(rows[last]["steps"] * (rows[last + 1]["steps"] / rows[last]["steps"]) ** share)


def sentence(cell: str, rows: list[dict[str, Any]]) -> str:
    """What the rows of a cell say, in words."""
    if any(row["iterations"] is None for row in rows):
        return f"{cell}: the iterations failed at some length, and the loop ran instead."
    longest, told = rows[-1], []
    for what in PASSES:
        ratio = longest["milliseconds"]["loop"][what] / longest["milliseconds"]["newton"][what]
        at = break_even(rows, what)
        since = "no length measured pays" if at is None else f"it pays from about {at:,} steps on"
        told.append(f"{what} at {longest['steps']:,} steps {ratio:.2f} × the loop's speed ({since})")
    return f"{cell}: {'; '.join(told)}."


def page(about: dict[str, Any], rows: list[dict[str, Any]], rounds: int) -> str:
    lines = [
        "# Newton iterations over time",
        "",
        f"`python -m benchmarks.newton --rounds {rounds}` on {about['device'] or about['processor']}, torch "
        f"{about['torch']}: one sequence, {INPUTS} inputs, {UNITS} units, float32; wall milliseconds forward / "
        "training, medians. The loop is recurra's own, one kernel for all steps.",
        "",
        *(sentence(cell, of) + "\n" for cell in CELLS if (of := [r for r in rows if r["cell"] == cell])),
        "| cell | steps | loop | newton | iterations | greatest difference of outputs | of gradients, relative |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in rows:
        loop, newton = (" / ".join(f"{ms:.2f}" for ms in each["milliseconds"][w].values()) for w in ("loop", "newton"))
        apart = f"{each['difference']['outputs']:.1e} | {each['difference']['gradients']:.1e}"
        count = "failed" if each["iterations"] is None else each["iterations"]
        lines.append(f"| {each['cell']} | {each['steps']:,} | {loop} | {newton} | {count} | {apart} |")
    return "\n".join(lines) + "\n"


def write(folder: Path, rows: list[dict[str, Any]], rounds: int) -> None:
    about = environment()
    content = json.dumps({"environment": about, "rounds": rounds, "rows": rows}, indent=1) + "\n"
    for name, text in (("json", content), ("md", page(about, rows, rounds))):
        partial = folder / f"newton.{name}.partial"
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, folder / f"newton.{name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--longest", type=int, default=LONGEST)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    began, rows = time.perf_counter(), []
    for cell in CELLS:
        steps = SHORTEST
        while steps <= options.longest and time.perf_counter() - began < options.seconds:
            rows.append(row(cell, steps, options.device, options.rounds))
            print(rows[-1], flush=True)
            write(options.out, rows, options.rounds)
            steps *= 4
    print((options.out / "newton.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
