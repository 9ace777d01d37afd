"""Interleaved timing: all candidates in turn, round after round, so that a busy machine slows all of them alike."""

import struct
import time
from collections.abc import Callable, Hashable, Mapping
from statistics import median
from typing import TypeVar

import torch
from torch import Tensor

from recurra.engine.cpu import compiler
from recurra.engine.cpu.codegen import Rendered, Tables
from recurra.engine.cpu.kernel import FIXED

Job = Callable[[], object]
Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)


def timed(job: Job, clock: Clock = time.perf_counter) -> float:
    """Seconds one run takes."""
    start = clock()
    job()
    return clock() - start


SHORT, MOST = 0.01, 20  # seconds, and runs in a row


def interleaved(jobs: Mapping[Key, Job], rounds: int, clock: Clock = time.perf_counter) -> dict[Key, float]:
    """The median of each job's times; a first round, not counted, warms up.

    A short job is run several times in a row without counting the first run, whose caches hold the data of the job
    before. On one thread, `time.process_time` as the clock leaves out what other programs of a busy machine take.
    """
    repeats = {key: min(MOST, int(SHORT / _warm(job, clock))) for key, job in jobs.items()}
    times: dict[Key, list[float]] = {key: [] for key in jobs}
    for _ in range(rounds):
        for key, job in jobs.items():
            times[key].append(_in_a_row(job, repeats[key], clock) if repeats[key] > 1 else timed(job, clock))
    return {key: median(values) for key, values in times.items()}


def _warm(job: Job, clock: Clock) -> float:
    """Seconds of the second run: the first may compile."""
    job()
    return timed(job, clock)


def _in_a_row(job: Job, count: int, clock: Clock) -> float:
    job()
    return timed(lambda: [job() for _ in range(count)], clock) / count


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
    """Seconds of one barrier of threads that share the units of a layer."""
    body = (
        "static void step(const Call& c, int64_t, int64_t, int64_t, int64_t me, int64_t threads, real*)"
        " { barrier(c, me, threads); }"
    )
    library = compiler.load(Rendered(body, Tables()).source("float"))
    active, bounds, spans = torch.ones(rounds, dtype=torch.int64), torch.tensor([0, 1]), torch.tensor([0, rounds])
    known = {"steps": rounds, "threads": threads, "by_unit": 1, "parts": 1, "rows": 1, "rowsum_parts": 1}
    known |= {"active": active.data_ptr(), "bounds": bounds.data_ptr(), "spans": spans.data_ptr()}

    def run(sync: Tensor) -> None:
        numbers = [0, 0, 0, active.data_ptr(), 0, sync.data_ptr(), *(known.get(name, 0) for name in FIXED)]
        library.run(struct.pack(f"{len(numbers)}q", *numbers))

    times = [timed(lambda: run(torch.zeros(16 * threads, dtype=torch.int64))) for _ in range(6)]
    return median(times[1:]) / rounds
