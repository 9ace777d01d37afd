"""Several machines, one run: what each takes is written in an optuna storage that all of them see.

A fit is a trial. Trials are numbered by the storage, no number twice, and the n-th one is the n-th fit of the list:
whoever gets the number does the fit. A fit that was let go, or whose machine has been silent for minutes, is put in
line again as a trial that names it. The rows travel as attributes of the trials.
"""

import hashlib
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

from recurra.compare.plan import Entrant
from recurra.compare.run_folder import Folder, Row, read_json, write_json
from recurra.errors import InputError
from recurra.optional import require

BEAT, SILENT, LOOK = 20.0, 300.0, 1.0  # seconds between signs of life; after which none is death; between two looks


def import_optuna(argument: str) -> Any:
    """optuna, imported when it is used."""
    optuna = require("optuna", extra="tune", what=f"rc.compare({argument}=…)")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_storage(url: str) -> Any:
    """`sqlite:///x.db`, any database URL of SQLAlchemy, or `journal:path` for a file on a shared disk."""
    optuna = import_optuna("storage")
    from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

    if url.startswith("journal:"):
        backend = optuna.storages.journal.JournalFileBackend(url.removeprefix("journal:").removeprefix("//"))
        return optuna.storages.JournalStorage(backend)
    expected = "a URL such as sqlite:///runs.db or postgresql://…, or journal:FILE on a disk all machines see"
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {}
    for attempt in range(5):
        try:
            return optuna.storages.RDBStorage(url, engine_kwargs=options)
        except ArgumentError as error:
            raise InputError("storage", repr(url), expected) from error
        except DBAPIError as error:  # two machines that make the tables at the same time
            if attempt == 4:
                raise InputError("storage", f"{url!r} ({error.orig})", expected) from error
            time.sleep(0.2 * (attempt + 1))
        except (SQLAlchemyError, ImportError) as error:
            raise InputError("storage", f"{url!r} ({error})", expected) from error
    raise InputError("storage", repr(url), expected)


class SharedLedger:
    """What is done and still to do, where several machines do it; the same list of entrants on each."""

    def __init__(self, folder: Folder, wanted: Sequence[Entrant], storage: Any, name: str):
        self.optuna = import_optuna("storage")
        self.folder, self.wanted = folder, list(wanted)
        listed = hashlib.sha256(json.dumps([entrant.key for entrant in wanted]).encode()).hexdigest()[:8]
        study = f"{name}-{listed}"
        self.study = self.optuna.create_study(storage=storage, study_name=study, load_if_exists=True)
        self.storage = self.study._storage
        self.owner = f"{socket.gethostname()}:{folder.path.resolve()}"
        self.found: dict[Entrant, Row] = {}
        self.running: dict[Entrant, int] = {}  # trials this process works on
        self.exhausted, self.beaten, self.looked = False, 0.0, 0.0
        self.refresh()

    # ------------------------------------------------------------------------------------------ taking and giving

    def claim(self) -> Entrant | None:
        while (taken := self._take()) is not None:
            entrant, trial_id = taken
            self.storage.set_trial_user_attr(trial_id, "owner", self.owner)
            self.storage.set_trial_user_attr(trial_id, "beat", time.time())
            self.running[entrant] = trial_id
            if entrant in self.found:  # done by somebody who was thought to be dead
                self.finish(entrant, self.found[entrant])
            elif self.folder.row(entrant).exists():  # done here, in a run with fewer seeds or cells
                self.finish(entrant, read_json(self.folder.row(entrant)))
            else:
                return entrant
        return None

    def _take(self) -> tuple[Entrant, int] | None:
        trials = self._trials()
        for entrant, trial in self._named(trials):  # what this folder was doing when it was interrupted
            own = trial.user_attrs.get("owner") == self.owner and not trial.state.is_finished()
            if own and trial.state == self.optuna.trial.TrialState.RUNNING and entrant not in self.running:
                return entrant, trial._trial_id
        if self.exhausted and not any(t.state == self.optuna.trial.TrialState.WAITING for t in trials):
            return None
        asked = self.study.ask()
        for entrant, trial in self._named(self._trials()):
            if trial._trial_id == asked._trial_id:
                return entrant, trial._trial_id
        self.study.tell(asked, state=self.optuna.trial.TrialState.FAIL)  # the list has ended
        self.exhausted = True
        return None

    def _trials(self) -> list[Any]:
        return self.study.get_trials(deepcopy=False)

    def _named(self, trials: list[Any]) -> list[tuple[Entrant, Any]]:
        """Trials with what they stand for: the n-th that was not put in line again is the n-th of the list."""
        found, first = [], 0
        for trial in sorted(trials, key=lambda t: t.number):
            again = trial.user_attrs.get("again")
            place = first if again is None else again
            first += again is None
            if place < len(self.wanted):
                found.append((self.wanted[place], trial))
        return found

    def finish(self, entrant: Entrant, row: Row) -> None:
        trial_id = self.running.pop(entrant)
        self.found[entrant] = row
        write_json(self.folder.row(entrant), row)
        try:
            self.storage.set_trial_user_attr(trial_id, "row", row)
            state, values = self.optuna.trial.TrialState.COMPLETE, [float(row.get("score", 0.0))]
            self.storage.set_trial_state_values(trial_id, state, values)
        except self.optuna.exceptions.UpdateFinishedTrialError:
            pass  # this machine was silent for so long that another one took over

    def release(self, entrant: Entrant) -> None:
        self._again(entrant, self.running.pop(entrant))

    def _again(self, entrant: Entrant, trial_id: int | None) -> None:
        try:
            if trial_id is not None:
                self.storage.set_trial_state_values(trial_id, self.optuna.trial.TrialState.FAIL)
        except self.optuna.exceptions.UpdateFinishedTrialError:
            return  # another machine was quicker
        self.study.enqueue_trial({}, user_attrs={"again": self.wanted.index(entrant)})

    # ------------------------------------------------------------------------------------------ hearing of others

    def refresh(self) -> None:
        """Give a sign of life, hear what others did, and put in line again what nobody does any more."""
        now = time.time()
        if now - self.beaten > BEAT:
            self.beaten = now
            for trial_id in self.running.values():
                self.storage.set_trial_user_attr(trial_id, "beat", now)
        if now - self.looked < LOOK:
            return
        self.looked = now
        named = self._named(self._trials())
        for entrant, trial in named:
            if trial.state.is_finished() and "row" in trial.user_attrs and entrant not in self.found:
                self.found[entrant] = trial.user_attrs["row"]
                write_json(self.folder.row(entrant), trial.user_attrs["row"])
        if self.exhausted:
            self._revive(named, now)

    def _revive(self, named: list[tuple[Entrant, Any]], now: float) -> None:
        alive = set()
        for entrant, trial in named:
            if trial.state.is_finished():
                continue
            silent = now - trial.user_attrs.get("beat", now) > SILENT
            if silent and trial.state == self.optuna.trial.TrialState.RUNNING and entrant not in self.found:
                self._again(entrant, trial._trial_id)
            alive.add(entrant)
        for entrant in self.wanted:
            if entrant not in alive and entrant not in self.found:  # its machine died while putting it in line
                self._again(entrant, None)

    def complete(self) -> bool:
        return len(self.found) == len(self.wanted)

    def rows(self) -> list[Row]:
        return [self.found[entrant] for entrant in self.wanted if entrant in self.found]
