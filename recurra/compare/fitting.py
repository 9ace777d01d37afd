"""One entrant's work: learn, judge, keep the model."""

import math
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from recurra.compare.baselines import baseline
from recurra.compare.fit_monitor import Long, Tell, Watch, probe
from recurra.compare.plan import Entrant
from recurra.compare.run_folder import Folder, Row, read_json, write_json
from recurra.compare.sizes import Blank, equal_size, parameters
from recurra.compare.worker import Duty
from recurra.problem import Question, ask, keep
from recurra.train.fit_context import surrounded


class Fitting:
    """The question and the rules, ready for entrants."""

    def __init__(self, duty: Duty):
        self.duty, self.rules, self.folder = duty, duty.rules, Folder(duty.folder)
        self.question: Question = ask(**duty.rules.ask)

    def run(self, entrant: Entrant, tell: Tell) -> Row:
        match entrant.kind:
            case "baseline":
                return self._baseline(entrant)
            case "tuning":
                from recurra.compare.tuning import search

                return search(self.duty, self.question, entrant.name, tell)
            case _:
                return self._cell(entrant, tell)

    def _baseline(self, entrant: Entrant) -> Row:
        started = time.perf_counter()
        made = baseline(self.question.task, entrant.name, self.question.options, entrant.seed)
        made.fit(*self.question.train)
        seconds = time.perf_counter() - started
        return {"score": self._score(made), "parameters": made.learned_, "seconds": seconds}

    def _score(self, made: Any) -> float:
        score = self.question.score(made)
        if not math.isfinite(score):
            raise ArithmeticError(f"its {self.question.metric} is not a finite number")
        return score

    def _cell(self, entrant: Entrant, tell: Tell) -> Row:
        settings = self.settings(entrant.name)
        limit = None
        if self.rules.budget == "time":
            settings["epochs"], limit = self._allowed(entrant, settings)
        made, watch = self._learned(entrant, settings, tell, limit)
        model = self.folder.candidate(entrant)
        keep(self.question, made, model)  # with its question, so that `recurra predict` can read other files
        return {
            "score": self._score(made),
            "parameters": parameters(network_of(made)),
            "seconds": watch.seconds,
            "hidden_size": settings["hidden_size"],
            "settings": {name: value for name, value in settings.items() if name != "hidden_size"},
            "epochs": len(made.history_),
            "history": made.history_,
            "model": str(model.relative_to(self.folder.path)),
        }

    def settings(self, cell: str) -> dict[str, Any]:
        """The options of the estimator: those given, those found by a search, the size."""
        found: dict[str, Any] = {}
        if self.rules.tune:
            found = dict(read_json(self.folder.row(Entrant(cell, 0, "tuning")))["settings"])
        epochs = {} if self.rules.epochs is None else {"epochs": self.rules.epochs}
        settings = {**epochs, **self.rules.settings, **found}
        return {"hidden_size": self._size(cell, settings), **settings}

    def _size(self, cell: str, settings: dict[str, Any]) -> int:
        """As many units as the budget allows."""
        if "hidden_size" in settings or self.rules.budget == "time":
            return settings.get("hidden_size", self.rules.hidden_size)
        return equal_size(Blank(self.question, self.rules.settings), self.rules, cell)

    def _allowed(self, entrant: Entrant, settings: dict[str, Any]) -> tuple[int, float]:
        """As many epochs as go into the seconds, and the seconds of each fit; what is resumed keeps to them."""
        path = self.folder.fit(entrant) / "allowed.json"
        if not path.exists():
            made: Any = self.question.estimator(entrant.name, **{**settings, "epochs": 1, "random_state": entrant.seed})
            each, fits = probe(lambda: made.fit(*self.question.train))
            seconds = self.rules.seconds
            write_json(path, {"epochs": max(1, round(seconds / each)), "seconds": seconds / fits})
        allowed = read_json(path)
        return allowed["epochs"], allowed["seconds"]

    def _learned(
        self, entrant: Entrant, settings: dict[str, Any], tell: Tell, limit: float | None
    ) -> tuple[Any, Watch]:
        """A fitted estimator; where that takes long, or was begun with checkpoints, with checkpoints."""
        checkpoints = self.folder.fit(entrant) / "checkpoints"
        if not checkpoints.exists():
            with suppress(Long):
                return self._fit(entrant, settings, Watch(tell, limit, self.duty.keep_after), None)
        return self._fit(entrant, settings, Watch(tell, limit), checkpoints)

    def _fit(self, entrant: Entrant, settings: dict[str, Any], watch: Watch, checkpoints: Path | None) -> Any:
        made: Any = self.question.estimator(entrant.name, **settings, random_state=entrant.seed)
        with surrounded(checkpoints, [watch]):
            made.fit(*self.question.train)
        return made, watch


def network_of(made: Any) -> Any:
    """The module inside a fitted estimator."""
    names = ("network_", "tagger_", "model_")
    return next(getattr(made, name) for name in names if hasattr(made, name))
