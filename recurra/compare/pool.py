"""A pool of spawned worker processes, one pipe to each."""

import multiprocessing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from recurra.compare.plan import WorkItem
from recurra.compare.run_errors import WorkerError
from recurra.compare.worker import SHUTDOWN_SECONDS, WorkerSetup, worker_main


@dataclass(eq=False)
class Worker:
    """A process, the pipe to it, and the item it runs."""

    process: BaseProcess
    connection: Connection
    ready: bool = False
    item: WorkItem | None = None


class Pool:
    """Up to `count` worker processes, started when there is work; a context manager that shuts them down."""

    def __init__(self, count: int, setup: WorkerSetup):
        self.count, self.setup = count, setup
        self.workers: list[Worker] = []

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *exception: object) -> None:
        """Terminate busy workers, which save their checkpoints, and wait for all."""
        for worker in self.workers:
            if worker.item is None and worker.ready:
                worker.connection.close()  # an idle worker exits at the end of its pipe
            else:
                worker.process.terminate()
        for worker in self.workers:
            worker.process.join(SHUTDOWN_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self.workers.clear()

    def prepare(self, count: int) -> None:
        """Start up to `count` processes ahead of the work, since starting one takes seconds."""
        while len(self.workers) < min(count, self.count):
            self._start()

    def idle_worker(self) -> Worker | None:
        """A worker without an item, started if the pool is not full; None if all are busy."""
        idle = next((worker for worker in self.workers if worker.item is None), None)
        return idle or (self._start() if len(self.workers) < self.count else None)

    def _start(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=worker_main, args=(theirs, self.setup), daemon=True)
        process.start()
        theirs.close()
        self.workers.append(Worker(process, ours))
        return self.workers[-1]

    def assign(self, worker: Worker, item: WorkItem) -> None:
        worker.item = item
        with suppress(BrokenPipeError):  # the worker has died; `messages` reports it
            worker.connection.send(item)

    def running_items(self) -> list[WorkItem]:
        return [worker.item for worker in self.workers if worker.item is not None]

    def messages(self, timeout: float) -> Iterator[tuple[WorkItem, str, Any]]:
        """("progress", (fraction, note)), ("result", row) or ("died", exit code) of items, waiting up to `timeout`."""
        by_connection: dict[Any, Worker] = {worker.connection: worker for worker in self.workers}
        for connection in wait(list(by_connection), timeout):
            worker = by_connection[connection]
            item = worker.item
            try:
                kind, content = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                kind, content = "died", self._reap(worker)
            if kind == "ready":
                worker.ready = True
            elif kind == "died" and not worker.ready:
                hint = 'a script must call `compare` below `if __name__ == "__main__":`'
                raise WorkerError(f"a worker ended with exit code {content} before its first fit (see above); {hint}")
            elif item is not None:
                worker.item = item if kind == "progress" else None
                yield item, kind, content

    def _reap(self, worker: Worker) -> int | None:
        worker.process.join()
        self.workers.remove(worker)
        return worker.process.exitcode
