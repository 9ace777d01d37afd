"""Spawned workers, and one line to each."""

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from recurra.compare.plan import Entrant
from recurra.compare.run_errors import WorkerError
from recurra.compare.worker import GRACE, Duty, work


@dataclass(eq=False)
class Worker:
    """A process, the line to it, and what it is doing."""

    process: BaseProcess
    line: Connection
    ready: bool = False
    entrant: Entrant | None = None


class Pool:
    """Inside `with`, up to `count` processes; they are started when there is something for them to do."""

    def __init__(self, count: int, duty: Duty):
        self.count, self.duty = count, duty
        self.workers: list[Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exception: object) -> None:
        """Ask those at work to save what they have, and wait for them."""
        for worker in self.workers:
            if worker.entrant is None and worker.ready:
                worker.line.close()  # it reads the end of the line, and leaves
            else:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(GRACE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.workers.clear()

    def prepare(self, count: int) -> None:
        """Start processes ahead, so that they are ready by the time there is work."""
        while len(self.workers) < min(count, self.count):
            self._start()

    def free(self) -> Worker | None:
        """Somebody to give work to, if there is room."""
        idle = next((worker for worker in self.workers if worker.entrant is None), None)
        return idle or (self._start() if len(self.workers) < self.count else None)

    def _start(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, self.duty), daemon=True)
        process.start()
        theirs.close()
        self.workers.append(Worker(process, ours))
        return self.workers[-1]

    def give(self, worker: Worker, entrant: Entrant) -> None:
        worker.entrant = entrant
        with suppress(BrokenPipeError):  # it has died; that is news
            worker.line.send(entrant)

    def busy(self) -> list[Entrant]:
        return [worker.entrant for worker in self.workers if worker.entrant is not None]

    def news(self, timeout: float) -> Iterator[tuple[Entrant, str, Any]]:
        """Words ("told") and results ("row") that came within the time; ("died", exit code) of a process that ended."""
        by_line: dict[Any, Worker] = {worker.line: worker for worker in self.workers}
        for line in wait(list(by_line), timeout):
            worker = by_line[line]
            entrant = worker.entrant
            try:
                kind, content = worker.line.recv()
            except (EOFError, ConnectionResetError):
                kind, content = "died", self._bury(worker)
            if kind == "ready":
                worker.ready = True
            elif kind == "died" and not worker.ready:
                hint = 'a script that compares does so below `if __name__ == "__main__":`'
                raise WorkerError(f"a worker ended with exit code {content} before its first fit, see above; {hint}")
            elif entrant is not None:
                worker.entrant = entrant if kind == "told" else None
                yield entrant, kind, content

    def _bury(self, worker: Worker) -> int | None:
        worker.process.join()
        self.workers.remove(worker)
        return worker.process.exitcode
