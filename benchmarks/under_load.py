"""Training steps per second of several processes at once, with one and with two threads each.

Processes that ask for more threads than there are free cores should be about as fast as processes with one thread:
`python benchmarks/under_load.py [processes] [seconds] [rounds]`. Rounds of both kinds alternate, so that
other work on the machine touches both alike; the ratio of medians is what counts. A loss that torch computes is a line
of its own: torch's operations keep their threads, and wait for them where other processes have the cores.
"""

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier

WORK = {  # batch, units, how gradients begin
    "train, batch 32": (32, 128, "given"),
    "train, batch 32, torch's sum as loss": (32, 128, "sum"),
    "batch 1": (1, 512, ""),
}


def _count(kind: str, threads: int, seconds: float, ready: Barrier, counts: "SimpleQueue[float]") -> None:
    import torch

    import recurra as rc

    torch.set_num_threads(threads)
    batch, units, train = WORK[kind]
    layer, x, cotangent = rc.LSTM(64, units), torch.randn(50, batch, 64), torch.ones(50, batch, units)

    def call() -> None:
        with torch.set_grad_enabled(bool(train)):
            y = layer(x)[0]
        if train == "given":
            y.backward(cotangent)
        elif train == "sum":
            y.sum().backward()

    for _ in range(3):
        call()
    ready.wait()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds / 4:  # the number of threads follows the load within 0.1 s
        call()
    done, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        call()
        done += 1
    counts.put(done / (time.perf_counter() - start))


def rate(kind: str, processes: int, threads: int, seconds: float) -> float:
    """Calls per second of all processes together."""
    context = multiprocessing.get_context("spawn")
    counts, ready = context.SimpleQueue(), context.Barrier(processes)
    workers = [context.Process(target=_count, args=(kind, threads, seconds, ready, counts)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    total = sum(counts.get() for _ in workers)
    for worker in workers:
        worker.join()
    return total


def main(processes: int, seconds: float, rounds: int) -> None:
    """Print a line per kind of work and number of processes."""
    for kind in WORK:
        for count in (1, processes):
            found: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(rounds):
                for threads, rates in found.items():
                    rates.append(rate(kind, count, threads, seconds))
            one, two = (statistics.median(found[threads]) for threads in (1, 2))
            print(f"{kind}, {count} processes: {one:.0f}/s with 1 thread, {two:.0f}/s with 2, {two / one:.2f} of it")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("processes", type=int, nargs="?", default=8)
    parser.add_argument("seconds", type=float, nargs="?", default=2.0)
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    main(**vars(parser.parse_args()))
