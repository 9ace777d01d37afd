"""`compare`: trains cells and baselines on one problem and ranks them."""

import os
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recurra.argument_checks import path_of, positive_int
from recurra.cells.user_modules import import_user_module
from recurra.compare.baselines import baselines_of
from recurra.compare.display import NoDisplay, make_display
from recurra.compare.leaderboard import Leaderboard
from recurra.compare.parameter_budget import NetworkFactory
from recurra.compare.plan import (
    DEFAULT_CELLS,
    REFERENCE_CELL,
    Budget,
    RunConfig,
    WorkItem,
    default_folder,
    resolve_cells,
    work_items,
)
from recurra.compare.pool import Pool
from recurra.compare.run_errors import RunInterrupted, RunKeyboardInterrupt
from recurra.compare.run_folder import Row, RunFolder, WorkQueue, write_json
from recurra.compare.shared_run import SharedWorkQueue, import_optuna, open_storage
from recurra.compare.worker import WorkerSetup
from recurra.errors import InputError
from recurra.problem import Problem, infer_problem
from recurra.problem.column_table import print_columns
from recurra.train.interrupt import Interrupt

POLL_SECONDS = 0.5  # between checks for signals and for results of other machines
CHECKPOINT_AFTER = 20.0  # seconds; fits that take longer keep checkpoints


def compare(
    data: str | Path | dict[str, Any],
    *,
    cells: str | Iterable[str] = DEFAULT_CELLS,
    budget: Budget = "parameters",
    seeds: int = 3,
    hidden_size: int = 32,
    epochs: int | None = None,
    seconds: float = 30.0,
    jobs: int | None = None,
    folder: str | Path | None = None,
    storage: str | None = None,
    tune: int = 0,
    settings: dict[str, Any] | None = None,
    modules: Sequence[str] = (),
    fresh: bool = False,
    report: bool = True,
    checkpoint_after: float = CHECKPOINT_AFTER,
    console: Console | None = None,
) -> Leaderboard:
    """Train recurrent cells on one data file under an equal budget, and rank them together with baselines.

    Fits run in parallel processes. The run is saved in a folder: after an interruption, the same call resumes it. The
    processes import the calling script, so a script must call this below `if __name__ == "__main__":`.

    **Arguments**

    - `data`: a file, or a dict of arguments for `recurra.infer_problem` with `"source"`.
    - `cells`: cell names, families (`"gru-family"`) or `"all"`; a sequence, or text with commas.
    - `budget`: `"parameters"` gives every cell the hidden size at which it has as many parameters as an LSTM of
      `hidden_size`; `"time"` trains every cell for `seconds`.
    - `seeds`: fits per cell, all on the same train/test split.
    - `epochs`: epochs per fit; default: that of the estimator.
    - `jobs`: parallel processes; default: one per core.
    - `folder`: the run folder, for results, models and the report; default: a name below `runs/` derived from data and
      settings. `fresh=True` discards earlier results in it.
    - `storage`: an optuna storage URL through which several machines share the run.
    - `tune`: trials of a hyperparameter search per cell, scored on a part of the training data.
    - `settings`: further options of the estimators, e.g. `{"lr": 0.01}`.
    - `modules`: modules or Python files to import that register custom cells.
    - `report`: write the HTML report.
    - `checkpoint_after`: fits that take longer than this many seconds keep checkpoints.
    - `console`: a rich console for progress; default: no output.

    **Returns**

    A `Leaderboard`: `entries` (best first), `best`, `folder`, `report`, `to_json()`.

    **Example**, a script; its processes import it again, so the call stands below the condition:

        import recurra as rc

        if __name__ == "__main__":
            board = rc.compare("japanese_vowels", cells="lstm,gru,mgu", seeds=1)
            print(board.best.name, board.best.mean)
    """
    for name in modules:
        import_user_module(name)
    arguments = dict(data) if isinstance(data, dict) else {"source": str(path_of("data", data))}
    config = RunConfig(arguments, budget, hidden_size, epochs, seconds, tune, dict(settings or {}))
    names, count = resolve_cells(cells), positive_int("seeds", seeds)
    if tune:
        import_optuna("tune")
    problem = infer_problem(**arguments)
    if problem.test is None:
        raise InputError("test", "no held-out data", "a fraction or a file to test on")
    shared = None if storage is None else open_storage(storage)
    place = RunFolder(folder or default_folder(config))
    with place.lock():
        place.prepare(config, fresh)
        comparison = _Comparison(config, problem, place, names, count, shared, console)
        return comparison.run(_process_count(jobs), tuple(modules), checkpoint_after, report)


@dataclass
class _Comparison:
    """One call of `compare`."""

    config: RunConfig
    problem: Problem
    folder: RunFolder
    cells: tuple[str, ...]
    seeds: int
    storage: Any  # optuna's, if machines share the run
    console: Console | None

    def run(self, jobs: int, modules: tuple[str, ...], checkpoint_after: float, report: bool) -> Leaderboard:
        threads = max(1, _cores() // jobs)
        setup = WorkerSetup(self.config, self.folder.path, threads, checkpoint_after, modules)
        searches = [WorkItem(name, 0, "tuning") for name in self.cells] if self.config.tune else []
        fits = work_items(self.cells, baselines_of(self.problem.task, self.problem.options), self.seeds)
        with Interrupt() as interrupt, Pool(jobs, setup) as pool:
            pool.prepare(sum(not self.folder.row_path(item).exists() for item in (*searches, *fits)))
            self._print_summary()
            for phase, items in (("searches", searches), ("fits", fits)):
                rows = self._run_items(phase, items, pool, interrupt) if items else []
        return self._finish(rows, report)

    def _print_summary(self) -> None:
        if self.console is None:
            return
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in (*self.problem.summary, ("budget", self._budget()), ("folder", str(self.folder.path))):
            table.add_row(name, Text(value))
        self.console.print(table)
        print_columns(self.problem.columns, self.console)
        self.console.print()

    def _budget(self) -> str:
        if self.config.budget == "time":
            return f"{self.config.seconds:g} seconds of training per cell and seed"
        networks = NetworkFactory(self.problem, self.config.settings)
        count = networks.parameters(REFERENCE_CELL, self.config.hidden_size)
        return f"{count:,} parameters per cell (an LSTM with {self.config.hidden_size} units)"

    # ------------------------------------------------------------------------------------------ the fits

    def _run_items(self, phase: str, items: list[WorkItem], pool: Pool, interrupt: Interrupt) -> list[Row]:
        """Run all items, on this machine or on others."""
        queue = self._queue(phase, items)
        with make_display(self.console, len(items), len(queue.results), self.problem.metric) as display:
            if queue.results:
                display.message(f"{len(queue.results)} of {len(items)} {phase} were done in an earlier run.")
            waiting = 0
            while not queue.is_complete():
                self._assign_work(queue, pool, display)
                if interrupt.signum:
                    raise self._interrupted(interrupt.signum, queue, pool)
                if not pool.running_items():
                    waiting = self._wait_for_others(display, queue, waiting)
                for item, kind, content in pool.messages(POLL_SECONDS):
                    self._handle_message(queue, display, item, kind, content)
                queue.refresh()
        if interrupt.signum:
            raise self._interrupted(interrupt.signum, queue, pool)
        return queue.rows()

    def _wait_for_others(self, display: NoDisplay, queue: WorkQueue | SharedWorkQueue, announced: int) -> int:
        """Sleep while other machines work; announce the number of open items when it changes, and return it."""
        left = len(queue.items) - len(queue.results)
        if left != announced:
            display.message(f"Waiting for {left} fit{'s' if left > 1 else ''} on other machines.")
        time.sleep(POLL_SECONDS)
        return left

    def _queue(self, phase: str, items: list[WorkItem]) -> WorkQueue | SharedWorkQueue:
        if self.storage is None:
            return WorkQueue(self.folder, items)
        return SharedWorkQueue(self.folder, items, self.storage, f"recurra-{phase}-{self.config.digest()}")

    def _assign_work(self, queue: WorkQueue | SharedWorkQueue, pool: Pool, display: NoDisplay) -> None:
        while (worker := pool.idle_worker()) is not None:
            item = queue.claim()
            if item is None:
                return
            pool.assign(worker, item)
            display.start(item)

    def _handle_message(
        self, queue: WorkQueue | SharedWorkQueue, display: NoDisplay, item: WorkItem, kind: str, content: Any
    ) -> None:
        if kind == "progress":
            display.update(item, *content)
            return
        if kind == "died":
            named = {"name": item.name, "kind": item.kind, "seed": item.seed}
            content = {**named, "error": f"its process ended with exit code {content}", "transient": True}
        queue.finish(item, content)
        display.finish(item, content, len(queue.results))

    def _interrupted(self, signum: int, queue: WorkQueue | SharedWorkQueue, pool: Pool) -> RunInterrupted:
        running = pool.running_items()
        pool.__exit__()  # workers save their checkpoints
        for item in running:
            queue.release(item)
        kind = RunKeyboardInterrupt if signum == 2 else RunInterrupted
        return kind(signum, len(queue.results), len(queue.items), self.folder.path)

    # ------------------------------------------------------------------------------------------ the end

    def _finish(self, rows: list[Row], report: bool) -> Leaderboard:
        self._keep_best_models(rows)
        shutil.rmtree(self.folder.path / "fits", ignore_errors=True)
        board = Leaderboard.of(rows, self.problem, self.folder.path)
        if report:
            from recurra.compare.report_page import write_report

            page = write_report(self.folder, board, rows, self.problem, self.config)
            board = Leaderboard.of(rows, self.problem, self.folder.path, page)
        write_json(self.folder.path / "leaderboard.json", board.to_json())
        return board

    def _keep_best_models(self, rows: list[Row]) -> None:
        """Keep one model per cell: the seed with the lowest validation or training loss. Test data is not used."""
        for cell in self.cells:
            fitted = [row for row in rows if row["name"] == cell and "model" in row]
            if not fitted:
                continue
            best, kept = self.folder.path / min(fitted, key=_selection_loss)["model"], self.folder.model_path(cell)
            if best.is_dir():
                shutil.rmtree(kept, ignore_errors=True)
                os.replace(best, kept)
            for row in fitted:
                shutil.rmtree(self.folder.path / row["model"], ignore_errors=True)


def _selection_loss(row: Row) -> float:
    """The best validation loss if there is one, else the last training loss."""
    losses = [record["valid_loss"] for record in row["history"] if "valid_loss" in record]
    return min(losses) if losses else row["history"][-1]["loss"]


def _process_count(jobs: int | None) -> int:
    return positive_int("jobs", jobs) if jobs is not None else _cores()


def _cores() -> int:
    """Cores this process may use; in a container fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
