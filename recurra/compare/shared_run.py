"""The work queue of a run that several machines share through an optuna storage.

A work item is a trial. The storage numbers trials uniquely; the n-th trial is the n-th item of the list, and the
machine that created the trial runs the item. An item that was released, or whose machine has sent no heartbeat for
minutes, is enqueued as a new trial that names it. Two machines may enqueue it at the same time; of several trials of an
item only the first unfinished one runs. Result rows are stored as trial attributes.

Trial attributes: `owner` (host, folder and the folder's token), `beat` (the time of the last heartbeat, by the owner's
clock), `row` (the result), `again` (index of the item, in trials that repeat one), `died` (its worker process ended).
"""

import hashlib
import json
import socket
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from recurra.compare.plan import WorkItem
from recurra.compare.run_folder import Row, RunFolder, read_json, write_json
from recurra.errors import InputError
from recurra.optional import require

HEARTBEAT_SECONDS = 20.0  # between heartbeats of a running item
TIMEOUT_SECONDS = 300.0  # without a heartbeat, after which an item is requeued
POLL_SECONDS = 1.0  # between reads of the storage
DEATHS = 3  # worker processes that may end in the middle of an item, before that is its result
TOKEN = ".machine"  # file in the run folder: machines may have equal host names and paths


def import_optuna(argument: str) -> Any:
    """optuna, imported when it is used."""
    optuna = require("optuna", extra="tune", what=f"rc.compare({argument}=…)")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(url: str) -> Any:
    """An optuna storage: `sqlite:///x.db`, any SQLAlchemy URL, or `journal:FILE` for a file on a shared disk."""
    optuna = import_optuna("storage")
    from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

    if url.startswith("journal:"):
        backend = optuna.storages.journal.JournalFileBackend(url.removeprefix("journal:").removeprefix("//"))
        return optuna.storages.JournalStorage(backend)
    expected = "a URL such as sqlite:///runs.db or postgresql://…, or journal:FILE on a shared disk"
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    if url.startswith(("postgresql://", "postgres://")):  # the driver that SQLAlchemy chooses depends on its version
        require("psycopg", extra="postgresql", what="a PostgreSQL storage")
        url = f"postgresql+psycopg://{url.partition('://')[2]}"
    for attempt in range(5):
        try:
            return _exclusive(optuna.storages.RDBStorage(url, engine_kwargs=options))
        except ArgumentError as error:
            raise InputError("storage", repr(url), expected) from error
        except DBAPIError as error:  # another machine is creating the tables
            if attempt == 4:
                raise InputError("storage", f"{url!r} ({error.orig})", expected) from error
            time.sleep(0.2 * (attempt + 1))
        except (SQLAlchemyError, ImportError) as error:
            raise InputError("storage", f"{url!r} ({error})", expected) from error
    raise InputError("storage", repr(url), expected)


def _exclusive(storage: Any) -> Any:
    """On sqlite, transactions one after the other: it has no row locks, and two machines could take one trial."""
    from sqlalchemy import event

    if storage.engine.dialect.name == "sqlite":
        storage.engine.dispose()

        @event.listens_for(storage.engine, "connect")
        def leave_transactions_to_sqlalchemy(connection: Any, record: Any) -> None:
            connection.isolation_level = None

        @event.listens_for(storage.engine, "begin")
        def lock_at_the_start(connection: Any) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE")

    return storage


class SharedWorkQueue:
    """Finished and pending items of a shared run; every machine has the same list of items."""

    def __init__(self, folder: RunFolder, items: Sequence[WorkItem], storage: Any, name: str):
        self.optuna = import_optuna("storage")
        self.folder, self.items = folder, list(items)
        digest = hashlib.sha256(json.dumps([item.key for item in items]).encode()).hexdigest()[:8]
        study = f"{name}-{digest}"
        self.study = self.optuna.create_study(storage=storage, study_name=study, load_if_exists=True)
        self.storage = self.study._storage
        self.owner = f"{socket.gethostname()}:{folder.path.resolve()}:{_token(folder)}"
        self.results: dict[WorkItem, Row] = {}
        self.running: dict[WorkItem, int] = {}  # item → trial of this process
        self.seen: dict[int, tuple[Any, float]] = {}  # trial → its last heartbeat, and when it came, by our own clock
        self.list_ended, self.last_heartbeat, self.last_poll = False, 0.0, 0.0
        self.refresh()

    # ------------------------------------------------------------------------------------------ claiming

    def claim(self) -> WorkItem | None:
        while (taken := self._next_trial()) is not None:
            item, trial_id = taken
            self.storage.set_trial_user_attr(trial_id, "owner", self.owner)
            self.storage.set_trial_user_attr(trial_id, "beat", time.time())
            self.running[item] = trial_id
            if self.folder.row_path(item).exists():  # finished here, in a run with fewer seeds or cells
                self.finish(item, read_json(self.folder.row_path(item)))
            else:
                return item
        return None

    def _next_trial(self) -> tuple[WorkItem, int] | None:
        """An interrupted trial of this folder, else a new one; None at the end of the list."""
        trials = self._trials()
        for item, trial in self._trials_with_items(trials):
            own = trial.user_attrs.get("owner") == self.owner and not trial.state.is_finished()
            if own and trial.state == self.optuna.trial.TrialState.RUNNING and item not in self.running:
                return item, trial._trial_id
        if self.list_ended and not any(t.state == self.optuna.trial.TrialState.WAITING for t in trials):
            return None
        while True:
            new = self.study.ask()
            pairs = self._trials_with_items(self._trials())
            item = next((item for item, trial in pairs if trial._trial_id == new._trial_id), None)
            if item is None:  # past the end of the list
                self.study.tell(new, state=self.optuna.trial.TrialState.FAIL)
                self.list_ended = True
                return None
            if not self._runs_elsewhere(item, new.number, pairs):
                return item, new._trial_id
            self.study.tell(new, state=self.optuna.trial.TrialState.FAIL)

    def _runs_elsewhere(self, item: WorkItem, number: int, pairs: list[tuple[WorkItem, Any]]) -> bool:
        """Whether the item has a result, or an earlier trial that has not ended."""
        others = [trial for one, trial in pairs if one == item and trial.number != number]
        finished = [trial for trial in others if trial.state.is_finished() and "row" in trial.user_attrs]
        if finished:
            self._keep(item, finished[0].user_attrs["row"])
        return bool(finished) or any(t.number < number and not t.state.is_finished() for t in others)

    def _trials(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False)

    def _trials_with_items(self, trials: list[Any]) -> list[tuple[WorkItem, Any]]:
        """(item, trial) pairs: the n-th trial without an `again` attribute is the n-th item."""
        pairs, count = [], 0
        for trial in sorted(trials, key=lambda t: t.number):
            again = trial.user_attrs.get("again")
            index = count if again is None else again
            count += again is None
            if index < len(self.items):
                pairs.append((self.items[index], trial))
        return pairs

    def finish(self, item: WorkItem, row: Row) -> None:
        if row.get("transient") and self._deaths(item) < DEATHS - 1:
            self.storage.set_trial_user_attr(self.running[item], "died", True)
            return self.release(item)
        trial_id = self.running.pop(item)
        self._keep(item, row)
        try:
            self.storage.set_trial_user_attr(trial_id, "row", row)
            state, values = self.optuna.trial.TrialState.COMPLETE, [float(row.get("score", 0.0))]
            self.storage.set_trial_state_values(trial_id, state, values)
        except self.optuna.exceptions.UpdateFinishedTrialError:
            del self.results[item]  # this machine had timed out: the result of the one that repeats the item counts

    def _deaths(self, item: WorkItem) -> int:
        """How often a worker process ended in the middle of the item."""
        return sum(one == item and "died" in t.user_attrs for one, t in self._trials_with_items(self._trials()))

    def _keep(self, item: WorkItem, row: Row) -> None:
        self.results[item] = row
        write_json(self.folder.row_path(item), row)

    def release(self, item: WorkItem) -> None:
        """Put back an item that was not finished."""
        self._requeue(item, self.running.pop(item))

    def _requeue(self, item: WorkItem, trial_id: int | None) -> None:
        try:
            if trial_id is not None:
                self.storage.set_trial_state_values(trial_id, self.optuna.trial.TrialState.FAIL)
        except self.optuna.exceptions.UpdateFinishedTrialError:
            return  # another machine has requeued it
        self.study.enqueue_trial({}, user_attrs={"again": self.items.index(item)})

    # ------------------------------------------------------------------------------------------ other machines

    def refresh(self) -> None:
        """Send a heartbeat, read the results of other machines, and requeue items whose machine has timed out."""
        now = time.monotonic()
        if now - self.last_heartbeat > HEARTBEAT_SECONDS:
            self.last_heartbeat = now
            for trial_id in self.running.values():
                with suppress(self.optuna.exceptions.UpdateFinishedTrialError):  # this machine had timed out
                    self.storage.set_trial_user_attr(trial_id, "beat", time.time())
        if now - self.last_poll < POLL_SECONDS:
            return
        self.last_poll = now
        pairs = self._trials_with_items(self._trials())
        for item, trial in pairs:
            if trial.state.is_finished() and "row" in trial.user_attrs and item not in self.results:
                self._keep(item, trial.user_attrs["row"])
        silent = {trial._trial_id for _, trial in pairs if self._seconds_silent(trial, now) > TIMEOUT_SECONDS}
        if self.list_ended:
            self._requeue_lost(pairs, silent)

    def _seconds_silent(self, trial: Any, now: float) -> float:
        """How long this machine has seen no new heartbeat; clocks of machines are not compared."""
        beat = trial.user_attrs.get("beat")
        if trial._trial_id not in self.seen or self.seen[trial._trial_id][0] != beat:
            self.seen[trial._trial_id] = (beat, now)
        return now - self.seen[trial._trial_id][1]

    def _requeue_lost(self, pairs: list[tuple[WorkItem, Any]], silent: set[int]) -> None:
        claimed = set()
        for item, trial in pairs:
            if trial.state.is_finished():
                continue
            timed_out = trial._trial_id in silent and trial._trial_id not in self.running.values()
            if timed_out and trial.state == self.optuna.trial.TrialState.RUNNING and item not in self.results:
                self._requeue(item, trial._trial_id)
            claimed.add(item)
        for item in self.items:
            if item not in claimed and item not in self.results:  # its machine died while requeueing it
                self._requeue(item, None)

    def is_complete(self) -> bool:
        return len(self.results) == len(self.items)

    def rows(self) -> list[Row]:
        return [self.results[item] for item in self.items if item in self.results]


def _token(folder: RunFolder) -> str:
    """A name for the folder that no other has, kept in it: the same machine finds its items again."""
    path = folder.path / TOKEN
    if not path.exists():
        write_json(path, uuid.uuid4().hex)
    return read_json(path)
