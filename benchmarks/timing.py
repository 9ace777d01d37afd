"""How things are timed: all contestants in turn, round after round, so that what slows the machine slows them all."""

import struct
import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median

import torch
from torch import Tensor

from recurra.engine import build
from recurra.engine.kernel import FIXED
from recurra.engine.render import Rendered, Tables

Job = Callable[[], object]


def timed(job: Job) -> float:
    """Seconds one run takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def interleaved(jobs: Mapping[Hashable, Job], rounds: int) -> dict[Hashable, float]:
    """The median of each job's times; a first round, not counted, warms up."""
    times: dict[Hashable, list[float]] = {key: [] for key in jobs}
    for number in range(rounds + 1):
        for key, job in jobs.items():
            seconds = timed(job)
            if number:
                times[key].append(seconds)
    return {key: median(values) for key, values in times.items()}


def matrix_job() -> tuple[Job, float]:
    """A 2048³ product in float32, and its floating point operations."""
    a, b = torch.randn(2, 2048, 2048)
    return lambda: a @ b, 2.0 * 2048**3


def copy_job() -> tuple[Job, float]:
    """A copy that fits no cache, and the bytes it reads and writes."""
    source = torch.randn(1 << 24)
    target = torch.empty_like(source)
    return lambda: target.copy_(source), 2.0 * source.numel() * 4


def barrier_seconds(threads: int, rounds: int = 20_000) -> float:
    """How long threads that share the units of a layer take to meet."""
    body = (
        "static void step(const Call& c, int64_t, int64_t, int64_t, int64_t me, int64_t threads, real*)"
        " { meet(c, me, threads); }"
    )
    library = build.load(Rendered(body, Tables()).source("float"))
    active, bounds, spans = torch.ones(rounds, dtype=torch.int64), torch.tensor([0, 1]), torch.tensor([0, rounds])
    known = {"steps": rounds, "threads": threads, "by_unit": 1, "parts": 1, "rows": 1, "rowsum_parts": 1}
    known |= {"active": active.data_ptr(), "bounds": bounds.data_ptr(), "spans": spans.data_ptr()}

    def run(board: Tensor) -> None:
        numbers = [0, 0, 0, active.data_ptr(), 0, board.data_ptr(), *(known.get(name, 0) for name in FIXED)]
        library.run(struct.pack(f"{len(numbers)}q", *numbers))

    times = [timed(lambda: run(torch.zeros(16 * threads, dtype=torch.int64))) for _ in range(6)]
    return median(times[1:]) / rounds
