"""The conditional random field against pytorch-crf: training (log-likelihood and its gradient) and decoding.

    OMP_WAIT_POLICY=passive python benchmarks/crf.py [--threads 2] [--rounds 40]

Both take the same numbers in turn, round by round; medians, and the interquartile range of the rounds. Before anything
is timed, likelihoods, gradients and paths are compared. With the variable, threads sleep while they wait for others:
on a machine with other work to do, two that spin take each other's time.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch
from environment import environment  # pyrefly: ignore
from torch import Tensor
from torchcrf import CRF as Theirs

import recurra as rc

SIZES = ((32, 64, 20), (32, 64, 5), (8, 24, 20))  # batch, steps, tags
RESULTS = Path(__file__).parent / "results"
Jobs = dict[str, Callable[[], object]]


def jobs(batch: int, steps: int, tags: int) -> Jobs:
    torch.manual_seed(0)
    theirs, ours = Theirs(tags), rc.CRF(tags)
    ours.load_state_dict(theirs.state_dict())
    emissions = torch.randn(steps, batch, tags, requires_grad=True)
    truth = torch.randint(0, tags, (steps, batch))
    lengths = torch.randint(steps // 2, steps + 1, (batch,))
    lengths[0] = steps
    mask = torch.arange(steps)[:, None] < lengths

    def train(loss: Callable[[], Tensor], crf: torch.nn.Module) -> list[Tensor]:
        crf.zero_grad(set_to_none=True)
        emissions.grad = None
        loss().backward()
        return [emissions.grad, *(p.grad for p in crf.parameters())]  # pyrefly: ignore

    found: Jobs = {
        "training ours": lambda: train(lambda: -ours(emissions, truth, lengths).sum(), ours),
        "training theirs": lambda: train(lambda: -theirs(emissions, truth, mask), theirs),
        "decoding ours": lambda: ours.decode(emissions, lengths),
        "decoding theirs": lambda: theirs.decode(emissions, mask),  # pyrefly: ignore
    }
    assert found["decoding ours"]() == found["decoding theirs"]()
    mine, other = found["training ours"](), found["training theirs"]()
    order = (0, 1, 2, 3), (0, 3, 1, 2)  # emissions, then transitions, start, end; theirs: start, end, transitions
    for k, j in zip(*order, strict=True):
        torch.testing.assert_close(mine[k], other[j], rtol=1e-3, atol=2e-4)  # pyrefly: ignore
    return found


def measure(found: Jobs, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every round."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(rounds + 3):
        for name, job in found.items():
            began = time.perf_counter()
            job()
            times[name].append(1e3 * (time.perf_counter() - began))
    return {name: values[3:] for name, values in times.items()}


def row(size: tuple[int, int, int], rounds: int) -> dict[str, object]:
    times = measure(jobs(*size), rounds)
    made: dict[str, object] = {"batch": size[0], "steps": size[1], "tags": size[2]}
    for what in ("training", "decoding"):
        ours, theirs = times[f"{what} ours"], times[f"{what} theirs"]
        made[f"{what}_ratio"] = round(statistics.median(theirs) / statistics.median(ours), 1)
        made[f"{what}_ratio_of_fastest"] = round(min(theirs) / min(ours), 1)
        for whose, values in (("ours", ours), ("theirs", theirs)):
            quarters = statistics.quantiles(values, n=4)
            made[f"{what}_{whose}_ms"] = round(quarters[1], 3)
            made[f"{what}_{whose}_spread_ms"] = round(quarters[2] - quarters[0], 3)
            made[f"{what}_{whose}_fastest_ms"] = round(min(values), 3)
    return made


def table(rows: list[dict[str, object]], about: dict[str, object]) -> str:
    lines = [
        "# The conditional random field against pytorch-crf",
        "",
        f"`{about['command']}`: medians of interleaved",
        "rounds in milliseconds, interquartile range in brackets, and the fastest round of each, which other work on",
        "the machine disturbs least; float32, lengths from half of T to T.",
        f"torch {about['torch']}, {about['threads']} threads, {about['processor']}.",
        "",
        "| B | T | K | | recurra | pytorch-crf | ratio | recurra, fastest | pytorch-crf, fastest | ratio |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        for what in ("training", "decoding"):
            cells = [f"{r[f'{what}_{w}_ms']} ({r[f'{what}_{w}_spread_ms']})" for w in ("ours", "theirs")]
            size = f"{r['batch']} | {r['steps']} | {r['tags']}"
            fastest = [r[f"{what}_{name}"] for name in ("ours_fastest_ms", "theirs_fastest_ms", "ratio_of_fastest")]
            numbers = [*cells, r[f"{what}_ratio"], *fastest]
            lines.append(f"| {size} | {what} | {' | '.join(map(str, numbers))} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = [row(size, options.rounds) for size in SIZES]
    waiting = f"OMP_WAIT_POLICY={policy} " if (policy := os.environ.get("OMP_WAIT_POLICY")) else ""
    about: dict[str, object] = {
        "command": f"{waiting}python benchmarks/crf.py --threads {options.threads} --rounds {options.rounds}",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **environment("pytorch-crf"),
        "threads": options.threads,
        "rounds": options.rounds,
    }
    (RESULTS / "crf.json").write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    (RESULTS / "crf.md").write_text(table(rows, about))
    print(table(rows, about))


if __name__ == "__main__":
    main()
