"""`compare`: from a question to a leaderboard."""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from recurra.cell import positive_int
from recurra.compare.baselines import baselines_of
from recurra.compare.display import Quiet, display
from recurra.compare.leaderboard import Leaderboard
from recurra.compare.plan import DOZEN, REFERENCE, Budget, Entrant, Rules, chosen_cells, default_folder, entrants
from recurra.compare.pool import Pool
from recurra.compare.run_errors import KeyboardStopped, Stopped
from recurra.compare.run_folder import Folder, Ledger, Row, write_json
from recurra.compare.shared_run import SharedLedger, import_optuna, open_storage
from recurra.compare.sizes import Blank
from recurra.compare.worker import Duty
from recurra.errors import InputError
from recurra.problem import Question, ask
from recurra.train.interrupt import Interrupt

LOOK = 0.5  # seconds until the next look for signals and for what other machines did
KEEP_AFTER = 20.0  # seconds: a fit that takes longer keeps checkpoints


def compare(
    ask_arguments: dict[str, Any] | str | Path,
    *,
    cells: str | Iterable[str] = DOZEN,
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
    keep_after: float = KEEP_AFTER,
    console: Console | None = None,
) -> Leaderboard:
    """Train cells on the same question under the same budget, in processes side by side, and rank them.

    The processes import the script that calls this, so there it stands below `if __name__ == "__main__":`.

    ask_arguments  a file, or the arguments of `recurra.problem.ask` as a dict with `source`.
    cells          names, families ("gru-family") or "all"; a sequence, or a text with commas.
    budget         "parameters": every cell gets the units at which it has as many parameters as an LSTM of
                   `hidden_size`; "time": every cell trains for `seconds`.
    seeds          how often each is trained; the same test data for all.
    jobs           processes; by default one a core, each with its share of the threads.
    folder         where results, models and the report are kept; by default below `runs`. The same call finds there
                   what is finished, and goes on with the rest; `fresh` begins again.
    storage        an optuna storage URL through which several machines share one run.
    tune           trials of a search for every cell, judged on a part of the training data.
    settings       further options of the estimators.
    modules        modules to import that register cells of one's own.
    keep_after     fits that take longer than so many seconds keep checkpoints.
    console        where progress is shown.
    """
    for name in modules:
        _import(name)
    asked = dict(ask_arguments) if isinstance(ask_arguments, dict) else {"source": str(ask_arguments)}
    rules = Rules(asked, budget, hidden_size, epochs, seconds, tune, dict(settings or {}))
    names, count = chosen_cells(cells), positive_int("seeds", seeds)
    if tune:
        import_optuna("tune")
    question = ask(**asked)
    if question.test is None:
        raise InputError("test", "nothing held out", "a share or a file to test on")
    shared = None if storage is None else open_storage(storage)
    place = Folder(folder or default_folder(rules))
    with place.locked():
        place.begin(rules, fresh)
        run = _Run(rules, question, place, names, count, shared, console)
        return run.result(_processes(jobs), tuple(modules), keep_after, report)


@dataclass
class _Run:
    """One call of `compare`."""

    rules: Rules
    question: Question
    folder: Folder
    cells: tuple[str, ...]
    seeds: int
    storage: Any  # optuna's, where machines share the run
    console: Console | None

    def result(self, jobs: int, modules: tuple[str, ...], keep_after: float, report: bool) -> Leaderboard:
        threads = max(1, _cores() // jobs)
        duty = Duty(self.rules, self.folder.path, threads, keep_after, modules)
        searches = [Entrant(name, 0, "tuning") for name in self.cells] if self.rules.tune else []
        fits = entrants(self.cells, baselines_of(self.question.task, self.question.options), self.seeds)
        with Interrupt() as interrupt, Pool(jobs, duty) as pool:
            pool.prepare(sum(not self.folder.row(entrant).exists() for entrant in (*searches, *fits)))
            self._introduce()
            for phase, wanted in (("searches", searches), ("fits", fits)):
                rows = self._do(phase, wanted, pool, interrupt) if wanted else []
        return self._conclude(rows, report)

    def _introduce(self) -> None:
        if self.console is None:
            return
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in (*self.question.facts, ("budget", self._budget()), ("folder", str(self.folder.path))):
            table.add_row(name, Text(value))
        self.console.print(table)
        self.console.print()

    def _budget(self) -> str:
        if self.rules.budget == "time":
            return f"{self.rules.seconds:g} seconds of training for each cell and seed"
        count = Blank(self.question, self.rules.settings).parameters(REFERENCE, self.rules.hidden_size)
        return f"{count:,} parameters, those of an LSTM of {self.rules.hidden_size} units, for each cell"

    # ------------------------------------------------------------------------------------------ the fits

    def _do(self, phase: str, wanted: list[Entrant], pool: Pool, interrupt: Interrupt) -> list[Row]:
        """All of them, by this machine or by others."""
        ledger = self._ledger(phase, wanted)
        with display(self.console, len(wanted), len(ledger.found), self.question.metric) as shown:
            if ledger.found:
                hint = "; begin afresh to do them again" if ledger.complete() else ""
                shown.say(f"{len(ledger.found)} of {len(wanted)} {phase} were done before{hint}.")
            waiting = 0
            while not ledger.complete():
                self._hand_out(ledger, pool, shown)
                if interrupt.signum:
                    raise self._stopped(interrupt.signum, ledger, pool)
                if not pool.busy():
                    waiting = self._wait(shown, ledger, waiting)
                for entrant, kind, content in pool.news(LOOK):
                    self._hear(ledger, shown, entrant, kind, content)
                ledger.refresh()
        if interrupt.signum:
            raise self._stopped(interrupt.signum, ledger, pool)
        return ledger.rows()

    def _wait(self, shown: Quiet, ledger: Ledger | SharedLedger, said: int) -> int:
        """Others are still at it; how many of their fits are awaited is said when it changes."""
        left = len(ledger.wanted) - len(ledger.found)
        if left != said:
            shown.say(f"Waiting for {left} that other machines have begun.")
        time.sleep(LOOK)
        return left

    def _ledger(self, phase: str, wanted: list[Entrant]) -> Ledger | SharedLedger:
        if self.storage is None:
            return Ledger(self.folder, wanted)
        return SharedLedger(self.folder, wanted, self.storage, f"recurra-{phase}-{self.rules.digest()}")

    def _hand_out(self, ledger: Ledger | SharedLedger, pool: Pool, shown: Quiet) -> None:
        while (worker := pool.free()) is not None:
            entrant = ledger.claim()
            if entrant is None:
                return
            pool.give(worker, entrant)
            shown.begin(entrant)

    def _hear(self, ledger: Ledger | SharedLedger, shown: Quiet, entrant: Entrant, kind: str, content: Any) -> None:
        if kind == "told":
            shown.tell(entrant, *content)
            return
        if kind == "died":
            named = {"name": entrant.name, "kind": entrant.kind, "seed": entrant.seed}
            content = {**named, "error": f"its process ended with exit code {content}", "passing": True}
        ledger.finish(entrant, content)
        shown.end(entrant, content, len(ledger.found))

    def _stopped(self, signum: int, ledger: Ledger | SharedLedger, pool: Pool) -> Stopped:
        doing = pool.busy()
        pool.__exit__()  # they save what they have
        for entrant in doing:
            ledger.release(entrant)
        kind = KeyboardStopped if signum == 2 else Stopped
        return kind(signum, len(ledger.found), len(ledger.wanted), self.folder.path)

    # ------------------------------------------------------------------------------------------ the end

    def _conclude(self, rows: list[Row], report: bool) -> Leaderboard:
        self._keep_best_models(rows)
        shutil.rmtree(self.folder.path / "fits", ignore_errors=True)
        board = Leaderboard.of(rows, self.question, self.folder.path)
        if report:
            from recurra.compare.page import write_report

            page = write_report(self.folder, board, rows, self.question, self.rules)
            board = Leaderboard.of(rows, self.question, self.folder.path, page)
        write_json(self.folder.path / "leaderboard.json", board.to_json())
        return board

    def _keep_best_models(self, rows: list[Row]) -> None:
        """Of every cell, the seed that learned best; the test data has no say in it."""
        for cell in self.cells:
            made = [row for row in rows if row["name"] == cell and "model" in row]
            if not made:
                continue
            best, kept = self.folder.path / min(made, key=_last_loss)["model"], self.folder.model(cell)
            if best.is_dir():
                shutil.rmtree(kept, ignore_errors=True)
                os.replace(best, kept)
            for row in made:
                shutil.rmtree(self.folder.path / row["model"], ignore_errors=True)


def _import(name: str) -> None:
    """A module of one's own, from where the command is run or from wherever Python finds it."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        raise InputError("modules", f"{name!r} ({error})", "a module that can be imported here") from error


def _last_loss(row: Row) -> float:
    """The best validation loss where there is one, else the last training loss."""
    losses = [record["valid_loss"] for record in row["history"] if "valid_loss" in record]
    return min(losses) if losses else row["history"][-1]["loss"]


def _processes(jobs: int | None) -> int:
    return positive_int("jobs", jobs) if jobs is not None else _cores()


def _cores() -> int:
    """Those this process may use, which in a container are fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
